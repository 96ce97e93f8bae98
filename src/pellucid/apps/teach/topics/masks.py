"""Masks."""

from __future__ import annotations

import numpy as np

from pellucid import nn, ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text


def _future_unseen() -> float:
    """Return how much the first outputs change when later keys and values do."""
    q, k, v = normal(3, 5, 7)
    first, _ = ops.attention(q, k, v, causal=True)
    k[3:], v[3:] = 9.0, -9.0
    second, _ = ops.attention(q, k, v, causal=True)
    return float(np.abs(first - second)[:3].max())


TOPIC = Topic(
    title=Text("Masks", "마스크"),
    summary=Text(
        "Say which query may attend to which key: no padding, no future.",
        "어떤 쿼리가 어떤 키를 볼 수 있는지 정합니다. 패딩과 미래를 가립니다.",
    ),
    equations=("A′_ls = A_ls (M_ls = 0),  −inf (M_ls = 1)",),
    source="Vaswani et al. 2017, section 3.2.3",
    articles=("000", "002", "004"),
    forward=(
        Step(
            "causal: M_ls = [s > l]",
            Text(
                "A decoder must not see the tokens that it is to predict.",
                "디코더는 자신이 예측할 토큰을 미리 보면 안 됩니다.",
            ),
            Code(ops.causal_mask, "return"),
        ),
        Step(
            "valid_lens: M_ls = [s ≥ valid_len]",
            Text(
                "Article 004's form: only the first valid_len keys are real. True = not allowed.",
                "글 004의 방식입니다. 앞에서부터 valid_len개의 키만 유효합니다. True는 '볼 수 "
                "없음'입니다.",
            ),
            Code(nn.valid_lens_mask, "mask"),
        ),
        Step(
            "P = softmax(A′)",
            Text("exp(−inf) = 0: no weight at all.", "exp(−inf) = 0이므로 가중치가 전혀 없습니다."),
            Code(ops.attention, "a", "probabilities"),
        ),
    ),
    backward=(
        Step(
            "P_ls = 0  ⇒  dA_ls = P_ls (…) = 0",
            Text(
                "Softmax's derivative has P as a factor, so a forbidden score needs no mask in the "
                "backward.",
                "softmax의 미분에는 P가 곱해져 있으므로 역전파에서는 마스크가 따로 필요 없습니다.",
            ),
            Code(ops.softmax_backward, "return"),
        ),
    ),
    edges=(
        Edge(
            Text(
                "valid_lens 0 forbids every key: the output is 0, not NaN.",
                "valid_lens가 0이면 모든 키가 가려집니다. 결과는 NaN이 아니라 0입니다.",
            ),
            "nn.valid_lens_mask(np.array([3, 2, 0]), 4)",
        ),
        Edge(
            Text(
                "A float mask is added; −1e9 is not forbidden, it is only unlikely.",
                "실수 마스크는 점수에 더합니다. −1e9은 금지가 아니라 매우 작은 점수일 뿐입니다.",
            ),
            "ops.attention(np.ones((1, 1)), np.ones((2, 1)), np.array([[1.0], [3.0]]), "
            "mask=np.full((1, 2), -1e9))[0]",
        ),
    ),
    checks=(
        gradients_of(
            ops.attention,
            ops.attention_backward,
            [normal(2, 5, 3), normal(2, 5, 3), normal(2, 5, 4)],
            causal=True,
        ),
        Check(
            Text(
                "change of outputs 0 to 2 when keys and values from 3 on change",
                "3번 이후의 키와 값을 바꿨을 때 0~2번 출력의 변화",
            ),
            _future_unseen,
            0.0,
        ),
    ),
    related=("attention", "softmax"),
)

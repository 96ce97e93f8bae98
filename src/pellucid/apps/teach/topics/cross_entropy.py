"""Cross-entropy."""

from __future__ import annotations

import numpy as np

from pellucid import ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text

TARGET = np.array([1, 0, 6, 3])


def _p_minus_t() -> float:
    """Return how far the gradient of the sum is from softmax(logits) − one-hot."""
    logits = normal(4, 7)
    _, saved = ops.cross_entropy(logits, TARGET, reduction="sum")
    difference = ops.cross_entropy_backward(np.ones(()), saved)
    return float(np.abs(difference - (ops.softmax(logits)[0] - np.eye(7)[TARGET])).max())


TOPIC = Topic(
    title=Text("Cross-entropy", "크로스 엔트로피"),
    summary=Text(
        "The negative log-probability of the right token, in nats.",
        "정답 토큰의 로그 확률에 음수를 붙인 값이며, 단위는 nat입니다.",
    ),
    equations=(
        "loss = −Σ_v t_v log softmax(logits)_v",
        "t_v = (1 − ε) [v = target] + ε / V   (label smoothing)",
    ),
    source="Szegedy et al. 2016, section 7 (label smoothing)",
    articles=("003",),
    forward=(
        Step(
            "t = (1 − ε) [v = target] + ε / V",
            Text(
                "With ε = 0 only the right token counts; smoothing asks for a little of all "
                "others.",
                "ε = 0이면 정답 토큰만 셉니다. 레이블 스무딩은 나머지 토큰에도 조금씩 나눠 줍니다.",
            ),
            Code(ops.cross_entropy, "wanted"),
        ),
        Step(
            "log p = logits − log Σ exp(logits)",
            Text(
                "In one step, so that a small p is never rounded to 0 before its logarithm.",
                "한 번에 계산하므로 작은 p가 로그를 취하기 전에 0으로 반올림되지 않습니다.",
            ),
            Code(ops.cross_entropy, "log_p"),
        ),
        Step(
            "loss = −Σ_v t_v log p_v",
            Text("One number for each row.", "행마다 숫자 하나입니다."),
            Code(ops.cross_entropy, "losses"),
        ),
    ),
    backward=(
        Step(
            "d log p = −dloss · t",
            Text("From the last line.", "마지막 줄에서 바로 나옵니다."),
            Code(ops.cross_entropy_backward, "dlog_p"),
        ),
        Step(
            "dlogits = d log p − p Σ d log p = dloss · (p − t)",
            Text(
                "Since Σ t = 1. What the model says minus what it should say: bounded by 1, "
                "however wrong it is.",
                "Σ t = 1이기 때문입니다. '모델의 예측 − 정답'이므로 아무리 틀려도 크기가 1을 넘지 "
                "않습니다.",
            ),
            Code(ops.log_softmax_backward, "return"),
        ),
    ),
    edges=(
        Edge(
            Text("Rows with ignore_index count for nothing.", "ignore_index인 행은 세지 않습니다."),
            "ops.cross_entropy(np.zeros((2, 4)), np.array([1, -100]))[0].round(4)",
        ),
        Edge(
            Text(
                "Even odds over V tokens cost log V, here log 4.",
                "V개 토큰을 똑같이 예측하면 log V, 여기서는 log 4입니다.",
            ),
            "np.log(4).round(4)",
        ),
    ),
    checks=(
        gradients_of(
            ops.cross_entropy,
            ops.cross_entropy_backward,
            [normal(4, 7)],
            target=TARGET,
            label_smoothing=0.1,
        ),
        Check(Text("against p − t, largest difference", "p − t와의 최대 차이"), _p_minus_t, 1e-14),
    ),
    related=("softmax",),
)

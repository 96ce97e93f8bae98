"""Multi-head attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid import nn, ops
from pellucid.apps.teach.topic import DIFFERENCES, Check, Code, Edge, Step, Topic
from pellucid.check import TOLERANCE, gradient_check
from pellucid.check.op_cases import normal
from pellucid.core.language import Text

E, H = 6, 2


def _layer(bias: bool = True) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(E, H, bias=bias, batch_first=True, dtype=np.float64)


def _gradients() -> float:
    """Return the largest error of dx when query, key and value are one array."""
    layer = _layer()

    def forward(x: np.ndarray) -> tuple[Any, Any]:
        (y, _), backward = layer.forward(x, x, x)
        return y, lambda dy: sum(backward(dy))

    return max(gradient_check(forward, [normal(2, 5, E)]))


def _one_by_one() -> float:
    """Return how far the layer is from a loop over its heads, each with its own matrices."""
    layer, x = _layer(bias=False), normal(5, E)
    heads = []
    for h in range(H):
        rows = slice(h * E // H, (h + 1) * E // H)
        q, k, v = (x @ p.weight[rows].T for p in layer.projections())
        heads.append(ops.attention(q, k, v)[0])
    y = np.concatenate(heads, axis=-1) @ layer.out_proj.weight.data.T
    return float(np.abs(y - layer(x, x, x)[0]).max())


TOPIC = Topic(
    title=Text("Multi-head attention", "멀티 헤드 어텐션"),
    summary=Text(
        "Runs H attentions side by side, each on its own projection of width D = E / H, so that "
        "one layer can attend to several places for several reasons.",
        "폭이 D = E / H인 프로젝션마다 어텐션을 하나씩, 모두 H개를 나란히 계산합니다. 그래서 층 "
        "하나가 여러 곳을 저마다 다른 기준으로 볼 수 있습니다.",
    ),
    equations=(
        "Y = [Z_1 … Z_H] W_Oᵀ + b_O",
        "Z_h = softmax(Q_h K_hᵀ / √D) V_h",
    ),
    source="Vaswani et al. 2017, section 3.2.2",
    articles=("000", "001", "002", "004"),
    forward=(
        Step(
            "Q = X W_Qᵀ + b_Q,  K = X W_Kᵀ + b_K,  V = X W_Vᵀ + b_V",
            Text(
                "The three matrices are one above the other in in_proj_weight, so self-attention "
                "makes Q, K and V by one product.",
                "세 행렬은 in_proj_weight에 위아래로 쌓여 있습니다. 그래서 셀프 어텐션은 행렬 곱 "
                "한 번으로 Q, K, V를 모두 만듭니다.",
            ),
            Code(nn.MultiheadAttention._project, "y"),
        ),
        Step(
            "Q_h = Q[(h − 1) D : h D]",
            Text(
                "A head is a slice of the features. Splitting is a change of shape, (T, E) to "
                "(T, H, D); nothing is computed.",
                "헤드는 특징의 한 구간입니다. 나누기는 (T, E)를 (T, H, D)로 모양만 바꾸는 일이라 "
                "계산이 없습니다.",
            ),
            Code(nn.MultiheadAttention._project, "part"),
        ),
        Step(
            "Z_h = softmax(Q_h K_hᵀ / √D) V_h",
            Text(
                "All heads at once, each as in pellucid explain attention. The scale is that of "
                "the head's width D, not of E.",
                "모든 헤드를 한꺼번에 계산하며, 헤드 하나는 pellucid explain attention과 "
                "같습니다. 스케일은 E가 아니라 헤드의 폭 D로 정합니다.",
            ),
            Code(nn.MultiheadAttention._attend, "z"),
        ),
        Step(
            "Y = [Z_1 … Z_H] W_Oᵀ + b_O",
            Text(
                "The heads side by side again, (T, E), and mixed by the output projection: the "
                "only place where heads meet.",
                "헤드를 다시 (T, E)로 이어 붙이고 출력 프로젝션으로 섞습니다. 헤드끼리 만나는 "
                "곳은 여기뿐입니다.",
            ),
            Code(nn.MultiheadAttention._attend, "y"),
        ),
    ),
    backward=(
        Step(
            "[dZ_1 … dZ_H] = dY W_O",
            Text(
                "The output projection's backward; its columns give each head its own dZ.",
                "출력 프로젝션의 역전파입니다. 열을 나누면 헤드마다 자기 dZ를 받습니다.",
            ),
            Code(nn.MultiheadAttention._attend, "dz"),
        ),
        Step(
            "dQ_h, dK_h, dV_h = attention_backward(dZ_h)",
            Text(
                "Head by head, since no head used another's queries, keys or values.",
                "헤드마다 따로 계산합니다. 다른 헤드의 쿼리, 키, value를 쓴 헤드가 없기 "
                "때문입니다.",
            ),
            Code(nn.MultiheadAttention._attend, "dq"),
        ),
        Step(
            "dX = dQ W_Q + dK W_K + dV W_V",
            Text(
                "In self-attention X was used three times, so its three gradients add up. Here "
                "the packed matrix adds them within one product.",
                "셀프 어텐션에서는 X가 세 번 쓰였으므로 세 기울기를 더합니다. 여기서는 행렬이 "
                "쌓여 있어 곱 한 번 안에서 더해집니다.",
            ),
            Code(nn.MultiheadAttention._project, "given", "grads"),
        ),
    ),
    edges=(
        Edge(
            Text(
                "More heads make each one narrower: width 12 in 4 heads is 3 features each. A "
                "number of heads that does not divide the width is an error.",
                "헤드가 늘면 하나의 폭은 줄어듭니다. 폭 12를 헤드 4개로 나누면 특징은 3개씩입니다. "
                "나누어떨어지지 않으면 오류입니다.",
            ),
            "nn.MultiheadAttention(12, 4).head_dim",
        ),
        Edge(
            Text(
                "A query with every key forbidden gets the output projection's bias, here 0, not "
                "NaN.",
                "볼 수 있는 키가 없는 쿼리는 출력 프로젝션의 바이어스를 받습니다. 여기서는 0이며 "
                "NaN이 아닙니다.",
            ),
            "nn.MultiheadAttention(4, 2)(np.ones((1, 4), 'f4'), np.ones((3, 4), 'f4'), "
            "np.ones((3, 4), 'f4'), attn_mask=np.ones((1, 3), bool))[0]",
        ),
    ),
    checks=(
        Check(DIFFERENCES, _gradients, TOLERANCE),
        Check(
            Text(
                "all heads at once against a loop over the heads, largest difference",
                "한꺼번에 계산한 값과 헤드마다 따로 계산한 값의 최대 차이",
            ),
            _one_by_one,
            1e-14,
        ),
    ),
    related=("attention", "linear", "masks"),
)

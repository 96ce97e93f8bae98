"""Softmax."""

from __future__ import annotations

import numpy as np

from pellucid import ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text


def _with_the_jacobian() -> float:
    """Return how far `softmax_backward` is from dp times the full Jacobian."""
    p, saved = ops.softmax(normal(7))
    dp = normal(7, 1)[:, 0]
    return float(np.abs((np.diag(p) - np.outer(p, p)) @ dp - ops.softmax_backward(dp, saved)).max())


TOPIC = Topic(
    title=Text("Softmax", "소프트맥스"),
    summary=Text(
        "Turns a row of scores into positive weights that sum to 1.",
        "점수 한 행을 합이 1인 양의 가중치로 바꿉니다.",
    ),
    equations=("p_j = exp(x_j) / Σ_k exp(x_k)",),
    source="Bridle 1990",
    articles=("000", "003", "004"),
    forward=(
        Step(
            "e_j = exp(x_j − max x)",
            Text(
                "Subtracting the largest score changes nothing, since numerator and denominator "
                "both get the factor exp(−max x), and exp never overflows.",
                "가장 큰 점수를 빼도 분자와 분모에 똑같이 exp(−max x)가 곱해지므로 결과는 같고, "
                "exp가 오버플로하지 않습니다.",
            ),
            Code(ops.softmax, "e"),
        ),
        Step(
            "p = e / Σ e",
            Text(
                "A row without any finite score has the sum 0 and is left at 0.",
                "유한한 점수가 하나도 없는 행은 합이 0이므로 그대로 0으로 둡니다.",
            ),
            Code(ops.softmax, "total", "p"),
        ),
    ),
    backward=(
        Step(
            "∂p_j / ∂x_k = p_j ([j = k] − p_k)",
            Text(
                "The quotient rule. The diagonal is p (1 − p); off the diagonal it is −p_j p_k, so "
                "p (1 − p) alone is not the derivative.",
                "몫의 미분법으로 구합니다. 대각 성분은 p (1 − p)이고 나머지는 −p_j p_k입니다. "
                "따라서 p (1 − p)만으로는 전체 미분이 되지 않습니다.",
            ),
        ),
        Step(
            "dx_k = Σ_j dp_j p_j ([j = k] − p_k) = p_k (dp_k − Σ_j dp_j p_j)",
            Text(
                "Multiplying by dp first leaves one sum for each row: the Jacobian is never built.",
                "dp를 먼저 곱하면 행마다 합 하나만 남으므로 야코비안을 만들 필요가 없습니다.",
            ),
            Code(ops.softmax_backward, "return"),
        ),
    ),
    edges=(
        Edge(
            Text("A score of −inf has weight 0.", "점수가 −inf이면 가중치는 정확히 0입니다."),
            "ops.softmax(np.array([0.0, 0.0, -inf]))[0]",
        ),
        Edge(
            Text(
                "Nothing but −inf gives 0 (torch gives NaN).",
                "모두 −inf이면 0을 돌려줍니다(torch는 NaN).",
            ),
            "ops.softmax(np.array([-inf, -inf]))[0]",
        ),
        Edge(
            Text(
                "Large scores are safe; without the shift exp(1000) is inf.",
                "점수가 커도 안전합니다. 최댓값을 빼지 않으면 exp(1000)은 inf입니다.",
            ),
            "ops.softmax(np.array([1000.0, 999.0]))[0].round(3)",
        ),
    ),
    checks=(
        gradients_of(ops.softmax, ops.softmax_backward, [normal(3, 7)]),
        Check(
            Text(
                "against diag(p) − p pᵀ, largest difference",
                "diag(p) − p pᵀ를 직접 곱한 값과의 최대 차이",
            ),
            _with_the_jacobian,
            1e-14,
        ),
    ),
    related=("attention", "cross_entropy"),
)

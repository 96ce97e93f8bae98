"""Dropout."""

from __future__ import annotations

import numpy as np

from pellucid import Rng, ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text


def _mean_error() -> float:
    """Return how far the mean of a million ones is from 1 after dropout."""
    return abs(float(ops.dropout(np.ones((1000, 1000)), 0.3, Rng(0))[0].mean()) - 1.0)


TOPIC = Topic(
    title=Text("Dropout", "드롭아웃"),
    summary=Text(
        "While training, sets each element to 0 with probability p and scales up the rest.",
        "학습할 때 각 원소를 확률 p로 0으로 만들고, 남은 값은 그만큼 키웁니다.",
    ),
    equations=("y = x ⊙ m / (1 − p),  m ∈ {0, 1},  P(m = 1) = 1 − p",),
    source="Srivastava et al. 2014",
    articles=("002", "004"),
    forward=(
        Step(
            "m = [hash(seed, place) ≥ p · 2³²]",
            Text(
                "The mask is a function of where an element is, so it can be computed again.",
                "마스크는 원소의 위치에 대한 함수이므로 언제든 다시 계산할 수 있습니다.",
            ),
        ),
        Step(
            "y = x ⊙ m / (1 − p)",
            Text(
                "Dividing by 1 − p keeps the expected value, so evaluation needs no change.",
                "1 − p로 나누면 기댓값이 유지되므로 평가할 때는 아무것도 바꾸지 않습니다.",
            ),
            Code(ops.dropout, "saved", "return"),
        ),
    ),
    backward=(
        Step(
            "dx = dy ⊙ m / (1 − p)",
            Text(
                "The same mask, drawn again instead of stored.",
                "같은 마스크를 저장하지 않고 다시 만들어 씁니다.",
            ),
            Code(ops.dropout_backward, "return"),
        ),
    ),
    edges=(
        Edge(
            Text("p = 1 gives 0 everywhere.", "p = 1이면 모두 0입니다."),
            "ops.dropout(np.ones(4), 1.0, Rng(0))[0]",
        ),
        Edge(
            Text("Without an rng it is the identity.", "rng가 없으면 아무 일도 하지 않습니다."),
            "ops.dropout(np.ones(4), 0.5, None)[0]",
        ),
    ),
    checks=(
        gradients_of(ops.dropout, ops.dropout_backward, [normal(3, 11)], p=0.3, rng=Rng(5)),
        Check(
            Text(
                "|mean − 1| of 1,000,000 elements of 1 after p = 0.3",
                "1로 채운 원소 1,000,000개가 p = 0.3을 거친 뒤의 |평균 − 1|",
            ),
            _mean_error,
            3e-3,
        ),
    ),
)

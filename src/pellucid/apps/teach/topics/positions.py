"""Sinusoidal positions."""

from __future__ import annotations

import numpy as np

from pellucid import ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic
from pellucid.core.language import Text

WIDTH, SHIFT = 64, 5


def _rotated() -> float:
    """Return how far P[t + 5] is from P[t] with every (sin, cos) pair turned by its own angle."""
    table = ops.sinusoidal(100, WIDTH)
    angle = SHIFT / 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    sin, cos = table[:-SHIFT, 0::2], table[:-SHIFT, 1::2]
    turned = np.empty_like(table[SHIFT:])
    turned[:, 0::2] = sin * np.cos(angle) + cos * np.sin(angle)
    turned[:, 1::2] = cos * np.cos(angle) - sin * np.sin(angle)
    return float(np.abs(turned - table[SHIFT:]).max())


def _by_distance() -> float:
    """Return how much P[t]·P[t + 5] varies over t; it must depend on the distance alone."""
    table = ops.sinusoidal(100, WIDTH)
    products = (table[:-SHIFT] * table[SHIFT:]).sum(axis=-1)
    return float(np.ptp(products))


TOPIC = Topic(
    title=Text("Sinusoidal positions", "사인·코사인 위치 인코딩"),
    summary=Text(
        "Attention alone does not see order. A fixed pattern for each position is added to the "
        "tokens.",
        "어텐션만으로는 순서를 알 수 없습니다. 위치마다 정해진 패턴을 토큰에 더해 순서를 알려 "
        "줍니다.",
    ),
    equations=(
        "P[t, 2i] = sin(t ω_i),  P[t, 2i+1] = cos(t ω_i),  ω_i = 10000^(−2i/E)",
        "P[t]·P[t+k] = Σ_i cos(k ω_i)",
    ),
    source="Vaswani et al. 2017, section 3.5",
    articles=("001",),
    forward=(
        Step(
            "t ω_i",
            Text(
                "Each pair of channels is the hand of a clock; the first is fast, the last slow.",
                "채널 두 개가 시곗바늘 하나입니다. 앞쪽 바늘은 빠르고 뒤쪽 바늘은 느립니다.",
            ),
            Code(ops.sinusoidal, "even", "angle"),
        ),
        Step(
            "sin(t ω_i), cos(t ω_i)",
            Text("The position of the hand.", "바늘의 좌표입니다."),
            Code(ops.sinusoidal, "table"),
        ),
    ),
    backward=(
        Step(
            "P[t+k] = R_k P[t]",
            Text(
                "The table is fixed, so there is no gradient. What matters: moving k places turns "
                "every hand by k ω_i, a rotation R_k that does not depend on t. A linear map can "
                "therefore learn to look k places back.",
                "표가 고정되어 있어 기울기는 없습니다. 중요한 성질은 따로 있습니다. k칸 이동은 "
                "모든 바늘을 k ω_i만큼 돌리는 회전 R_k이며 t와 무관합니다. 그래서 선형 변환만으로 "
                "'k칸 앞'을 학습할 수 있습니다.",
            ),
        ),
        Step(
            "P[t]·P[t+k] = Σ_i (sin sin + cos cos) = Σ_i cos(k ω_i)",
            Text(
                "The sum formula of the cosine: the dot product knows the distance only.",
                "코사인의 덧셈 정리입니다. 두 위치의 내적은 거리에만 의존합니다.",
            ),
        ),
    ),
    edges=(
        Edge(
            Text("Position 0 is all sin 0 and cos 0.", "위치 0은 sin 0과 cos 0뿐입니다."),
            "ops.sinusoidal(1, 6)[0]",
        ),
        Edge(
            Text(
                "Every position vector has the same length, √(E/2).",
                "모든 위치 벡터의 길이는 √(E/2)로 같습니다.",
            ),
            "np.linalg.norm(ops.sinusoidal(3, 32), axis=-1)",
        ),
    ),
    checks=(
        Check(
            Text("P[t + 5] against the rotated P[t]", "P[t + 5]와 회전시킨 P[t]의 최대 차이"),
            _rotated,
            1e-12,
        ),
        Check(
            Text("spread of P[t]·P[t + 5] over t", "t에 따른 P[t]·P[t + 5]의 변동 폭"),
            _by_distance,
            1e-12,
        ),
    ),
    related=("embedding", "attention"),
)

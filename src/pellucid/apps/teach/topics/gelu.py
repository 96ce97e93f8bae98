"""GELU, exact and in the tanh form."""

from __future__ import annotations

import numpy as np

from pellucid import ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text


def _tanh_error() -> float:
    """Return the largest difference between the two forms on [−6, 6]."""
    x = np.linspace(-6.0, 6.0, 120_001)
    return float(np.abs(ops.gelu(x)[0] - ops.gelu(x, "tanh")[0]).max())


TOPIC = Topic(
    title=Text("GELU", "GELU"),
    summary=Text(
        "The input times the probability that a standard normal number is below it: a smooth ReLU.",
        "입력에 '표준정규분포 값이 입력보다 작을 확률'을 곱합니다. 매끄러운 ReLU입니다.",
    ),
    equations=(
        "y = x Φ(x) = ½ x (1 + erf(x / √2))",
        "tanh: y = ½ x (1 + tanh u),  u = √(2/π) (x + 0.044715 x³)",
    ),
    source="Hendrycks & Gimpel 2016",
    articles=("000",),
    forward=(
        Step(
            "gate = 1 + erf(x / √2)   (tanh: 1 + tanh u)",
            Text(
                "Twice Φ(x). Far out the input is clipped, where the gate is 0 or 2 already, so "
                "that x³ cannot overflow.",
                "Φ(x)의 두 배입니다. 게이트가 이미 0이나 2인 먼 곳에서는 입력을 잘라 x³이 "
                "오버플로하지 않게 합니다.",
            ),
            Code(ops.gelu, "z", "gate"),
        ),
        Step(
            "y = ½ x · gate",
            Text("The gate scales the input.", "게이트를 입력에 곱합니다."),
            Code(ops.gelu, "y"),
        ),
    ),
    backward=(
        Step(
            "dy/dx = Φ(x) + x φ(x),  φ(x) = exp(−x²/2) / √(2π)",
            Text(
                "The product rule; φ, the normal density, is the derivative of Φ.",
                "곱의 미분법입니다. 정규분포의 밀도 φ가 Φ의 미분입니다.",
            ),
            Code(ops.gelu_backward, "density"),
        ),
        Step(
            "tanh: dy/dx = ½ (1 + t) + ½ x (1 − t²) u′,  t = tanh u",
            Text(
                "The same rule with tanh′ = 1 − tanh² and u′ = √(2/π) (1 + 3 · 0.044715 x²).",
                "같은 규칙에 tanh′ = 1 − tanh²와 u′ = √(2/π) (1 + 3 · 0.044715 x²)를 씁니다.",
            ),
            Code(ops.gelu_backward, "t", "slope", "return"),
        ),
    ),
    edges=(
        Edge(
            Text(
                "Unlike ReLU it goes below 0: the lowest value, near x = −0.75, is −0.17.",
                "ReLU와 달리 0 아래로 내려갑니다. x = −0.75 부근에서 최솟값 −0.17을 가집니다.",
            ),
            "ops.gelu(np.array([-0.7517916]))[0].round(4)",
        ),
        Edge(
            Text("Far out it is 0 or x.", "양 끝에서는 0 또는 x입니다."),
            "ops.gelu(np.array([-inf, -50.0, 50.0, inf]))[0]",
        ),
    ),
    checks=(
        gradients_of(ops.gelu, ops.gelu_backward, [normal(3, 11)]),
        gradients_of(ops.gelu, ops.gelu_backward, [normal(3, 11)], approximate="tanh"),
        Check(
            Text(
                "tanh form against the exact one, largest difference",
                "tanh 근사와 정확한 값의 최대 차이",
            ),
            _tanh_error,
            5e-4,
        ),
    ),
    related=("relu",),
)

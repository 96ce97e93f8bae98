"""Adam and AdamW."""

from __future__ import annotations

import numpy as np

from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic
from pellucid.check.op_cases import normal
from pellucid.core.language import Text
from pellucid.training.optimizers.adam import Moments, adam

LR, BETA1, BETA2 = 0.1, 0.9, 0.999


def _run(gradients: np.ndarray) -> tuple[np.ndarray, Moments]:
    """Step from 0 along each gradient in turn."""
    theta = np.zeros(gradients.shape[1:])
    moments = Moments(np.zeros_like(theta), np.zeros_like(theta))
    for step, gradient in enumerate(gradients, start=1):
        theta, moments = adam(theta, gradient, moments, step=step, lr=LR, eps=0.0)
    return theta, moments


def _as_weighted_sums() -> float:
    """Return how far m and v after 7 steps are from their weighted sums."""
    gradients = normal(7, 5)
    _, (m, v) = _run(gradients)
    ages = np.arange(7)[::-1, None]
    return float(
        max(
            np.abs(m - ((1 - BETA1) * BETA1**ages * gradients).sum(axis=0)).max(),
            np.abs(v - ((1 - BETA2) * BETA2**ages * gradients**2).sum(axis=0)).max(),
        )
    )


def _first_step() -> float:
    """Return how far the first step is from lr times the gradient's sign."""
    gradient = normal(1, 5) * np.array([1e-6, 1e-3, 1.0, 1e3, 1e6])
    return float(np.abs(_run(gradient)[0] + LR * np.sign(gradient[0])).max())


TOPIC = Topic(
    title=Text("Adam and AdamW", "Adam과 AdamW"),
    summary=Text(
        "Steps along a running mean of the gradient, divided by its running size, so that every "
        "parameter moves by about lr.",
        "기울기의 이동평균을 기울기 크기의 이동평균으로 나눈 방향으로 갱신합니다. 그래서 모든 "
        "파라미터가 한 번에 lr 정도씩 움직입니다.",
    ),
    equations=(
        "m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²",
        "θ ← θ − lr · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)",
    ),
    source="Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019",
    articles=("003",),
    forward=(
        Step(
            "Adam: g ← g + λ θ    AdamW: θ ← θ − lr λ θ",
            Text(
                "Weight decay. In Adam it is part of the gradient and gets divided by √v, in AdamW "
                "it shrinks the weights directly.",
                "가중치 감쇠입니다. Adam에서는 기울기에 더해져 √v로 나뉘고, AdamW에서는 가중치를 "
                "직접 줄입니다.",
            ),
            Code(adam, "gradient"),
        ),
        Step(
            "m ← β₁ m + (1 − β₁) g",
            Text("Running mean of the gradient.", "기울기의 이동평균입니다."),
            Code(adam, "exp_avg"),
        ),
        Step(
            "v ← β₂ v + (1 − β₂) g²",
            Text("Running mean of its square.", "기울기 제곱의 이동평균입니다."),
            Code(adam, "exp_avg_sq"),
        ),
        Step(
            "m̂ = m / (1 − β₁ᵗ),  v̂ = v / (1 − β₂ᵗ)",
            Text(
                "m and v begin at 0, and the weights of t terms sum to 1 − βᵗ only; dividing by "
                "that removes the bias towards 0.",
                "m과 v는 0에서 시작하고 t개 항의 가중치 합은 1 − βᵗ뿐입니다. 이 값으로 나누면 "
                "0으로 치우친 편향이 없어집니다.",
            ),
            Code(adam, "root"),
        ),
        Step(
            "θ ← θ − lr m̂ / (√v̂ + ε)",
            Text(
                "The size of g cancels: g and 1000 g give the same step. This is why a factor "
                "in front of an embedding table makes the table move faster.",
                "g의 크기는 약분됩니다. g든 1000 g든 같은 만큼 움직입니다. 임베딩 표 앞에 상수를 "
                "곱하면 표가 그만큼 빨리 움직이는 이유입니다.",
            ),
            Code(adam, "theta"),
        ),
    ),
    backward=(),
    edges=(
        Edge(
            Text(
                "With a gradient of 0 ε keeps the step at 0; without it, it would be 0 / 0.",
                "기울기가 0이면 ε 덕분에 스텝도 0입니다. ε이 없으면 0 / 0입니다.",
            ),
            "adam(np.ones(1), np.zeros(1), Moments(np.zeros(1), np.zeros(1)), step=1, lr=0.1)[0]",
            {"adam": adam, "Moments": Moments},
        ),
    ),
    checks=(
        Check(
            Text(
                "m and v after 7 steps against their weighted sums",
                "7스텝 뒤의 m, v와 가중합으로 직접 구한 값의 최대 차이",
            ),
            _as_weighted_sums,
            1e-14,
        ),
        Check(
            Text(
                "first step against lr · sign(g), for g from 1e-6 to 1e6",
                "첫 스텝과 lr · sign(g)의 최대 차이(g는 1e-6부터 1e6까지)",
            ),
            _first_step,
            1e-14,
        ),
    ),
)

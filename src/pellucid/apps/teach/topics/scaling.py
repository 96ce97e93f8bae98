"""Why the scores are divided by √d_k."""

from __future__ import annotations

from functools import cache

import numpy as np

from pellucid import ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic
from pellucid.core.language import Text

D, DRAWS = 64, 200_000


@cache
def _products() -> np.ndarray:
    """Return many q·k of independent standard normal vectors of width 64."""
    q, k = np.random.default_rng(0).standard_normal((2, DRAWS, D))
    products: np.ndarray = (q * k).sum(axis=-1)
    return products


TOPIC = Topic(
    title=Text("Why √d_k", "왜 √d_k로 나누는가"),
    summary=Text(
        "q·k of independent vectors has mean 0 and standard deviation √d_k. Divided by √d_k it "
        "stays near 1, and softmax stays away from saturation.",
        "서로 독립인 q와 k의 내적은 평균 0, 표준편차 √d_k입니다. √d_k로 나누면 표준편차가 1이 되어 "
        "softmax가 포화되지 않습니다.",
    ),
    equations=("Var[q·k] = Σ_i E[q_i²] E[k_i²] = d_k",),
    source="Vaswani et al. 2017, section 3.2.1, footnote 4",
    articles=("000", "001", "003", "004"),
    forward=(
        Step(
            "E[q·k] = Σ_i E[q_i] E[k_i] = 0",
            Text(
                "Independent entries of mean 0. With a mean m it is d_k m² instead, which no √d_k "
                "takes away (article 004's test draws from [0, 1)).",
                "원소가 서로 독립이고 평균이 0일 때입니다. 평균이 m이면 d_k m²이 되어 √d_k로 "
                "나눠도 없어지지 않습니다(글 004의 테스트는 [0, 1) 난수를 씁니다).",
            ),
        ),
        Step(
            "Var[q·k] = Σ_i Var[q_i k_i] = d_k",
            Text(
                "Variances of independent terms add up; each is 1 · 1.",
                "독립인 항의 분산은 더해집니다. 각 항의 분산은 1 · 1입니다.",
            ),
        ),
        Step(
            "Var[q·k / √d_k] = 1",
            Text(
                "So the scale is 1 / √D unless another is given.",
                "그래서 scale의 기본값이 1 / √D입니다.",
            ),
            Code(ops.attention, "scale"),
        ),
    ),
    backward=(
        Step(
            "dQ = s · dA K",
            Text(
                "The scale appears again in the backward: queries and keys get softmax's "
                "derivative times s. Too small a scale starves them, too large a one saturates "
                "softmax.",
                "역전파에도 s가 곱해집니다. s가 너무 작으면 q와 k의 기울기가 줄고, 너무 크면 "
                "softmax가 포화됩니다.",
            ),
            Code(ops.attention_backward, "dq", "dk"),
        ),
    ),
    edges=(
        Edge(
            Text(
                "Two keys 8 apart, the standard deviation at width 64: saturated without the "
                "scale.",
                "폭 64의 표준편차인 8만큼 점수가 다른 두 키: 스케일링이 없으면 포화됩니다.",
            ),
            "ops.softmax(np.array([8.0, 0.0]))[0].round(4)",
        ),
        Edge(
            Text("The same two, divided by 8.", "같은 두 점수를 8로 나눈 경우입니다."),
            "ops.softmax(np.array([1.0, 0.0]))[0].round(4)",
        ),
    ),
    checks=(
        Check(
            Text(
                "|mean of q·k| at width 64, 200,000 draws",
                "폭 64에서 q·k 평균의 절댓값(200,000번 추출)",
            ),
            lambda: float(abs(_products().mean())),
            0.1,
        ),
        Check(
            Text("|Var[q·k] / 64 − 1|", "|Var[q·k] / 64 − 1|"),
            lambda: float(abs(_products().var() / D - 1)),
            0.02,
        ),
    ),
    related=("attention", "softmax"),
)

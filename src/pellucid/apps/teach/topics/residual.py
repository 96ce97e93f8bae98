"""The residual connection, after the sum or before the sublayer."""

from __future__ import annotations

import numpy as np

from pellucid import ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text


def _straight() -> float:
    """Return how far the gradient at the residual is from that of the normalised sum."""
    y, x = normal(2, 5, 11)
    dz = normal(5, 11)
    _, saved = ops.add_dropout_norm(y, x)
    _, dx, _, _ = ops.add_dropout_norm_backward(dz, saved)
    _, norm_saved = ops.layer_norm(x + y)
    return float(np.abs(dx - ops.layer_norm_backward(dz, norm_saved)[0]).max())


TOPIC = Topic(
    title=Text("Residual connection and norm", "잔차 연결과 정규화"),
    summary=Text(
        "Every sublayer adds to its input instead of replacing it, so gradients have a direct "
        "path.",
        "서브레이어는 입력을 바꾸는 대신 입력에 더해집니다. 그래서 기울기가 곧바로 지나갈 길이 "
        "생깁니다.",
    ),
    equations=(
        "post-norm: z = LayerNorm(x + dropout(sublayer(x)))",
        "pre-norm: z = x + dropout(sublayer(LayerNorm(x)))",
    ),
    source="He et al. 2016; Vaswani et al. 2017, sections 3.1 and 5.4",
    articles=("001", "002"),
    forward=(
        Step(
            "dropped = dropout(y),  y = sublayer(x)",
            Text(
                "Dropout on what the sublayer adds.",
                "서브레이어가 더하는 값에 드롭아웃을 적용합니다.",
            ),
            Code(ops.add_dropout_norm, "dropped"),
        ),
        Step(
            "z = LayerNorm(x + dropped)",
            Text(
                "Post-norm, the paper's form, in one op.",
                "논문의 방식인 post-norm이며, 여기서는 연산 하나로 계산합니다.",
            ),
            Code(ops.add_dropout_norm, "y"),
        ),
    ),
    backward=(
        Step(
            "dsum = LayerNorm_backward(dz)",
            Text(
                "Post-norm: every layer multiplies the direct path by LayerNorm's derivative.",
                "post-norm에서는 층마다 직통 경로에 LayerNorm의 미분이 곱해집니다.",
            ),
            Code(ops.add_dropout_norm_backward, "dsum"),
        ),
        Step(
            "dx = dsum + sublayer_backward(dropout_backward(dsum))",
            Text(
                "The sum hands the same gradient to both sides. In pre-norm the direct path is the "
                "identity: dx = dz + …, through any number of layers.",
                "덧셈은 양쪽에 같은 기울기를 전달합니다. pre-norm에서는 직통 경로가 항등이라 층이 "
                "몇 개든 dx = dz + …입니다.",
            ),
            Code(ops.add_dropout_norm_backward, "return"),
        ),
    ),
    edges=(
        Edge(
            Text(
                "A sublayer that returns 0 leaves the normalised input.",
                "서브레이어가 0을 내면 입력을 정규화한 값이 그대로 나옵니다.",
            ),
            "ops.add_dropout_norm(np.zeros(2), np.array([1.0, 3.0]), eps=0.0)[0]",
        ),
    ),
    checks=(
        gradients_of(
            ops.add_dropout_norm,
            ops.add_dropout_norm_backward,
            [normal(3, 11), normal(3, 11)[::-1].copy(), normal(11), normal(11, 1)[:, 0]],
        ),
        Check(
            Text(
                "gradient at x against LayerNorm's own, largest difference",
                "x의 기울기와 LayerNorm 자체 기울기의 최대 차이",
            ),
            _straight,
            1e-14,
        ),
    ),
    related=("layer_norm", "dropout"),
)

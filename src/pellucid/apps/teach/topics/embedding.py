"""Token embedding."""

from __future__ import annotations

import numpy as np

from pellucid import ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text

INDEX = np.array([[1, 4, 1], [0, 2, 4]])


def _as_one_hot() -> float:
    """Return how far the gradient is from that of a product with one-hot rows."""
    weight, dy = normal(5, 7), normal(2, 3, 7)
    _, saved = ops.embedding(INDEX, weight)
    _, one_hot_saved = ops.linear(np.eye(5)[INDEX], weight.T)
    _, dweight, _ = ops.linear_backward(dy, one_hot_saved)
    return float(np.abs(dweight.T - ops.embedding_backward(dy, saved)).max())


def _lookup(weight: np.ndarray) -> tuple[np.ndarray, object]:
    """Look the fixed indices up in a table."""
    return ops.embedding(INDEX, weight)


TOPIC = Topic(
    title=Text("Token embedding", "토큰 임베딩"),
    summary=Text(
        "Replaces a token's number by its row of a learned table.",
        "토큰 번호를 학습되는 표의 해당 행으로 바꿉니다.",
    ),
    equations=("y = W[index]",),
    source="Vaswani et al. 2017, section 3.4",
    articles=("003",),
    forward=(
        Step(
            "y_t = W[i_t]",
            Text(
                "The same as a one-hot row times W, without the multiplication.",
                "원-핫 행에 W를 곱한 것과 같지만 곱셈은 하지 않습니다.",
            ),
            Code(ops.embedding, "y"),
        ),
    ),
    backward=(
        Step(
            "dW_i = Σ_t [i_t = i] dy_t",
            Text(
                "A token that occurs twice collects both gradients; one that does not occur gets "
                "0.",
                "두 번 나온 토큰은 기울기를 모두 더하고, 나오지 않은 토큰은 0입니다.",
            ),
            Code(ops.embedding_backward, "updates", "return"),
        ),
    ),
    edges=(
        Edge(
            Text("The padding row gets no gradient.", "패딩 행은 기울기를 받지 않습니다."),
            "ops.embedding_backward(np.ones((2, 1)), ops.embedding(np.array([0, 1]), "
            "np.zeros((2, 1)), padding_idx=0)[1])",
        ),
    ),
    checks=(
        gradients_of(_lookup, ops.embedding_backward, [normal(5, 7)]),
        Check(
            Text("against a product with one-hot rows", "원-핫 행렬 곱의 기울기와의 최대 차이"),
            _as_one_hot,
            1e-14,
        ),
    ),
    related=("linear", "positions"),
)

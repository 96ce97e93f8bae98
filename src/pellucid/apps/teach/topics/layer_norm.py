"""Layer normalisation."""

from __future__ import annotations

from pellucid import ops
from pellucid.apps.teach.topic import Check, Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text


def _unmoved() -> float:
    """Return how much of dx lies along 1 and x̂, the directions that LayerNorm removes."""
    _, saved = ops.layer_norm(normal(5, 11), eps=0.0)
    dx, _, _ = ops.layer_norm_backward(normal(11, 5).T, saved)
    return float(max(abs(dx.mean(axis=-1)).max(), abs((dx * saved.x_hat).mean(axis=-1)).max()))


TOPIC = Topic(
    title=Text("Layer normalisation", "레이어 정규화(LayerNorm)"),
    summary=Text(
        "Gives every row mean 0 and variance 1 over its features, then a learned gain and offset.",
        "행마다 특징 방향의 평균을 0, 분산을 1로 맞춘 뒤, 학습되는 gain과 offset을 적용합니다.",
    ),
    equations=("y = γ ⊙ (x − μ) / √(σ² + ε) + β",),
    source="Ba, Kiros, Hinton 2016",
    articles=("000", "001"),
    forward=(
        Step(
            "μ = (1/E) Σ x",
            Text("The mean of a row, one number.", "행의 평균으로, 숫자 하나입니다."),
            Code(ops.layer_norm, "mu"),
        ),
        Step(
            "σ² = (1/E) Σ (x − μ)²",
            Text("Its variance, also one number.", "행의 분산으로, 역시 숫자 하나입니다."),
            Code(ops.layer_norm, "centred", "variance"),
        ),
        Step(
            "x̂ = (x − μ) / √(σ² + ε)",
            Text(
                "ε keeps a constant row from dividing by 0.",
                "ε은 상수 행에서 0으로 나누는 일을 막습니다.",
            ),
            Code(ops.layer_norm, "inverse_std", "x_hat"),
        ),
        Step(
            "y = γ ⊙ x̂ + β",
            Text(
                "Learned gain and offset, one for each feature.",
                "특징마다 학습되는 gain과 offset입니다.",
            ),
            Code(ops.layer_norm, "y"),
        ),
    ),
    backward=(
        Step(
            "dβ = Σ dy,  dγ = Σ dy ⊙ x̂,  g = dy ⊙ γ",
            Text(
                "γ and β act on all rows, so their gradients are sums over rows. g is the gradient "
                "at x̂: it has dy in it, not γ alone.",
                "γ와 β는 모든 행에 쓰이므로 기울기를 행 방향으로 더합니다. g는 x̂에 대한 "
                "기울기이며, γ만이 아니라 dy ⊙ γ입니다.",
            ),
            Code(ops.layer_norm_backward, "dbias", "dweight", "g"),
        ),
        Step(
            "dσ² = −½ Σ g ⊙ x̂ / (σ² + ε)",
            Text(
                "σ² is one number that every entry of x̂ was divided by, so its gradient is a sum "
                "over the row. Each x receives dσ² · 2 (x − μ) / E = −x̂ · m(g ⊙ x̂) / √(σ² + ε), "
                "m the mean of the row.",
                "σ²는 행 전체에 쓰인 숫자 하나이므로 기울기도 행에 대한 합입니다. 각 x는 dσ² · 2 "
                "(x − μ) / E = −x̂ · m(g ⊙ x̂) / √(σ² + ε)를 받습니다. m은 행의 평균입니다.",
            ),
            Code(ops.layer_norm_backward, "mean_gx"),
        ),
        Step(
            "dμ = −Σ g / √(σ² + ε)",
            Text(
                "The gradient of μ through σ² is 0, since Σ (x − μ) = 0. Each x receives dμ / E.",
                "Σ (x − μ) = 0이므로 σ²를 거쳐 μ로 가는 기울기는 0입니다. 각 x는 dμ / E를 "
                "받습니다.",
            ),
            Code(ops.layer_norm_backward, "mean_g"),
        ),
        Step(
            "dx = (g − m(g) − x̂ ⊙ m(g ⊙ x̂)) / √(σ² + ε)",
            Text("The three paths to x together.", "x로 가는 세 경로의 합입니다."),
            Code(ops.layer_norm_backward, "dx"),
        ),
    ),
    edges=(
        Edge(
            Text("A constant row gives β, here 0.", "상수 행의 출력은 β이며, 여기서는 0입니다."),
            "ops.layer_norm(np.full(4, 3.0))[0]",
        ),
        Edge(
            Text(
                "With ε = 0 a constant row is 0 / 0.",
                "ε = 0이면 상수 행에서 0 / 0이 됩니다.",
            ),
            "ops.layer_norm(np.full(4, 3.0), eps=0.0)[0]",
        ),
        Edge(
            Text(
                "Scale and shift of the input do not matter (but for ε).",
                "입력에 상수를 곱하거나 더해도 결과는 같습니다(ε의 영향은 제외).",
            ),
            "ops.layer_norm(np.array([1.0, 2.0, 6.0]) * 100 + 7)[0].round(3)",
        ),
    ),
    checks=(
        gradients_of(
            ops.layer_norm,
            ops.layer_norm_backward,
            [normal(3, 11), normal(11), normal(11, 1)[:, 0]],
        ),
        Check(
            Text(
                "mean of dx and of dx ⊙ x̂ in every row, which must be 0 for ε = 0",
                "행마다 dx와 dx ⊙ x̂의 평균(ε = 0이면 0이어야 함)",
            ),
            _unmoved,
            1e-14,
        ),
    ),
    related=("residual",),
)

"""ReLU, leaky ReLU and SiLU."""

from __future__ import annotations

from pellucid import ops
from pellucid.apps.teach.topic import Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text

TOPIC = Topic(
    title=Text("ReLU, leaky ReLU and SiLU", "ReLU, leaky ReLU, SiLU"),
    summary=Text(
        "ReLU passes what is positive. Leaky ReLU and SiLU let some gradient through below 0, so "
        "that a unit that is negative for every input can recover.",
        "ReLU는 양수만 통과시킵니다. leaky ReLU와 SiLU는 0 아래에서도 기울기를 조금 흘려보내, "
        "모든 입력에서 음수가 된 유닛도 되살아날 수 있습니다.",
    ),
    equations=("relu(x) = max(0, x)", "leaky(x) = max(0, x) + a min(0, x)", "silu(x) = x σ(x)"),
    source="Nair & Hinton 2010; Maas, Hannun, Ng 2013; Elfwing et al. 2017",
    articles=("000", "004"),
    forward=(
        Step(
            "y = max(0, x)",
            Text("A unit is off where its input is negative.", "입력이 음수이면 유닛이 꺼집니다."),
            Code(ops.relu, "return"),
        ),
        Step(
            "y = x σ(x)",
            Text(
                "SiLU: GELU with the logistic function.",
                "SiLU는 GELU의 Φ를 로지스틱 함수로 바꾼 것입니다.",
            ),
            Code(ops.silu, "return"),
        ),
    ),
    backward=(
        Step(
            "dx = dy [x > 0]",
            Text(
                "A unit is dead only if x ≤ 0 for every input of the data: then no example gives "
                "it a gradient. One negative input does not kill it.",
                "모든 데이터에서 x ≤ 0일 때만 유닛이 죽습니다. 어떤 예제도 기울기를 주지 못하기 "
                "때문입니다. 음수 입력이 한 번 나왔다고 죽지는 않습니다.",
            ),
            Code(ops.relu_backward, "return"),
        ),
        Step(
            "leaky: dx = dy ([x > 0] + a [x ≤ 0])",
            Text(
                "The slope a keeps the gradient from being 0.", "기울기 a가 있어 0이 되지 않습니다."
            ),
            Code(ops.leaky_relu_backward, "return"),
        ),
        Step(
            "silu: dx = dy σ(x) (1 + x (1 − σ(x)))",
            Text("The product rule with σ′ = σ (1 − σ).", "곱의 미분법에 σ′ = σ (1 − σ)를 씁니다."),
            Code(ops.silu_backward, "return"),
        ),
    ),
    edges=(
        Edge(
            Text(
                "At the kink, x = 0, the derivative is taken as 0, as in torch.",
                "꺾이는 점 x = 0에서는 torch처럼 미분을 0으로 둡니다.",
            ),
            "ops.relu_backward(np.ones(1), ops.relu(np.zeros(1))[1])",
        ),
    ),
    checks=(
        gradients_of(ops.relu, ops.relu_backward, [normal(3, 11) + 0.01]),
        gradients_of(ops.leaky_relu, ops.leaky_relu_backward, [normal(3, 11) + 0.01], slope=0.1),
        gradients_of(ops.silu, ops.silu_backward, [normal(3, 11)]),
    ),
    related=("gelu",),
)

"""The linear map."""

from __future__ import annotations

from pellucid import ops
from pellucid.apps.teach.topic import Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text

TOPIC = Topic(
    title=Text("Linear map", "선형 변환(Linear)"),
    summary=Text(
        "Multiplies every row by a matrix and adds a bias: projections, feed-forward, output.",
        "모든 행에 행렬을 곱하고 바이어스를 더합니다. 프로젝션, 피드포워드, 출력층에 쓰입니다.",
    ),
    equations=("y = x Wᵀ + b",),
    source="torch.nn.functional.linear",
    articles=("002", "004"),
    forward=(
        Step(
            "y_tf = Σ_e x_te W_fe + b_f",
            Text(
                "All axes before the last are rows, so one product does them all.",
                "마지막 축 앞의 모든 축을 행으로 펴서 행렬 곱 한 번으로 계산합니다.",
            ),
            Code(ops.linear, "rows", "y"),
        ),
    ),
    backward=(
        Step(
            "dx = dy W",
            Text(
                "x_te reached every feature f, by W_fe.",
                "x_te는 W_fe를 거쳐 모든 특징 f에 쓰였습니다.",
            ),
            Code(ops.linear_backward, "dx"),
        ),
        Step(
            "dW = dyᵀ x",
            Text("W_fe was used by every row t.", "W_fe는 모든 행 t에서 쓰였습니다."),
            Code(ops.linear_backward, "dweight"),
        ),
        Step(
            "db = Σ_t dy_t",
            Text("So was b.", "b도 마찬가지입니다."),
            Code(ops.linear_backward, "dbias"),
        ),
    ),
    edges=(
        Edge(
            Text("No rows: dW is 0.", "행이 없으면 dW는 0입니다."),
            "ops.linear_backward(np.ones((0, 2)), ops.linear(np.ones((0, 3)), np.ones((2, "
            "3)))[1])[1]",
        ),
    ),
    checks=(
        gradients_of(ops.linear, ops.linear_backward, [normal(2, 5, 3), normal(7, 3), normal(7)]),
    ),
    related=("embedding",),
)

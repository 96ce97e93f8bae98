"""Scaled dot-product attention."""

from __future__ import annotations

from pellucid import ops
from pellucid.apps.teach.topic import Code, Edge, Step, Topic, gradients_of
from pellucid.check.op_cases import normal
from pellucid.core.language import Text

TOPIC = Topic(
    title=Text("Scaled dot-product attention", "스케일드 닷 프로덕트 어텐션"),
    summary=Text(
        "Each query is compared with every key. The softmax of the scores says how much of each "
        "value goes into the query's output.",
        "쿼리마다 모든 키와 내적해 점수를 구합니다. 점수에 softmax를 취한 값이 각 value를 얼마나 "
        "섞을지 정합니다.",
    ),
    equations=("Z = softmax(Q Kᵀ / √D) V",),
    source="Vaswani et al. 2017, section 3.2.1",
    articles=("000", "001", "003", "004"),
    forward=(
        Step(
            "A = s · Q Kᵀ,  s = 1 / √D",
            Text(
                "Score of query l and key s: their dot product, scaled so that its standard "
                "deviation is 1 when the entries of q and k have mean 0 and variance 1.",
                "쿼리 l과 키 s의 점수는 두 벡터의 내적입니다. q와 k의 원소가 평균 0, 분산 1이면 "
                "스케일링한 점수의 표준편차는 1이 됩니다.",
            ),
            Code(ops.attention, "scale", "a"),
        ),
        Step(
            "P = softmax(A),  W = dropout(P)",
            Text(
                "Each row of P sums to 1 over the keys. Dropout acts on the weights.",
                "P의 각 행은 키 방향으로 합이 1입니다. 드롭아웃은 이 가중치에 적용합니다.",
            ),
            Code(ops.attention, "probabilities", "weights"),
        ),
        Step(
            "Z = W V",
            Text("The weighted sum of the values.", "value의 가중합입니다."),
            Code(ops.attention, "out"),
        ),
    ),
    backward=(
        Step(
            "dV = Wᵀ dZ,  dW = dZ Vᵀ",
            Text(
                "Z_lj = Σ_s W_ls V_sj. Value s was used by every query l with weight W_ls, and "
                "weight W_ls multiplied the whole row V_s.",
                "Z_lj = Σ_s W_ls V_sj입니다. value s는 모든 쿼리 l이 W_ls만큼 사용했고, W_ls는 "
                "V_s의 행 전체에 곱해졌으므로 두 기울기가 이렇게 나옵니다.",
            ),
            Code(ops.attention_backward, "dv", "dw"),
        ),
        Step(
            "dA = P ⊙ (dP − Σ_s dP ⊙ P)",
            Text(
                "Softmax's derivative, row by row (see: pellucid explain softmax). The row sum is "
                "there because raising one score lowers all other weights.",
                "softmax의 미분을 행마다 적용합니다(pellucid explain softmax 참고). 한 점수가 "
                "오르면 나머지 가중치가 모두 내려가기 때문에 행의 합을 뺍니다.",
            ),
            Code(ops.attention_backward, "dp", "da"),
        ),
        Step(
            "dQ = s · dA K,  dK = s · dAᵀ Q",
            Text(
                "A_ls = s q_l·k_s: the derivative by q_l is s k_s, summed over the keys; the one "
                "by k_s is s q_l, summed over the queries. Hence the transpose.",
                "A_ls = s q_l·k_s를 q_l로 미분하면 s k_s이고 키 방향으로 더합니다. k_s로 미분하면 "
                "s q_l이고 쿼리 방향으로 더하므로 dA를 전치합니다.",
            ),
            Code(ops.attention_backward, "dq", "dk"),
        ),
    ),
    edges=(
        Edge(
            Text(
                "A query with every key forbidden gets 0, not NaN, and its gradient is 0.",
                "볼 수 있는 키가 하나도 없는 쿼리의 출력은 NaN이 아니라 0이고, 기울기도 0입니다.",
            ),
            "ops.attention(np.ones((1, 2)), np.ones((3, 2)), np.ones((3, 2)), "
            "mask=np.ones((1, 3), bool))[0]",
        ),
        Edge(
            Text(
                "One key: its weight is 1 for any score.",
                "키가 하나뿐이면 점수와 상관없이 가중치는 1입니다.",
            ),
            "ops.attention(np.full((1, 2), 9.0), np.ones((1, 2)), np.full((1, 2), 7.0))[0]",
        ),
    ),
    checks=(
        gradients_of(
            ops.attention,
            ops.attention_backward,
            [normal(2, 5, 3), normal(2, 7, 3), normal(2, 7, 4)],
        ),
    ),
    related=("softmax", "scaling", "masks"),
)

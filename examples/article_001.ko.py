# %% [markdown]
# # 글 001: 검색에서 어텐션까지
#
# 한 행을 돌려주는 검색에서 시작해, 모든 행을 섞어 돌려주는 어텐션으로 갑니다. 이어서 한국어 문장의
# 점수 맵, 마스크, 위치, 그리고 학습한 모델의 헤드가 하는 일을 봅니다. "Attention과 Transformer
# 이해하기"를 따랐습니다. 글쓴이에게 감사드립니다.

# %%
"""글 001: 검색, 어텐션, 점수 맵, 마스크, 위치, 헤드."""

from time import perf_counter

import numpy as np

from lesson import TASKS, Lesson, known_answers, score_map
from pellucid import nn, ops
from pellucid.apps.teach import pictures
from pellucid.apps.view import attention

lesson = Lesson(__doc__, "ko")
draws = np.random.default_rng(0)

# %% [markdown]
# ## 순환: 토큰을 하나씩
# 어텐션 이전의 방법입니다. y_i = tanh(x_i W_x + y_{i−1} W_h)이고 역전파는 손으로 구했습니다.
# 스텝마다 앞 스텝을 기다려야 하고, 마지막 출력의 기울기는 토큰마다 W_h와 tanh를 하나씩 거슬러
# 올라갑니다. 어텐션은 모든 토큰에 한 번에 닿습니다. 어떤 토큰에 도달하는 기울기는 마지막 출력이
# 그 토큰에서 얼마나 배울 수 있는지를 나타냅니다.

# %%
width, length = 64, 256
w_x, w_h, *w_qkv = draws.standard_normal((5, width, width)) / np.sqrt(width)


def recurrent(tokens):
    """토큰마다 y_i = tanh(x_i W_x + y_{i-1} W_h)를 반환한다."""
    outputs, y = [], np.zeros(width)
    for token in tokens:
        y = np.tanh(token @ w_x + y @ w_h)
        outputs.append(y)
    return np.array(outputs)


def recurrent_backward(dlast, outputs):
    """마지막 출력의 기울기에서 모든 토큰의 기울기를 구해 반환한다."""
    dx, dy = [], dlast
    for y in outputs[::-1]:
        da = dy * (1 - y**2)
        dx.append(da @ w_x.T)
        dy = da @ w_h.T
    return np.array(dx[::-1])


tokens, dlast = draws.standard_normal((length, width)), draws.standard_normal(width)
dx = {"rnn": recurrent_backward(dlast, recurrent(tokens))}
direction = draws.standard_normal(tokens.shape)
ends = [recurrent(tokens + h * direction)[-1] for h in (1e-5, -1e-5)]
by_differences = float((ends[0] - ends[1]) @ dlast / 2e-5)
print(f"순환 dx: 손으로 {(dx['rnn'] * direction).sum():+.6f}, 유한 차분 {by_differences:+.6f}")

out, saved = ops.attention(*(tokens @ w for w in w_qkv))
dout = np.zeros_like(out)
dout[-1] = dlast
grads = ops.attention_backward(dout, saved)
dx["attention"] = sum(grad @ w.T for grad, w in zip(grads, w_qkv, strict=True))
print("\n거리       순환       어텐션      (토큰의 기울기, 학습 전)")
for distance in (1, 10, 50, 100, 200):
    near = slice(length - 1 - distance, length - distance)
    sizes = [np.linalg.norm(gradient[near]) for gradient in dx.values()]
    print(f"{distance:<10} {sizes[0]:<10.1e} {sizes[1]:.1e}")
print("\n토큰     스텝: 순환   어텐션       이 컴퓨터에서 걸린 초: 순환, 어텐션")
for length in (64, 256, 1024):
    tokens, spent = draws.standard_normal((length, width)), []
    for run in (recurrent, lambda x: ops.attention(*(x @ w for w in w_qkv))):
        began = perf_counter()
        run(tokens)
        spent.append(perf_counter() - began)
    print(f"{length:<8} {length:<12} 1            {spent[0]:.4f} {spent[1]:.4f}")

# %% [markdown]
# 잊어버린다는 글의 설명은 맞습니다. 거리가 100이면 이 순환을 거쳐서는 아무것도 도달하지
# 않습니다(LSTM의 cell은 덜 잊습니다). 빠르다는 말에는 설명이 더 필요합니다. 어텐션은 순환이
# n스텝에 하는 일을 한 스텝에 하므로 프로세서가 많으면 유리합니다. 하지만 점수를 n²개 계산하므로,
# 글이 길면 프로세서 하나로는 느려집니다. 그리고 이것은 모두 읽기의 이야기입니다. 쓰기는 어느
# 쪽이든 토큰을 하나씩 씁니다(`pellucid explain generation`).

# %% [markdown]
# ## 깊이로 재면: 왜 x + f(x)인가
# 글은 잔차 연결을, 덜 잊도록 RNN에 더한 셀에 비유합니다. 같은 것을 토큰 대신 층으로 재어 봅니다.
# f는 피드포워드 네트워크이고 여러 개를 이었으며, 역전파는 손으로 구했습니다. f(x)에서는 기울기가
# 모든 행렬을 지나야 하지만, x + f(x)에서는 비켜 가는 길도 있습니다. 깊을수록 기울기가 커지는 것은
# 정규화가 필요한 또 하나의 이유입니다.


# %%
def arriving(depth, residual):
    """피드포워드 층들을 지나서 도착하는 기울기의 비율을 반환한다. 1.0이면 그대로다."""
    own = np.random.default_rng(1)
    x, layers = own.standard_normal((16, 64)), []
    for _ in range(depth):
        w1, w2 = own.standard_normal((2, 256, 64)) / np.sqrt(160)  # Xavier
        hidden = np.maximum(x @ w1.T, 0)
        layers.append((w1, w2, hidden))
        x = residual * x + hidden @ w2
    first = dy = own.standard_normal(x.shape)
    for w1, w2, hidden in layers[::-1]:
        dy = residual * dy + ((dy @ w2.T) * (hidden > 0)) @ w1
    return np.linalg.norm(dy) / np.linalg.norm(first)


print("\n층      f(x)       x + f(x)   (x에 도착하는 기울기)")
for depth in (1, 6, 12, 24):
    print(f"{depth:<8} {arriving(depth, 0):<10.1e} {arriving(depth, 1):.1e}")

# %% [markdown]
# ## 찾아보기: 쿼리 하나에 답 하나
# 글의 동영상 데이터베이스입니다. 제목은 무엇에 관한 것인지로 나타냅니다. 쿼리 "dog videos"를 모든
# 제목과 비교해서 가장 잘 맞는 것의 주소를 돌려줍니다.

# %%
topics = ("dog", "travel", "video")
titles = {
    "My dog is happy!": ([1.0, 0.0, 0.2], "www.youtube.com/my_dog_is_happy"),
    "VLOG in Zürich": ([0.0, 1.0, 0.8], "www.youtube.com/VLOG_in_zurich"),
}
query = np.array([1.0, 0.0, 0.5])  # "dog videos"
keys = np.array([about for about, _ in titles.values()])
scores = keys @ query
best = list(titles)[int(scores.argmax())]
print("점수", dict(zip(titles, scores.round(2).tolist(), strict=True)))
print("검색 결과:", titles[best][1])

# %% [markdown]
# ## 어텐션: 같은 일을 부드럽게
# softmax가 점수를 가중치로 바꿉니다. 점수가 클수록 하나만 고르는 검색에 가까워져서, 점수 × 20이면
# 한 행만 돌려줍니다. 검색과 달리 미분할 수 있습니다.

# %%
values = np.eye(2)  # i행의 뜻: 제목 i의 주소
for sharpness in (1.0, 5.0, 20.0):
    mixed, _ = ops.attention(query[None], keys, values, scale=sharpness)
    print(f"점수 × {sharpness:<4}: (강아지, Zürich)의 {mixed[0].round(3)}")

# %% [markdown]
# ## 이중 반복문과 행렬
# 글은 모든 쌍의 점수를 먼저 이중 반복문으로, 다음에 `Q Kᵀ`로 구합니다. 두 결과는 같은 수입니다.

# %%
x, w_q, w_k = draws.standard_normal((6, 8)), *draws.standard_normal((2, 8, 8))
score = [[0.0] * 6 for _ in range(6)]
for i in range(6):  # x_i가 쿼리
    for j in range(6):  # x_j가 키
        score[i][j] = float((x[i] @ w_q) @ (x[j] @ w_k))
as_product = (x @ w_q) @ (x @ w_k).T
print(f"\n반복문과 행렬 곱의 최대 차이: {np.abs(score - as_product).max():.1e}")

# %% [markdown]
# ## 마스크를 채우면
# 디코더의 쿼리 l은 키 0부터 l까지 볼 수 있습니다. 금지된 점수는 −inf가 되므로 가중치가 0입니다.

# %%
print("\n" + nn.explain_mask(4, is_causal=True))
weights, _ = ops.softmax(np.where(ops.causal_mask(4, 4), -np.inf, as_product[:4, :4] / np.sqrt(8)))
print(weights.round(2))

# %% [markdown]
# ## 위치
# 글은 위치 인코딩을 다음으로 미룹니다. 사인과 코사인의 표에는 쓸모 있는 성질이 있습니다. k만큼
# 옮기는 것이 어디서나 같은 회전이므로, 두 위치의 내적은 거리에만 의존합니다. 유도는 `pellucid
# explain positions`에 있습니다.

# %%
table = ops.sinusoidal(60, 64)
for start in (0, 20, 40):
    print(f"P[{start}]·P[{start + 5}] = {table[start] @ table[start + 5]:.6f}")
lesson.show("positions", pictures.positions)

# %% [markdown]
# ## 문장의 점수 맵
# 학습한 챗봇이 한국어 문장을 읽습니다. 행은 쿼리이고, 진한 칸이 그 쿼리가 가장 많이 가져오는
# 키입니다. 인코더의 헤드 하나와, 답을 질문에 연결하는 헤드 하나를 그립니다.

# %%
chatbot = lesson.chatbot()
record = attention(chatbot, "너는 자랑하고 있어").record
print("\n" + record.title)
names = {"encoder": "인코더의 셀프 어텐션", "cross": "크로스 어텐션"}
for kind in names:
    seen = record.layers(kind)[-1]
    head = int(seen.entropies.argmin())
    labels = ([t.text for t in record.queries(kind)], [t.text for t in record.keys(kind)])
    title = f"{names[kind]}, 층 {seen.layer}, 헤드 {head + 1}"
    lesson.show(f"scores-{kind}", score_map, seen.probabilities[head], *labels, title)
    for row, label in zip(seen.probabilities[head], labels[0], strict=True):
        most = labels[1][int(row.argmax())]
        print(f"  {kind:<8} {label:<8} 가장 많이 보는 토큰: {most} ({row.max():.2f})")

# %% [markdown]
# ## 헤드는 무엇을 전문으로 하는가
# 헤드마다 W가 따로 있으므로 헤드들은 서로 다릅니다. 여러 문장에서 셀프 어텐션의 헤드마다 세 가지
# 수를 구합니다. 몇 개의 키에 퍼져 있는지(e^엔트로피), 그리고 토큰 자신과 바로 앞 토큰에
# 가는 가중치입니다. 모든 키를 똑같이 보는 헤드라면 각각 1 / 키의 개수, 여기서는 약 0.3이 됩니다.

# %%
sentences = ("너는 자랑하고 있어", "가십을 말해줘.", "AI가 뭐지?", "주식 시장", "너는 최악이야")
records = [attention(chatbot, sentence).record for sentence in sentences]
print(f"\n{'layer':<28} 헤드  퍼져 있는 키      자신    앞 토큰")
for index, name in enumerate(layer.name for layer in records[0].maps):
    if name.endswith("multihead_attn"):
        continue
    maps = [record.maps[index] for record in records]
    for head in range(maps[0].probabilities.shape[0]):
        grids = [m.probabilities[head] for m in maps]
        spread = np.mean([np.exp(m.entropies[head]) for m in maps])
        itself = np.mean([np.trace(grid) / len(grid) for grid in grids])
        before = np.mean([np.trace(grid, -1) / max(len(grid) - 1, 1) for grid in grids])
        print(f"{name:<28} {head + 1:<5} {spread:<17.1f} {itself:<7.2f} {before:.2f}")

# %% [markdown]
# ## 정답을 아는 헤드
# 헤드는 무엇을 보아야 할까요? 한국어 문장에서는 아무도 모릅니다. 글자를 그대로 쓰거나, 거꾸로
# 쓰거나, 정렬하는 과제라면 압니다. 다음 글자를 쓰려면 원문에서 *그* 글자의 자리를 보아야 합니다.
# 그래서 크로스 어텐션의 헤드마다 맞는 자리에 준 가중치의 평균을 점수로 매길 수 있습니다. 작은
# 모델이 과제마다 몇 초 만에 배우며, 어디를 보아야 하는지는 아무도 알려 주지 않습니다. 괄호가 가장
# 어렵습니다. A B ) ) C )처럼 겹친 원문에 B A C, 곧 )마다 무엇을 닫는지 답합니다.
#
# 네 헤드가 모두 그 자리를 찾는데, 네 헤드가 다 같은 자리를 찾습니다. 필요한 관계가 하나뿐인
# 과제라 헤드끼리 나눌 일이 없기 때문입니다. 헤드가 서로 *다를 수* 있다는 것은 위의 표가 보여
# 줍니다. 글이 상상하는 것처럼 동의어와 품사를 나누어 맡는지는 여기서 알 수 없습니다.

# %%
print("\n과제      맞은 토큰     맞는 자리의 가중치, 헤드 1~4             고르게 보면")
for task in TASKS:
    right, scores, equal = known_answers(task, lesson.steps)
    shown = "  ".join(f"{score:.2f}" for score in scores)
    print(f"{task:<9} {right:<13.0%} {shown:<38}  {equal:.2f}")

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
# 올라갑니다. 사이에 있는 토큰 수만큼 행렬을 곱하는 셈입니다. 어텐션은 모든 토큰에 한 번에
# 닿습니다. 어떤 토큰에 도달하는 기울기는 마지막 출력이 그 토큰에서 얼마나 배울 수 있는지를
# 나타냅니다.
#
# 초기화 하나만 보면 그 초기화밖에 알 수 없습니다. 그래서 순환을 네 가지로 초기화하고, 역시 손으로
# 미분한 LSTM을 나란히 둡니다. LSTM의 셀은 기울기를 망각 게이트 f만 거쳐 전달합니다.

# %%
width, length, distances = 64, 256, (10, 100, 200)
seeds = (0, 1)


def sigmoid(a):
    """1 / (1 + exp(-a))를 반환한다."""
    return 0.5 * (1 + np.tanh(0.5 * a))


def recurrent(tokens, w_x, w_h):
    """y_i = tanh(x_i W_x + y_{i-1} W_h)의 마지막 y와 backward를 반환한다."""
    ys, y = [], np.zeros(width)
    for x in tokens:
        y = np.tanh(x @ w_x + y @ w_h)
        ys.append(y)

    def backward(dlast):
        dx, dy = [], dlast
        for y in ys[::-1]:
            da = dy * (1 - y**2)
            dx.append(da @ w_x.T)
            dy = da @ w_h.T
        return np.array(dx[::-1])

    return y, backward


def lstm(tokens, w_x, w_h, bias):
    """LSTM(셀은 c = f c + i g)의 마지막 y와 backward를 반환한다."""
    steps, y, c = [], np.zeros(width), np.zeros(width)
    for x in tokens:
        i, f, o, g = np.split(x @ w_x + y @ w_h, 4)
        i, f, o, g = sigmoid(i), sigmoid(f + bias), sigmoid(o), np.tanh(g)
        before, c = c, f * c + i * g
        y = o * np.tanh(c)
        steps.append((i, f, o, g, before, np.tanh(c)))

    def backward(dlast):
        dx, dy, dc = [], dlast, np.zeros(width)
        for i, f, o, g, before, t in steps[::-1]:
            dc = dc + dy * o * (1 - t**2)
            di, df, do = dc * g * i * (1 - i), dc * before * f * (1 - f), dy * t * o * (1 - o)
            da = np.concatenate([di, df, do, dc * i * (1 - g**2)])
            dx.append(da @ w_x.T)
            dy, dc = da @ w_h.T, dc * f
        return np.array(dx[::-1])

    return y, backward


def attended(tokens, w_q, w_k, w_v):
    """셀프 어텐션의 마지막 출력과 backward를 반환한다."""
    out, saved = ops.attention(tokens @ w_q, tokens @ w_k, tokens @ w_v)

    def backward(dlast):
        dout = np.zeros_like(out)
        dout[-1] = dlast
        dq, dk, dv = ops.attention_backward(dout, saved)
        return dq @ w_q.T + dk @ w_k.T + dv @ w_v.T

    return out[-1], backward


def readers(draws):
    """토큰 256개를 읽는 방법을 이름마다 반환한다. 함수와 인자다."""
    tokens = draws.standard_normal((length, width))
    w_x, w_h, *w_qkv = draws.standard_normal((5, width, width)) / np.sqrt(width)
    w_4x, w_4h = draws.standard_normal((2, width, 4 * width)) / np.sqrt(width)
    turn, _ = np.linalg.qr(w_h)
    return {
        "순환: 입력 × 1, W_h 정규 분포": (recurrent, tokens, w_x, w_h),
        "순환: × 0.1, 직교 행렬 / 2": (recurrent, 0.1 * tokens, w_x, 0.5 * turn),
        "순환: × 0.03, 직교 행렬": (recurrent, 0.03 * tokens, w_x, turn),
        "순환: × 0.1, 정규 분포 × 1.5": (recurrent, 0.1 * tokens, w_x, 1.5 * w_h),
        "LSTM: 망각 게이트 바이어스 0": (lstm, tokens, w_4x, w_4h, 0.0),
        "LSTM: 망각 게이트 바이어스 3": (lstm, tokens, w_4x, w_4h, 3.0),
        "어텐션: 입력 × 1": (attended, tokens, *w_qkv),
        "어텐션: 입력 × 0.03": (attended, 0.03 * tokens, *w_qkv),
    }


direction, dlast = draws.standard_normal((length, width)), draws.standard_normal(width)
for read, tokens, *w in (
    readers(draws)[name]
    for name in ("순환: 입력 × 1, W_h 정규 분포", "LSTM: 망각 게이트 바이어스 3")
):
    by_hand = float((read(tokens, *w)[1](dlast) * direction).sum())
    ends = [read(tokens + h * direction, *w)[0] @ dlast for h in (1e-5, -1e-5)]
    print(f"{read.__name__} dx: 손으로 {by_hand:+.6f}, 유한 차분 {(ends[0] - ends[1]) / 2e-5:+.6f}")

print("\n토큰의 기울기, 학습 전. 시드 0과 1, 각각 거리 10, 100, 200")
for name in readers(draws):
    found = []
    for seed in seeds:
        read, tokens, *w = readers(np.random.default_rng(seed))[name]
        dx = read(tokens, *w)[1](dlast)
        found += [f"{np.linalg.norm(dx[length - 1 - distance]):<8.0e}" for distance in distances]
    print(f"{name:<34}", *found)

print("\n토큰     스텝: 순환   어텐션       이 컴퓨터에서 걸린 초: 순환, 어텐션")
for length in (64, 256, 1024):
    spent = []
    for name in ("순환: 입력 × 1, W_h 정규 분포", "어텐션: 입력 × 1"):
        read, tokens, *w = readers(draws)[name]
        began = perf_counter()
        read(tokens, *w)
        spent.append(perf_counter() - began)
    print(f"{length:<8} {length:<12} 1            {spent[0]:.4f} {spent[1]:.4f}")

# %% [markdown]
# 그러므로 순환이 반드시 잊는 것은 아닙니다. n개를 곱한 값은 각각이 1보다 작으면(포화된 tanh, 작은
# W_h) 사라지고, 1보다 크면 커지며, 1에 가까우면 그대로 도달합니다. 입력이 작고 W_h가 직교 행렬이면
# 순환도 거리 100에서 어텐션보다 많이 전달합니다. 다만 조심해서 정해야 하고, 학습하면 달라집니다.
# LSTM의 게이트는 이 배율을 배우기 쉽게 합니다. 바이어스가 3이면 f가 0.95에 가까워 거리와 거의
# 상관없이 도달하고, 바이어스가 0이면 f가 0.5에 가까워 첫째 순환만큼 잊습니다. 어텐션에는 이런
# 곱이 없어 조심할 것도 없습니다. 입력의 크기가 어떻든 거리 200에도 거리 10과 비슷하게 도달합니다.
#
# 빠르다는 말에는 설명이 더 필요합니다. 어텐션은 순환이 n스텝에 하는 일을 한 스텝에 하므로
# 프로세서가 많으면 유리합니다. 하지만 점수를 n²개 계산하므로, 문장이 길면 프로세서 하나로는
# 느려집니다. 그리고 이것은 모두 읽기의 이야기입니다. 쓰기는 어느 쪽이든 토큰을 하나씩
# 씁니다(`pellucid explain generation`).

# %% [markdown]
# ## 깊이로 재면: 왜 x + f(x)이고, 왜 정규화인가
# 글은 잔차 연결을, 덜 잊도록 RNN에 더한 셀에 비유합니다. 같은 것을 토큰 대신 레이어로 재어 봅니다.
# f는 피드포워드 네트워크이고 여러 개를 이었으며, 역전파는 손으로 구했습니다. 여기서도 곱이므로
# 초기화 하나로는 오해하기 쉽습니다. 그래서 f를 ReLU에 맞는 He 초기화의 크기, 그 절반, 그 두 배로
# 둡니다.


# %%
def arriving(depth, way, size, seed):
    """피드포워드 레이어들을 지나서 도착하는 기울기의 비율을 반환한다. 1.0이면 그대로다."""
    own = np.random.default_rng(seed)
    x, layers = own.standard_normal((16, 64)), []
    for _ in range(depth):
        w1 = own.standard_normal((256, 64)) * np.sqrt(2 / 64)  # He
        w2 = own.standard_normal((256, 64)) * np.sqrt(1 / 256) * size
        hidden, saved = np.maximum(x @ w1.T, 0), None
        x = (way != "f(x)") * x + hidden @ w2
        if way == "LayerNorm(x + f(x))":
            x, saved = ops.layer_norm(x)
        layers.append((w1, w2, hidden, saved))
    first = dy = own.standard_normal(x.shape)
    for w1, w2, hidden, saved in layers[::-1]:
        if saved is not None:
            dy, _, _ = ops.layer_norm_backward(dy, saved)
        dy = (way != "f(x)") * dy + ((dy @ w2.T) * (hidden > 0)) @ w1
    return np.linalg.norm(dy) / np.linalg.norm(first)


print("\nx에 도착하는 기울기. 시드 1과 2, 각각 레이어 6개와 24개 뒤")
for way in ("f(x)", "x + f(x)", "LayerNorm(x + f(x))"):
    for size in (0.5, 1.0, 2.0):
        found = [f"{arriving(n, way, size, s):<8.0e}" for s in (1, 2) for n in (6, 24)]
        print(f"{way:<20} f × {size:<6}", *found)

# %% [markdown]
# f(x)에서는 크기가 모든 것을 정합니다. 절반이면 아무것도 도달하지 않고, 두 배면 폭발하며, 그 사이의
# He 초기화가 맞습니다. (Xavier는 ReLU에서 분산을 절반으로 줄이므로 절반과 같습니다.) x + f(x)에서는
# 크기가 어떻든 사라지지 않습니다. 기울기가 레이어를 비켜 가는 길도 있기 때문입니다. 하지만 깊을수록
# 커지고, f가 가장 크면 1e+08을 넘습니다. 글의 레이어처럼 Add & Norm을 함께 쓰면 모든 경우에 1에
# 가깝습니다. 둘은 이것을 위해 있습니다.

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
    title = f"{names[kind]}, 레이어 {seen.layer}, 헤드 {head + 1}"
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

"""NumPy만으로 파일 하나에 쓴 트랜스포머. 영어로 쓴 수를 한국어로 번역하는 법을 학습합니다.

    four hundred fifty six thousand seven hundred eighty eight → 사십오만육천칠백팔십팔

영어는 천(thousand)씩, 한국어는 만씩 끊어 세므로 단어를 하나씩 옮겨서는 안 됩니다. "four hundred
fifty six thousand"는 사십오만(45 × 10,000)과 육천(6 × 1,000)입니다. 코어 하나로 30초쯤 학습합니다.
`python examples/transformer.ko.py`로 실행하고, 뒤에 번역할 수를 적어도 됩니다.

위에서 아래로 읽으세요. 자동 미분은 쓰지 않습니다. 모든 함수는 결과와 함께, 손으로 유도한 함수
`backward`를 반환합니다. backward는 같은 단계를 거꾸로 밟으며, 결과에 대한 손실의 기울기(dy)를 받아
각 입력의 기울기(dx)를 반환합니다. 파라미터(p)가 있으면 그 기울기(g)를 같은 이름으로 함께
반환합니다. 형상의 기호는 N 문장 수, S 입력 토큰 수, L 출력 토큰 수, E 모델의 차원, H 헤드 수,
D = E / H, F 피드포워드 네트워크 안쪽의 차원입니다.
"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # 이렇게 작은 행렬은 스레드를 늘려도 빨라지지 않는다
import numpy as np

N, E, H, F, LAYERS, STEPS = 64, 64, 4, 128, 2, 500


# ---- 선형 레이어: backward가 가장 짧은 함수
def linear(p, x):
    """모든 토큰에 X W + b: (N, L, in)에서 (N, L, out)으로."""

    def backward(dy):  # 모든 토큰이 W와 b를 함께 쓰므로 기울기를 토큰에 대해 더한다
        g = {"W": np.tensordot(x, dy, axes=((0, 1), (0, 1))), "b": dy.sum(axis=(0, 1))}
        return dy @ p["W"].T, g

    return x @ p["W"] + p["b"], backward


# ---- 어텐션: 글 000 "Scaled Dot-Product Attention", 글 004의 2.1
def softmax(a):
    """점수의 각 행을 합이 1인 양수 가중치로 바꾼다: exp(a) / Σ exp(a)."""
    e = np.exp(a - a.max(axis=-1, keepdims=True))  # 결과는 같고 exp가 넘치지 않는다
    w = e / e.sum(axis=-1, keepdims=True)

    def backward(dw):
        # 분모의 합 때문에 w마다 행 전체에 의존한다. w (1 − w)만이 아니라 diag(w) − w wᵀ다.
        return w * (dw - (dw * w).sum(axis=-1, keepdims=True))

    return w, backward


seen = {}  # 마지막으로 계산한 어텐션의 가중치. 순전파 뒤에는 마지막 레이어의 크로스 어텐션이다


def attention(q, k, v, masked):
    """softmax(Q Kᵀ / √D) V. q: (N, H, L, D), k와 v: (N, H, S, D), masked: True면 가린다."""
    scale = q.shape[-1] ** -0.5
    a = scale * (q @ k.swapaxes(-1, -2))  # 1. 점수 (N, H, L, S): 키가 쿼리에 맞는 정도
    w, softmax_backward = softmax(np.where(masked, -np.inf, a))  # 2. 가중치. exp(−∞) = 0
    z = w @ v  # 3. 값의 가중 평균
    seen["weights"] = w

    def backward(dz):
        dv = w.swapaxes(-1, -2) @ dz  # 3. 값마다 그 값을 쓴 모든 쿼리에 대해 더한다
        dw = dz @ v.swapaxes(-1, -2)
        da = softmax_backward(dw)  # 2. 가린 곳은 w가 0이라 여기도 0
        return scale * (da @ k), scale * (da.swapaxes(-1, -2) @ q), dv  # 1. dq, dk

    return z, backward


# ---- 멀티 헤드 어텐션: 글 000 "MultiHead Attention", 글 001, 글 004의 2.2와 3
def split(x):
    """(N, L, E)를 (N, H, L, D)로: 헤드마다 모든 토큰의 특성 E개 가운데 D개를 받는다."""
    return x.reshape(*x.shape[:2], H, -1).swapaxes(1, 2)


def join(x):
    """(N, H, L, D)를 (N, L, E)로: split의 역이므로 서로가 서로의 backward다."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def multi_head(p, x, memory, masked):
    """Concat(head₁, …, head_H) Wᴼ. 쿼리는 x, 키와 값은 memory에서 온다(memory가 x여도 된다)."""
    q, q_backward = linear(p["q"], x)
    k, k_backward = linear(p["k"], memory)
    v, v_backward = linear(p["v"], memory)
    z, attention_backward = attention(split(q), split(k), split(v), masked)
    y, out_backward = linear(p["out"], join(z))

    def backward(dy):
        g = {}
        dz, g["out"] = out_backward(dy)
        dq, dk, dv = attention_backward(split(dz))
        dx, g["q"] = q_backward(join(dq))
        dkeys, g["k"] = k_backward(join(dk))
        dvalues, g["v"] = v_backward(join(dv))
        return dx, dkeys, dvalues, g

    return y, backward


# ---- 레이어 정규화: 글 000 "LayerNorm"
def layer_norm(p, x):
    """γ x̂ + β. x̂ = (x − μ) / √(σ² + ε)은 행마다 평균 0, 분산 1이다."""
    centred = x - x.mean(axis=-1, keepdims=True)  # 1. μ
    std = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)  # 2. σ²
    x_hat = centred / std  # 3.
    y = p["gamma"] * x_hat + p["beta"]  # 4.

    def backward(dy):
        g = {"gamma": (dy * x_hat).sum(axis=(0, 1)), "beta": dy.sum(axis=(0, 1))}  # 4.
        dx_hat = dy * p["gamma"]
        # 3, 2, 1. σ²과 μ는 행 전체에 의존하므로, 각 x의 기울기에 행의 평균이 더 들어온다.
        through_variance = x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        through_mean = dx_hat.mean(axis=-1, keepdims=True)
        return (dx_hat - through_variance - through_mean) / std, g

    return y, backward


# ---- 피드포워드 네트워크: 글 000 "GELU", 글 004의 2.3
def gelu(x):
    """½ x (1 + tanh u). 여기서 u = √(2/π) (x + 0.044715 x³)."""
    t = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))

    def backward(dy):
        du_dx = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du_dx)  # tanh′ = 1 − tanh²

    return 0.5 * x * (1 + t), backward


def feed_forward(p, x):
    """gelu(X W₁ + b₁) W₂ + b₂를 토큰마다 따로 계산한다."""
    h, first_backward = linear(p["first"], x)
    a, gelu_backward = gelu(h)
    y, second_backward = linear(p["second"], a)

    def backward(dy):
        da, g_second = second_backward(dy)
        dx, g_first = first_backward(gelu_backward(da))
        return dx, {"first": g_first, "second": g_second}

    return y, backward


# ---- 임베딩과 위치: 글 003 "Embedding Vector Scaling"
def embed(table, ids):
    """√E · table[ids]에 위치의 사인과 코사인을 더한다: ids (N, L)에서 (N, L, E)로."""
    angles = np.arange(ids.shape[1])[:, None] / 10000 ** (np.arange(0, E, 2) / E)
    positions = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(-1, E)
    x = E**0.5 * table[ids] + positions.astype(table.dtype)

    def backward(dx):
        g = np.zeros_like(table)
        np.add.at(g, ids, E**0.5 * dx)  # 두 번 나온 토큰은 두 기울기를 모두 받는다
        return g

    return x, backward


# ---- 레이어: 글 001 "Transformer Block", 글 002의 3과 4
def encoder_layer(p, x, padding):
    """z = LayerNorm(x + attention(x)), y = LayerNorm(z + feed_forward(z))를 계산한다."""
    a, attention_backward = multi_head(p["attention"], x, x, padding)
    z, norm_1_backward = layer_norm(p["norm_1"], x + a)
    f, ffn_backward = feed_forward(p["ffn"], z)
    y, norm_2_backward = layer_norm(p["norm_2"], z + f)

    def backward(dy):
        g = {}
        dsum, g["norm_2"] = norm_2_backward(dy)  # 합의 기울기는 두 항에 그대로 전해진다
        dz, g["ffn"] = ffn_backward(dsum)
        dsum, g["norm_1"] = norm_1_backward(dsum + dz)
        dx, dkeys, dvalues, g["attention"] = attention_backward(dsum)
        return dsum + dx + dkeys + dvalues, g  # x는 잔차, 쿼리, 키와 값으로 쓰였다

    return y, backward


def decoder_layer(p, x, memory, future, padding):
    """인코더 레이어와 같되, 뒤의 토큰을 보지 못하고 중간에 memory에 대한 어텐션이 있다."""
    a, self_backward = multi_head(p["self"], x, x, future)
    z, norm_1_backward = layer_norm(p["norm_1"], x + a)
    b, cross_backward = multi_head(p["cross"], z, memory, padding)
    c, norm_2_backward = layer_norm(p["norm_2"], z + b)
    f, ffn_backward = feed_forward(p["ffn"], c)
    y, norm_3_backward = layer_norm(p["norm_3"], c + f)

    def backward(dy):
        g = {}
        dsum, g["norm_3"] = norm_3_backward(dy)
        dc, g["ffn"] = ffn_backward(dsum)
        dsum, g["norm_2"] = norm_2_backward(dsum + dc)
        dz, dk, dv, g["cross"] = cross_backward(dsum)
        dsum, g["norm_1"] = norm_1_backward(dsum + dz)
        dx, dkeys, dvalues, g["self"] = self_backward(dsum)
        return dsum + dx + dkeys + dvalues, dk + dv, g  # memory는 키와 값으로 쓰였다

    return y, backward


# ---- 트랜스포머: 글 001 "Transformer", 글 002의 1과 2
def transformer(p, source, target):
    """다음 토큰의 점수 (N, L, V)를 어휘 V개에 매긴다. source: (N, S), target: (N, L)."""
    padding = (source == PAD)[:, None, None, :]
    future = np.triu(np.ones((target.shape[1], target.shape[1]), dtype=bool), 1)
    memory, source_backward = embed(p["source"], source)
    y, target_backward = embed(p["target"], target)
    encoder, decoder = {}, {}  # 각 레이어의 backward
    for n, layer in p["encoder"].items():
        memory, encoder[n] = encoder_layer(layer, memory, padding)
    for n, layer in p["decoder"].items():
        y, decoder[n] = decoder_layer(layer, y, memory, future, padding)
    scores, output_backward = linear(p["output"], y)

    def backward(dscores):
        g = {"encoder": {}, "decoder": {}}
        dy, g["output"] = output_backward(dscores)
        dmemory = 0
        for n in reversed(decoder):
            dy, dmemory_n, g["decoder"][n] = decoder[n](dy)
            dmemory = dmemory + dmemory_n  # 모든 디코더 레이어가 같은 memory를 읽는다
        for n in reversed(encoder):
            dmemory, g["encoder"][n] = encoder[n](dmemory)
        g["target"], g["source"] = target_backward(dy), source_backward(dmemory)
        return g

    return scores, backward


def loss_and_gradients(p, source, target, model=transformer):
    """패딩을 뺀 −log p(다음 토큰)의 평균과 그 기울기(g)를 반환한다."""
    scores, backward = model(p, source, target[:, :-1])  # 앞의 토큰들로 ...
    following = target[:, 1:, None]  # ... 다음 토큰을 예측한다
    real = following != PAD
    one_hot = real & (following == np.arange(len(TARGET)))
    w, _ = softmax(scores)
    dscores = (real * w - one_hot) / int(real.sum())  # −log와 softmax를 합치면 w − one_hot
    return -np.log(w[one_hot]).mean(), backward(dscores)


# ---- 파라미터와 Adam
def initial(random, dtype=np.float32):
    """Xavier 초기 가중치를 딕셔너리에 담아 반환한다: p["encoder"][0]["ffn"]["first"]["W"]."""

    def affine(rows, columns):
        weight = random.uniform(-1, 1, (rows, columns)) * (6 / (rows + columns)) ** 0.5
        return {"W": weight.astype(dtype), "b": np.zeros(columns, dtype)}

    def layer(*attentions):
        p = {name: {part: affine(E, E) for part in ("q", "k", "v", "out")} for name in attentions}
        for n in range(len(attentions) + 1):
            p[f"norm_{n + 1}"] = {"gamma": np.ones(E, dtype), "beta": np.zeros(E, dtype)}
        return {**p, "ffn": {"first": affine(E, F), "second": affine(F, E)}}

    return {
        "source": random.normal(0, E**-0.5, (len(SOURCE), E)).astype(dtype),
        "target": random.normal(0, E**-0.5, (len(TARGET), E)).astype(dtype),
        "encoder": {n: layer("attention") for n in range(LAYERS)},
        "decoder": {n: layer("self", "cross") for n in range(LAYERS)},
        "output": affine(E, len(TARGET)),
    }


def arrays(tree):
    """중첩된 딕셔너리의 배열을 이름 순서대로 반환한다."""
    return [a for _, p in sorted(tree.items()) for a in (arrays(p) if isinstance(p, dict) else [p])]


def adam(p, g, m, v, step, rate):
    """기울기의 평균 m을 기울기의 평소 크기 √v로 나누어, 그 반대쪽으로 옮긴다."""
    for w, dw, mean, square in zip(arrays(p), arrays(g), m, v, strict=True):
        mean += 0.1 * (dw - mean)
        square += 0.01 * (dw**2 - square)  # 둘 다 0에서 시작하므로 다음 줄에서 보정한다
        w -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)


# ---- 과제: 두 언어로 쓴 1부터 999,999까지의 수
WORDS = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
    hundred thousand"""
ENGLISH = dict(zip([*range(1, 20), *range(20, 101, 10), 1000], WORDS.split(), strict=True))
KOREAN = dict(zip([*range(1, 11), 100, 1000, 10_000], "일이삼사오육칠팔구십백천만", strict=True))
SOURCE, TARGET = (["<pad>", "<begin>", "<end>", *each.values()] for each in (ENGLISH, KOREAN))
PAD, BEGIN, END = range(3)


def words(n, names):
    """수를 말로 쓴다: 들어가는 가장 큰 단위, 그 앞에 몇 번인지, 그 뒤에 나머지."""
    for size in reversed(names):
        if n >= size:
            counted = n >= 2 * size or names[size] in ("hundred", "thousand")  # 일백이 아니라 백
            count = words(n // size, names) if counted else []
            return [*count, names[size], *words(n % size, names)]
    return []


def batch(numbers):
    """수들의 토큰 번호를 가장 긴 것에 맞춰 패딩한다: 영어 (N, S), 한국어 (N, L)."""
    source = [[SOURCE.index(word) for word in words(n, ENGLISH)] for n in numbers]
    target = [[BEGIN, *map(TARGET.index, words(n, KOREAN)), END] for n in numbers]
    for side in (source, target):
        longest = max(map(len, side))
        yield np.array([ids + [PAD] * (longest - len(ids)) for ids in side])


# ---- 검산, 학습, 답
def check(random):
    """무작위 방향에 대한 손실의 기울기를, 손으로 유도한 것과 차분으로 구한 것을 출력한다."""
    p, (source, target) = initial(random, np.float64), batch([456_788, 60_000])
    direction = [random.standard_normal(w.shape) for w in arrays(p)]
    _, g = loss_and_gradients(p, source, target)
    slope, losses = sum(map(np.vdot, arrays(g), direction)), []
    for h in (1e-6, -2e-6):  # p + h d로, 거기서 다시 p − h d로
        for w, d in zip(arrays(p), direction, strict=True):
            w += h * d
        losses.append(loss_and_gradients(p, source, target)[0])
    print(f"기울기: 유도 {slope:.6f}, 차분 {(losses[0] - losses[1]) / 2e-6:.6f}")


def train(numbers, random):
    p = initial(random)
    m, v = ([np.zeros_like(w) for w in arrays(p)] for _ in range(2))
    for step in range(1, STEPS + 1):
        loss, g = loss_and_gradients(p, *batch(random.choice(numbers, N)))
        adam(p, g, m, v, step, 0.002 * min(step / 100, 1 - step / STEPS))  # 웜업, 그다음 감소
        if step % 50 == 0:
            print(f"스텝 {step}  손실 {loss:.4f}")
    return p


def answer(p, numbers, model=transformer):
    """탐욕 탐색: 모든 답이 끝날 때까지 확률이 가장 높은 토큰을 붙인다."""
    source, _ = batch(numbers)
    target = np.full((len(numbers), 1), BEGIN)
    while target.shape[1] < 16 and not (target == END).any(axis=1).all():
        scores, _ = model(p, source, target)
        target = np.hstack([target, scores[:, -1:].argmax(axis=-1)])
    return ["".join(TARGET[i] for i in ids[1:]).split("<end>")[0] for ids in target]


def look(p, n):
    """한국어 토큰이 각각 어디를 보았는지 출력한다. 마지막 크로스 어텐션이고 헤드의 평균이다."""
    source, target = batch([n])
    transformer(p, source, target[:, :-1])
    for token, row in zip(target[0, 1:], seen["weights"][0].mean(axis=0), strict=True):
        cells = (
            f"{'·░▒▓█'[int(4.99 * w)]}{SOURCE[i]}" for i, w in zip(source[0], row, strict=True)
        )
        print(f"{TARGET[token]}\t{' '.join(cells)}")


if __name__ == "__main__":
    shown = [int(number) for number in sys.argv[1:]] or [456_788, 60_000, 300_023, 73]
    assert set(shown) <= set(range(1, 1_000_000)), "1부터 999,999까지의 수를 주세요"
    check(np.random.default_rng(1))
    random = np.random.default_rng(0)
    digits = random.integers(1, 10, (40_000, 6)) * random.integers(0, 2, (40_000, 6))
    numbers = np.maximum(digits @ 10 ** np.arange(6), 1)  # 자릿수의 절반은 0이다
    p = train(numbers[numbers % 7 != 3], random)
    new = np.unique(numbers[numbers % 7 == 3])  # 일곱 가운데 하나는 학습에 쓰지 않는다
    right = sum("".join(words(n, KOREAN)) == a for n, a in zip(new, answer(p, new), strict=True))
    print(f"학습한 적 없는 수 {len(new)}개 가운데 {right}개를 맞혔습니다")
    for n, got in zip(shown, answer(p, shown), strict=True):
        mark = "✓" if got == "".join(words(n, KOREAN)) else "✗"
        print(f"{n:,}: {' '.join(words(n, ENGLISH))} → {got} {mark}")
    look(p, shown[0])

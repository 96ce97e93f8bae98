"""NumPy만으로 파일 하나에 쓴 트랜스포머. 영어로 쓴 수를 한국어로 옮기는 법을 배웁니다.

    four hundred fifty six thousand seven hundred eighty eight → 사십오만육천칠백팔십팔

영어는 천(thousand)씩, 한국어는 만씩 끊어 세므로 단어를 하나씩 옮길 수 없습니다. "four hundred
fifty six thousand"는 사십오만과 육천입니다. 코어 하나로 30초쯤 학습합니다.
`python examples/transformer.ko.py` 뒤에 옮기고 싶은 수를 적어도 됩니다.

위에서 아래로 읽으세요. 자동 미분은 쓰지 않습니다. 모든 함수는 결과와 함께 손으로 유도한 함수
`backward`를 돌려줍니다. backward는 같은 단계를 거꾸로 밟으며, 결과에 대한 손실의 기울기(dy)를 받아
각 입력의 기울기(dx)를 반환하고, 매개변수가 있으면 그 기울기(g)를 매개변수와 같은 이름으로 함께
돌려줍니다. 기호는 torch와 같습니다. N 문장 수, S 입력 토큰 수, L 출력 토큰 수, E 모델의 너비,
H 헤드 수, D = E / H, F 피드포워드 안쪽의 너비, V 어휘 크기.
"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # 이렇게 작은 행렬에는 스레드가 도움이 되지 않는다
import numpy as np

N, E, H, F, LAYERS, STEPS = 64, 64, 4, 128, 2, 500


# ---- 어텐션: 글 000 "Scaled Dot-Product Attention", 글 004의 2.1
def softmax(x):
    """점수의 각 행을 합이 1인 양수 가중치로 바꾼다."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))  # 행 전체에 같은 수를 빼도 결과는 같다
    p = e / e.sum(axis=-1, keepdims=True)

    def backward(dp):
        # 분모의 합 때문에 p 하나가 행의 모든 x에 달려 있다. p (1 − p)가 아니라 diag(p) − p pᵀ다.
        return p * (dp - (dp * p).sum(axis=-1, keepdims=True))

    return p, backward


def attention(q, k, v, hidden):
    """softmax(Q Kᵀ / √D) V. q: (N, H, L, D), k와 v: (N, H, S, D), hidden: True면 볼 수 없다."""
    scale = q.shape[-1] ** -0.5
    a = scale * (q @ k.swapaxes(-1, -2))  # 1. 쿼리와 키가 얼마나 맞는지: (N, H, L, S)
    w, softmax_backward = softmax(np.where(hidden, -np.inf, a))  # 2. exp(−∞) = 0
    z = w @ v  # 3. 값 벡터의 가중합

    def backward(dz):
        dv = w.swapaxes(-1, -2) @ dz  # 3. 값 벡터를 본 모든 쿼리에서 기울기가 온다
        dw = dz @ v.swapaxes(-1, -2)
        da = softmax_backward(dw)  # 2. 가린 곳은 0
        return scale * (da @ k), scale * (da.swapaxes(-1, -2) @ q), dv  # 1. dq, dk

    return z, backward


# ---- 멀티 헤드 어텐션: 글 000 "MultiHead Attention", 글 001, 글 004의 2.2와 3
def linear(p, x):
    """모든 행에 X W + b: (N, L, in)에서 (N, L, out)으로."""
    rows = x.reshape(-1, x.shape[-1])
    y = (rows @ p["W"] + p["b"]).reshape(*x.shape[:-1], -1)

    def backward(dy):
        drows = dy.reshape(-1, dy.shape[-1])
        dx = (drows @ p["W"].T).reshape(x.shape)
        return dx, {"W": rows.T @ drows, "b": drows.sum(axis=0)}

    return y, backward


def split(x):
    """(N, L, E)를 (N, H, L, D)로: 헤드마다 모든 위치에서 E개 가운데 D개를 받는다."""
    return x.reshape(*x.shape[:2], H, -1).swapaxes(1, 2)


def join(x):
    """(N, H, L, D)를 (N, L, E)로: split의 역이므로 서로가 서로의 backward다."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def multi_head(p, x, memory, hidden):
    """Concat(head₁, …, head_H) Wᴼ. x가 묻고 memory가 답한다. 셀프 어텐션이면 memory가 x다."""
    q, q_backward = linear(p["q"], x)
    k, k_backward = linear(p["k"], memory)
    v, v_backward = linear(p["v"], memory)
    z, attention_backward = attention(split(q), split(k), split(v), hidden)
    y, out_backward = linear(p["out"], join(z))

    def backward(dy):
        g = {}
        dz, g["out"] = out_backward(dy)
        dq, dk, dv = attention_backward(split(dz))
        dx, g["q"] = q_backward(join(dq))
        dmemory_k, g["k"] = k_backward(join(dk))
        dmemory_v, g["v"] = v_backward(join(dv))
        return dx, dmemory_k + dmemory_v, g  # 두 번 쓰였으므로 두 기울기를 더한다

    return y, backward


# ---- 층 정규화: 글 000 "LayerNorm"
def layer_norm(p, x):
    """γ x̂ + β. x̂ = (x − μ) / √(σ² + ε)은 행마다 평균 0, 분산 1이다."""
    centred = x - x.mean(axis=-1, keepdims=True)  # 1. μ
    std = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)  # 2. σ²
    x_hat = centred / std  # 3.
    y = p["gamma"] * x_hat + p["beta"]  # 4.

    def backward(dy):
        g = {"gamma": (dy * x_hat).sum(axis=(0, 1)), "beta": dy.sum(axis=(0, 1))}  # 4.
        dx_hat = dy * p["gamma"]
        # 3, 2, 1. σ²과 μ는 행 전체에 달려 있어, x마다 이 둘을 거쳐 행의 평균이 더 온다.
        through_variance = x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        through_mean = dx_hat.mean(axis=-1, keepdims=True)
        return (dx_hat - through_variance - through_mean) / std, g

    return y, backward


# ---- 피드포워드 네트워크: 글 000 "GELU", 글 004의 2.3
def gelu(x):
    """½ x (1 + tanh u). 여기서 u = √(2/π) (x + 0.044715 x³)."""
    t = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))

    def backward(dy):
        du = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du)  # tanh′ = 1 − tanh²

    return 0.5 * x * (1 + t), backward


def feed_forward(p, x):
    """gelu(X W₁ + b₁) W₂ + b₂를 위치마다 따로 계산한다."""
    h, first_backward = linear(p["first"], x)
    a, gelu_backward = gelu(h)
    y, second_backward = linear(p["second"], a)

    def backward(dy):
        g = {}
        da, g["second"] = second_backward(dy)
        dx, g["first"] = first_backward(gelu_backward(da))
        return dx, g

    return y, backward


# ---- 임베딩과 위치: 글 003 "Embedding Vector Scaling"
def embed(table, ids):
    """√E · table[ids]에 위치의 sin과 cos을 더한다. ids: (N, L)에서 (N, L, E)로."""
    angle = np.arange(ids.shape[1])[:, None] / 10000 ** (np.arange(0, E, 2) / E)
    places = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(-1, E)
    x = E**0.5 * table[ids] + places.astype(table.dtype)

    def backward(dx):
        g = np.zeros_like(table)
        np.add.at(g, ids, E**0.5 * dx)  # 두 번 나온 토큰은 두 기울기를 모두 받는다
        return g

    return x, backward


# ---- 층: 글 001 "Transformer Block", 글 002의 3과 4
def encoder_layer(p, x, hidden):
    """z = LayerNorm(x + attention(x)), y = LayerNorm(z + feed_forward(z))를 계산한다."""
    attended, attention_backward = multi_head(p["attention"], x, x, hidden)
    z, norm_1_backward = layer_norm(p["norm_1"], x + attended)
    thought, ffn_backward = feed_forward(p["ffn"], z)
    y, norm_2_backward = layer_norm(p["norm_2"], z + thought)

    def backward(dy):
        g = {}
        dsum, g["norm_2"] = norm_2_backward(dy)  # 합은 두 항에 기울기를 그대로 넘긴다
        dz, g["ffn"] = ffn_backward(dsum)
        dsum, g["norm_1"] = norm_1_backward(dsum + dz)
        dx, dmemory, g["attention"] = attention_backward(dsum)
        return dsum + dx + dmemory, g  # x는 잔차, 쿼리, 키·값로 쓰였다

    return y, backward


def decoder_layer(p, x, memory, future, hidden):
    """인코더와 같지만 미래를 보지 못하고, 중간에 memory를 보는 어텐션이 있다."""
    attended, self_backward = multi_head(p["self"], x, x, future)
    z, norm_1_backward = layer_norm(p["norm_1"], x + attended)
    found, cross_backward = multi_head(p["cross"], z, memory, hidden)
    c, norm_2_backward = layer_norm(p["norm_2"], z + found)
    thought, ffn_backward = feed_forward(p["ffn"], c)
    y, norm_3_backward = layer_norm(p["norm_3"], c + thought)

    def backward(dy):
        g = {}
        dsum, g["norm_3"] = norm_3_backward(dy)
        dc, g["ffn"] = ffn_backward(dsum)
        dsum, g["norm_2"] = norm_2_backward(dsum + dc)
        dz, dmemory, g["cross"] = cross_backward(dsum)
        dsum, g["norm_1"] = norm_1_backward(dsum + dz)
        dx, dx_memory, g["self"] = self_backward(dsum)
        return dsum + dx + dx_memory, dmemory, g

    return y, backward


# ---- 트랜스포머: 글 001 "Transformer", 글 002의 1과 2
def transformer(p, source, target):
    """다음 토큰의 점수 (N, L, V)를 어휘 전체에 매긴다. source: (N, S), target: (N, L)."""
    hidden = (source == PAD)[:, None, None, :]  # 패딩은 보지 않는다
    future = np.triu(np.ones((target.shape[1], target.shape[1]), dtype=bool), 1)
    memory, source_backward = embed(p["source"], source)
    y, target_backward = embed(p["target"], target)
    encoder, decoder = {}, {}  # 각 층의 backward
    for n, layer in p["encoder"].items():
        memory, encoder[n] = encoder_layer(layer, memory, hidden)
    for n, layer in p["decoder"].items():
        y, decoder[n] = decoder_layer(layer, y, memory, future, hidden)
    scores, output_backward = linear(p["output"], y)

    def backward(dscores):
        g = {"encoder": {}, "decoder": {}}
        dy, g["output"] = output_backward(dscores)
        dmemory = 0
        for n in reversed(decoder):
            dy, from_layer, g["decoder"][n] = decoder[n](dy)
            dmemory = dmemory + from_layer  # 모든 디코더 층이 같은 memory를 읽었다
        for n in reversed(encoder):
            dmemory, g["encoder"][n] = encoder[n](dmemory)
        g["target"], g["source"] = target_backward(dy), source_backward(dmemory)
        return g

    return scores, backward


def cross_entropy(scores, wanted):
    """패딩이 아닌 토큰에 대한 −log p(정답 토큰)의 평균. wanted: (N, L)."""
    p, _ = softmax(scores)
    real = (wanted != PAD)[..., None]
    one_hot = real & (wanted[..., None] == np.arange(p.shape[-1]))
    loss = -np.log(p[one_hot]).mean()

    def backward():
        return (p * real - one_hot) / int(real.sum())  # −log와 softmax를 합치면 p − one-hot

    return loss, backward


# ---- 매개변수와 Adam
def initial(random, dtype=np.float32):
    """Xavier 초기 가중치를 딕셔너리에 담는다: p["encoder"][0]["ffn"]["first"]["W"]."""

    def affine(rows, columns):
        weight = random.uniform(-1, 1, (rows, columns)) * (6 / (rows + columns)) ** 0.5
        return {"W": weight.astype(dtype), "b": np.zeros(columns, dtype)}

    def layer(*attentions):
        p = {name: {part: affine(E, E) for part in ("q", "k", "v", "out")} for name in attentions}
        for n in range(len(attentions) + 1):
            p[f"norm_{n + 1}"] = {"gamma": np.ones(E, dtype), "beta": np.zeros(E, dtype)}
        return {**p, "ffn": {"first": affine(E, F), "second": affine(F, E)}}

    return {
        "source": random.normal(0, E**-0.5, (len(ENGLISH), E)).astype(dtype),
        "target": random.normal(0, E**-0.5, (len(KOREAN), E)).astype(dtype),
        "encoder": {n: layer("attention") for n in range(LAYERS)},
        "decoder": {n: layer("self", "cross") for n in range(LAYERS)},
        "output": affine(E, len(KOREAN)),
    }


def adam(p, g, moments, step, rate):
    """각 매개변수를 기울기 평균의 반대쪽으로, 기울기의 평소 크기로 나눈 만큼 옮긴다."""
    for name, weight in p.items():
        if isinstance(weight, dict):
            adam(weight, g[name], moments.setdefault(name, {}), step, rate)
            continue
        m, v = moments.setdefault(name, (np.zeros_like(weight), np.zeros_like(weight)))
        m += 0.1 * (g[name] - m)
        v += 0.01 * (g[name] ** 2 - v)
        weight -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)


# ---- 과제: 두 언어로 쓴 1부터 999,999까지의 수
PAD, BEGIN, END = range(3)
WORDS = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"""
NAMES = dict(zip([*range(1, 20), *range(20, 100, 10)], WORDS.split(), strict=True))
ENGLISH = ["<pad>", "<begin>", "<end>", *NAMES.values(), "hundred", "thousand"]
KOREAN = ["<pad>", "<begin>", "<end>", *"일이삼사오육칠팔구십백천만"]


def english(n):
    for size, word in ((1000, "thousand"), (100, "hundred")):
        if n >= size:
            return [*english(n // size), word, *english(n % size)]
    if n > 20:
        return [NAMES[n - n % 10], *english(n % 10)]
    return [NAMES[n]] if n else []


def korean(n):
    text = ""
    for size, unit in ((10000, "만"), (1000, "천"), (100, "백"), (10, "십")):
        count, n = divmod(n, size)
        text += (korean(count) if count > 1 else "") + (unit if count else "")  # 일천이 아니라 천
    return text + "일이삼사오육칠팔구"[n - 1 : n]


def batch(numbers):
    """수들의 토큰 번호를 가장 긴 것에 맞춰 패딩한다: 영어 (N, S), 한국어 (N, L)."""
    source = [[ENGLISH.index(word) for word in english(n)] for n in numbers]
    target = [[BEGIN, *map(KOREAN.index, korean(n)), END] for n in numbers]
    for side in (source, target):
        longest = max(map(len, side))
        yield np.array([ids + [PAD] * (longest - len(ids)) for ids in side])


# ---- 학습과 답
def train(numbers, random):
    p, moments = initial(random), {}
    for step in range(1, STEPS + 1):
        source, target = batch(random.choice(numbers, N))
        scores, backward = transformer(p, source, target[:, :-1])  # 앞의 토큰들로 ...
        loss, loss_backward = cross_entropy(scores, target[:, 1:])  # ... 다음 토큰을 예측한다
        rate = min(step / 100, 1 - step / STEPS)  # 웜업 후 0까지 줄인다
        adam(p, backward(loss_backward()), moments, step, 0.002 * rate)
        if step % 50 == 0:
            print(f"스텝 {step}  손실 {loss:.4f}")
    return p


def answer(p, numbers):
    """탐욕적으로 옮긴다: 모든 답이 끝날 때까지 확률이 가장 높은 토큰을 붙인다."""
    source, _ = batch(numbers)
    target = np.full((len(numbers), 1), BEGIN)
    while target.shape[1] < 16 and not (target == END).any(axis=1).all():
        scores, _ = transformer(p, source, target)
        target = np.hstack([target, scores[:, -1:].argmax(axis=-1)])
    return ["".join(KOREAN[i] for i in ids[1:]).split("<end>")[0] for ids in target]


def main():
    random = np.random.default_rng(0)
    digits = random.integers(1, 10, (40_000, 6)) * random.integers(0, 2, (40_000, 6))
    numbers = np.maximum(digits @ 10 ** np.arange(6), 1)  # 자릿수의 절반은 0이다
    p = train(numbers[numbers % 7 != 3], random)
    new = np.unique(numbers[numbers % 7 == 3])  # 일곱 가운데 하나는 학습에 쓰지 않는다
    right = sum(got == korean(n) for n, got in zip(new, answer(p, new), strict=True))
    print(f"학습한 적 없는 수 {len(new)}개 가운데 {right}개를 맞혔습니다")
    shown = [int(number) for number in sys.argv[1:]] or [456_788, 60_000, 300_023, 73]
    for n, got in zip(shown, answer(p, shown), strict=True):
        print(f"{n:,}: {' '.join(english(n))} → {got} {'✓' if got == korean(n) else '✗'}")


if __name__ == "__main__":
    main()

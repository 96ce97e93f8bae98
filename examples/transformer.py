"""A Transformer in one file of NumPy. It learns to translate English numbers into Korean:

    four hundred fifty six thousand seven hundred eighty eight → 사십오만육천칠백팔십팔

English counts in thousands, Korean in ten thousands (만), so translating word by word fails: "four
hundred fifty six thousand" is 사십오만 (45 × 10,000) and 육천 (6 × 1,000). Training takes half a
minute on one core: `python examples/transformer.py`, with numbers of your own after it.

Read from top to bottom. Nothing is differentiated automatically. Every function returns its result
and a function `backward`, derived by hand, which goes through the same steps in reverse. It takes
the gradient of the loss with respect to the result (dy), and returns the gradient of each input
(dx), then those of the parameters (g), under the names of the parameters (p). Shapes: N sentences,
S source and L target tokens, E width, H heads, D = E / H, F width inside feed-forward networks.
"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # matrices this small gain nothing from threads
import numpy as np

N, E, H, F, LAYERS, STEPS = 64, 64, 4, 128, 2, 500


# ---- Linear layer: the shortest function with its backward
def linear(p, x):
    """X W + b for every token: (N, L, in) to (N, L, out)."""

    def backward(dy):  # all tokens share W and b, so the gradients of these are sums over tokens
        g = {"W": np.tensordot(x, dy, axes=((0, 1), (0, 1))), "b": dy.sum(axis=(0, 1))}
        return dy @ p["W"].T, g

    return x @ p["W"] + p["b"], backward


# ---- Attention: article 000, "Scaled Dot-Product Attention"; article 004, 2.1
def softmax(a):
    """Turn each row of scores into positive weights that sum to 1: exp(a) / Σ exp(a)."""
    e = np.exp(a - a.max(axis=-1, keepdims=True))  # the same result, but exp cannot overflow
    w = e / e.sum(axis=-1, keepdims=True)

    def backward(dw):
        # The sum makes each weight depend on its whole row: diag(w) − w wᵀ, not w (1 − w) alone.
        return w * (dw - (dw * w).sum(axis=-1, keepdims=True))

    return w, backward


seen = {}  # the weights of the last attention: after a forward, the last layer's cross-attention


def attention(q, k, v, masked):
    """softmax(Q Kᵀ / √D) V. q: (N, H, L, D); k, v: (N, H, S, D); masked: True = not allowed."""
    scale = q.shape[-1] ** -0.5
    a = scale * (q @ k.swapaxes(-1, -2))  # 1. scores (N, H, L, S): how well keys fit queries
    w, softmax_backward = softmax(np.where(masked, -np.inf, a))  # 2. weights; exp(−∞) = 0
    z = w @ v  # 3. weighted means of the values
    seen["weights"] = w

    def backward(dz):
        dv = w.swapaxes(-1, -2) @ dz  # 3. a value sums over the queries that used it
        dw = dz @ v.swapaxes(-1, -2)
        da = softmax_backward(dw)  # 2. 0 where masked, because w is
        return scale * (da @ k), scale * (da.swapaxes(-1, -2) @ q), dv  # 1. dq, dk

    return z, backward


# ---- Multi-head attention: article 000, "MultiHead Attention"; article 001; article 004, 2.2 and 3
def split(x):
    """(N, L, E) to (N, H, L, D): each head gets D of the E features, of all tokens."""
    return x.reshape(*x.shape[:2], H, -1).swapaxes(1, 2)


def join(x):
    """(N, H, L, D) to (N, L, E): the inverse of split. Each is the other's backward."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def multi_head(p, x, memory, masked):
    """Concat(head₁, …, head_H) Wᴼ: queries from x, keys and values from memory (may be x)."""
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


# ---- Layer normalisation: article 000, "LayerNorm"
def layer_norm(p, x):
    """γ x̂ + β, where x̂ = (x − μ) / √(σ² + ε) has mean 0 and variance 1 in each row."""
    centred = x - x.mean(axis=-1, keepdims=True)  # 1. μ
    std = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)  # 2. σ²
    x_hat = centred / std  # 3.
    y = p["gamma"] * x_hat + p["beta"]  # 4.

    def backward(dy):
        g = {"gamma": (dy * x_hat).sum(axis=(0, 1)), "beta": dy.sum(axis=(0, 1))}  # 4.
        dx_hat = dy * p["gamma"]
        # 3, 2, 1. σ² and μ depend on the whole row, so each x also gets a mean over its row.
        through_variance = x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        through_mean = dx_hat.mean(axis=-1, keepdims=True)
        return (dx_hat - through_variance - through_mean) / std, g

    return y, backward


# ---- Feed-forward network: article 000, "GELU"; article 004, 2.3
def gelu(x):
    """½ x (1 + tanh u) with u = √(2/π) (x + 0.044715 x³)."""
    t = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))

    def backward(dy):
        du_dx = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du_dx)  # tanh′ = 1 − tanh²

    return 0.5 * x * (1 + t), backward


def feed_forward(p, x):
    """gelu(X W₁ + b₁) W₂ + b₂, for each token by itself."""
    h, first_backward = linear(p["first"], x)
    a, gelu_backward = gelu(h)
    y, second_backward = linear(p["second"], a)

    def backward(dy):
        da, g_second = second_backward(dy)
        dx, g_first = first_backward(gelu_backward(da))
        return dx, {"first": g_first, "second": g_second}

    return y, backward


# ---- Embedding and positions: article 003, "Embedding Vector Scaling"
def embed(table, ids):
    """√E · table[ids] + sines and cosines of the position: ids (N, L) to (N, L, E)."""
    angles = np.arange(ids.shape[1])[:, None] / 10000 ** (np.arange(0, E, 2) / E)
    positions = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(-1, E)
    x = E**0.5 * table[ids] + positions.astype(table.dtype)

    def backward(dx):
        g = np.zeros_like(table)
        np.add.at(g, ids, E**0.5 * dx)  # a token that occurs twice gets both gradients
        return g

    return x, backward


# ---- Layers: article 001, "Transformer Block"; article 002, 3 and 4
def encoder_layer(p, x, padding):
    """z = LayerNorm(x + attention(x)), y = LayerNorm(z + feed_forward(z))."""
    a, attention_backward = multi_head(p["attention"], x, x, padding)
    z, norm_1_backward = layer_norm(p["norm_1"], x + a)
    f, ffn_backward = feed_forward(p["ffn"], z)
    y, norm_2_backward = layer_norm(p["norm_2"], z + f)

    def backward(dy):
        g = {}
        dsum, g["norm_2"] = norm_2_backward(dy)  # the gradient of a sum is that of both its terms
        dz, g["ffn"] = ffn_backward(dsum)
        dsum, g["norm_1"] = norm_1_backward(dsum + dz)
        dx, dkeys, dvalues, g["attention"] = attention_backward(dsum)
        return dsum + dx + dkeys + dvalues, g  # the residual, and all three inputs

    return y, backward


def decoder_layer(p, x, memory, future, padding):
    """Like the encoder's, but no token sees later ones, and attention to memory comes between."""
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
        return dsum + dx + dkeys + dvalues, dk + dv, g  # memory was keys and values

    return y, backward


# ---- The Transformer: article 001, "Transformer"; article 002, 1 and 2
def transformer(p, source, target):
    """Score each of V tokens as the next one. source (N, S) and target (N, L) to (N, L, V)."""
    padding = (source == PAD)[:, None, None, :]
    future = np.triu(np.ones((target.shape[1], target.shape[1]), dtype=bool), 1)
    memory, source_backward = embed(p["source"], source)
    y, target_backward = embed(p["target"], target)
    encoder, decoder = {}, {}  # the backward of each layer
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
            dmemory = dmemory + dmemory_n  # all decoder layers read the same memory
        for n in reversed(encoder):
            dmemory, g["encoder"][n] = encoder[n](dmemory)
        g["target"], g["source"] = target_backward(dy), source_backward(dmemory)
        return g

    return scores, backward


def loss_and_gradients(p, source, target, model=transformer):
    """Return the mean of −log p(next token), padding left out, and its gradients (g)."""
    scores, backward = model(p, source, target[:, :-1])  # from the tokens before ...
    following = target[:, 1:, None]  # ... predict each next one
    real = following != PAD
    one_hot = real & (following == np.arange(len(TARGET)))
    w, _ = softmax(scores)
    dscores = (real * w - one_hot) / int(real.sum())  # −log and softmax together: w − one_hot
    return -np.log(w[one_hot]).mean(), backward(dscores)


# ---- Parameters and Adam
def initial(random, dtype=np.float32):
    """Draw Xavier's weights, in dictionaries: p["encoder"][0]["ffn"]["first"]["W"]."""

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
    """Return the arrays of nested dictionaries, in the order of their names."""
    return [a for _, p in sorted(tree.items()) for a in (arrays(p) if isinstance(p, dict) else [p])]


def adam(p, g, m, v, step, rate):
    """Step against the mean gradient m, divided by the usual size of the gradient, √v."""
    for w, dw, mean, square in zip(arrays(p), arrays(g), m, v, strict=True):
        mean += 0.1 * (dw - mean)
        square += 0.01 * (dw**2 - square)  # both begin at 0, which the next line makes up for
        w -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)


# ---- The task: numbers from 1 to 999,999 in both languages
WORDS = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
    hundred thousand"""
ENGLISH = dict(zip([*range(1, 20), *range(20, 101, 10), 1000], WORDS.split(), strict=True))
KOREAN = dict(zip([*range(1, 11), 100, 1000, 10_000], "일이삼사오육칠팔구십백천만", strict=True))
SOURCE, TARGET = (["<pad>", "<begin>", "<end>", *each.values()] for each in (ENGLISH, KOREAN))
PAD, BEGIN, END = range(3)


def words(n, names):
    """Return n in words: the largest size that fits, before it how often, after it the rest."""
    for size in reversed(names):
        if n >= size:
            counted = n >= 2 * size or names[size] in ("hundred", "thousand")  # one hundred; 백
            count = words(n // size, names) if counted else []
            return [*count, names[size], *words(n % size, names)]
    return []


def batch(numbers):
    """Yield the token ids of the numbers, padded to the longest: English (N, S), Korean (N, L)."""
    source = [[SOURCE.index(word) for word in words(n, ENGLISH)] for n in numbers]
    target = [[BEGIN, *map(TARGET.index, words(n, KOREAN)), END] for n in numbers]
    for side in (source, target):
        longest = max(map(len, side))
        yield np.array([ids + [PAD] * (longest - len(ids)) for ids in side])


# ---- Check, training and answers
def check(random):
    """Print the slope of the loss along a random direction, by hand and by a difference."""
    p, (source, target) = initial(random, np.float64), batch([456_788, 60_000])
    direction = [random.standard_normal(w.shape) for w in arrays(p)]
    _, g = loss_and_gradients(p, source, target)
    slope, losses = sum(map(np.vdot, arrays(g), direction)), []
    for h in (1e-6, -2e-6):  # to p + h d, and from there to p − h d
        for w, d in zip(arrays(p), direction, strict=True):
            w += h * d
        losses.append(loss_and_gradients(p, source, target)[0])
    print(f"slope by hand {slope:.6f}, by difference {(losses[0] - losses[1]) / 2e-6:.6f}")


def train(numbers, random):
    p = initial(random)
    m, v = ([np.zeros_like(w) for w in arrays(p)] for _ in range(2))
    for step in range(1, STEPS + 1):
        loss, g = loss_and_gradients(p, *batch(random.choice(numbers, N)))
        adam(p, g, m, v, step, 0.002 * min(step / 100, 1 - step / STEPS))  # warm-up, then decay
        if step % 50 == 0:
            print(f"step {step}  loss {loss:.4f}")
    return p


def answer(p, numbers, model=transformer):
    """Translate greedily: append the most likely token until every answer has ended."""
    source, _ = batch(numbers)
    target = np.full((len(numbers), 1), BEGIN)
    while target.shape[1] < 16 and not (target == END).any(axis=1).all():
        scores, _ = model(p, source, target)
        target = np.hstack([target, scores[:, -1:].argmax(axis=-1)])
    return ["".join(TARGET[i] for i in ids[1:]).split("<end>")[0] for ids in target]


def look(p, n):
    """Print where each Korean token looked: the last cross-attention, the mean of its heads."""
    source, target = batch([n])
    transformer(p, source, target[:, :-1])
    for token, row in zip(target[0, 1:], seen["weights"][0].mean(axis=0), strict=True):
        cells = (
            f"{'·░▒▓█'[int(4.99 * w)]}{SOURCE[i]}" for i, w in zip(source[0], row, strict=True)
        )
        print(f"{TARGET[token]}\t{' '.join(cells)}")


if __name__ == "__main__":
    shown = [int(number) for number in sys.argv[1:]] or [456_788, 60_000, 300_023, 73]
    assert set(shown) <= set(range(1, 1_000_000)), "expected numbers from 1 to 999,999"
    check(np.random.default_rng(1))
    random = np.random.default_rng(0)
    digits = random.integers(1, 10, (40_000, 6)) * random.integers(0, 2, (40_000, 6))
    numbers = np.maximum(digits @ 10 ** np.arange(6), 1)  # half of the digits are 0
    p = train(numbers[numbers % 7 != 3], random)
    new = np.unique(numbers[numbers % 7 == 3])  # one number in seven is held out
    right = sum("".join(words(n, KOREAN)) == a for n, a in zip(new, answer(p, new), strict=True))
    print(f"right: {right} of {len(new)} numbers that it was never trained on")
    for n, got in zip(shown, answer(p, shown), strict=True):
        mark = "✓" if got == "".join(words(n, KOREAN)) else "✗"
        print(f"{n:,}: {' '.join(words(n, ENGLISH))} → {got} {mark}")
    look(p, shown[0])

"""A Transformer in one file of NumPy. It learns to translate English numbers into Korean:

    four hundred fifty six thousand seven hundred eighty eight → 사십오만육천칠백팔십팔

English counts in thousands, Korean in ten thousands (만), so words cannot be translated one by
one: "four hundred fifty six thousand" is 사십오만 (forty-five 만) and 육천 (six thousand). Training
takes half a minute on one core: `python examples/transformer.py`, with your own numbers after it.

Read from top to bottom. Nothing is differentiated automatically: every function returns its result
and a function `backward`, written by hand, which undoes the same steps in reverse order. It takes
the gradient of the loss at the result (dy) and returns the gradient at each input (dx), then those
of the parameters (g), under the parameters' names. Letters as in torch: N sentences, S source and
L target tokens, E width, H heads, D = E / H, F width inside feed-forward networks, V vocabulary.
"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # matrices this small gain nothing from threads
import numpy as np

N, E, H, F, LAYERS, STEPS = 64, 64, 4, 128, 2, 500


# ---- Attention: article 000, "Scaled Dot-Product Attention"; article 004, 2.1
def softmax(x):
    """Turn each row of scores into positive weights that sum to 1."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))  # a shift of the row changes nothing
    p = e / e.sum(axis=-1, keepdims=True)

    def backward(dp):
        # The sum ties every p to every x of its row: diag(p) − p pᵀ, and not p (1 − p) alone.
        return p * (dp - (dp * p).sum(axis=-1, keepdims=True))

    return p, backward


def attention(q, k, v, hidden):
    """softmax(Q Kᵀ / √D) V. q: (N, H, L, D); k, v: (N, H, S, D); hidden: True = must not look."""
    scale = q.shape[-1] ** -0.5
    a = scale * (q @ k.swapaxes(-1, -2))  # 1. how well each key fits each query: (N, H, L, S)
    w, softmax_backward = softmax(np.where(hidden, -np.inf, a))  # 2. exp(−∞) = 0
    z = w @ v  # 3. the values, mixed by weight

    def backward(dz):
        dv = w.swapaxes(-1, -2) @ dz  # 3. a value hears from every query that looked at it
        dw = dz @ v.swapaxes(-1, -2)
        da = softmax_backward(dw)  # 2. 0 where hidden
        return scale * (da @ k), scale * (da.swapaxes(-1, -2) @ q), dv  # 1. dq, dk

    return z, backward


# ---- Multi-head attention: article 000, "MultiHead Attention"; article 001; article 004, 2.2 and 3
def linear(p, x):
    """X W + b for every row: (N, L, in) to (N, L, out)."""
    rows = x.reshape(-1, x.shape[-1])
    y = (rows @ p["W"] + p["b"]).reshape(*x.shape[:-1], -1)

    def backward(dy):
        drows = dy.reshape(-1, dy.shape[-1])
        dx = (drows @ p["W"].T).reshape(x.shape)
        return dx, {"W": rows.T @ drows, "b": drows.sum(axis=0)}

    return y, backward


def split(x):
    """(N, L, E) to (N, H, L, D): every head gets D of the E numbers, at all positions."""
    return x.reshape(*x.shape[:2], H, -1).swapaxes(1, 2)


def join(x):
    """(N, H, L, D) to (N, L, E). It undoes split, so each is the other's backward."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def multi_head(p, x, memory, hidden):
    """Concat(head₁, …, head_H) Wᴼ. x asks and memory answers; in self-attention memory is x."""
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
        return dx, dmemory_k + dmemory_v, g  # used twice, so its two gradients add up

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
        # 3, 2, 1. σ² and μ depend on the whole row: through them each x receives a mean over it.
        through_variance = x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        through_mean = dx_hat.mean(axis=-1, keepdims=True)
        return (dx_hat - through_variance - through_mean) / std, g

    return y, backward


# ---- Feed-forward network: article 000, "GELU"; article 004, 2.3
def gelu(x):
    """½ x (1 + tanh u) with u = √(2/π) (x + 0.044715 x³)."""
    t = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))

    def backward(dy):
        du = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du)  # tanh′ = 1 − tanh²

    return 0.5 * x * (1 + t), backward


def feed_forward(p, x):
    """gelu(X W₁ + b₁) W₂ + b₂, at each position by itself."""
    h, first_backward = linear(p["first"], x)
    a, gelu_backward = gelu(h)
    y, second_backward = linear(p["second"], a)

    def backward(dy):
        g = {}
        da, g["second"] = second_backward(dy)
        dx, g["first"] = first_backward(gelu_backward(da))
        return dx, g

    return y, backward


# ---- Embedding and positions: article 003, "Embedding Vector Scaling"
def embed(table, ids):
    """√E · table[ids] + sinusoids of the position. ids: (N, L) to (N, L, E)."""
    angle = np.arange(ids.shape[1])[:, None] / 10000 ** (np.arange(0, E, 2) / E)
    places = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(-1, E)
    x = E**0.5 * table[ids] + places.astype(table.dtype)

    def backward(dx):
        g = np.zeros_like(table)
        np.add.at(g, ids, E**0.5 * dx)  # a token that occurs twice receives both gradients
        return g

    return x, backward


# ---- Layers: article 001, "Transformer Block"; article 002, 3 and 4
def encoder_layer(p, x, hidden):
    """z = LayerNorm(x + attention(x)), y = LayerNorm(z + feed_forward(z))."""
    attended, attention_backward = multi_head(p["attention"], x, x, hidden)
    z, norm_1_backward = layer_norm(p["norm_1"], x + attended)
    thought, ffn_backward = feed_forward(p["ffn"], z)
    y, norm_2_backward = layer_norm(p["norm_2"], z + thought)

    def backward(dy):
        g = {}
        dsum, g["norm_2"] = norm_2_backward(dy)  # a sum hands its gradient to both of its parts
        dz, g["ffn"] = ffn_backward(dsum)
        dsum, g["norm_1"] = norm_1_backward(dsum + dz)
        dx, dmemory, g["attention"] = attention_backward(dsum)
        return dsum + dx + dmemory, g  # x was used as residual, as queries, as keys and values

    return y, backward


def decoder_layer(p, x, memory, future, hidden):
    """As in the encoder, but blind to the future, and with attention to the memory in between."""
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


# ---- The Transformer: article 001, "Transformer"; article 002, 1 and 2
def transformer(p, source, target):
    """Score every token of V as the next one. source: (N, S), target: (N, L) to (N, L, V)."""
    hidden = (source == PAD)[:, None, None, :]  # nobody looks at padding
    future = np.triu(np.ones((target.shape[1], target.shape[1]), dtype=bool), 1)
    memory, source_backward = embed(p["source"], source)
    y, target_backward = embed(p["target"], target)
    encoder, decoder = {}, {}  # the backward of every layer
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
            dmemory = dmemory + from_layer  # every decoder layer has read the same memory
        for n in reversed(encoder):
            dmemory, g["encoder"][n] = encoder[n](dmemory)
        g["target"], g["source"] = target_backward(dy), source_backward(dmemory)
        return g

    return scores, backward


def cross_entropy(scores, wanted):
    """Mean of −log p(wanted token) over all tokens but padding. wanted: (N, L)."""
    p, _ = softmax(scores)
    real = (wanted != PAD)[..., None]
    one_hot = real & (wanted[..., None] == np.arange(p.shape[-1]))
    loss = -np.log(p[one_hot]).mean()

    def backward():
        return (p * real - one_hot) / int(real.sum())  # −log and softmax together: p − one-hot

    return loss, backward


# ---- Parameters and Adam
def initial(random, dtype=np.float32):
    """Xavier's weights, in dictionaries: p["encoder"][0]["ffn"]["first"]["W"]."""

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
    """Move each parameter against its mean gradient, divided by the usual size of the gradient."""
    for name, weight in p.items():
        if isinstance(weight, dict):
            adam(weight, g[name], moments.setdefault(name, {}), step, rate)
            continue
        m, v = moments.setdefault(name, (np.zeros_like(weight), np.zeros_like(weight)))
        m += 0.1 * (g[name] - m)
        v += 0.01 * (g[name] ** 2 - v)
        weight -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)


# ---- The task: numbers from 1 to 999,999 in both languages
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
        text += (korean(count) if count > 1 else "") + (unit if count else "")  # 천, not 일천
    return text + "일이삼사오육칠팔구"[n - 1 : n]


def batch(numbers):
    """Yield token ids of the numbers, padded to the longest: English (N, S), Korean (N, L)."""
    source = [[ENGLISH.index(word) for word in english(n)] for n in numbers]
    target = [[BEGIN, *map(KOREAN.index, korean(n)), END] for n in numbers]
    for side in (source, target):
        longest = max(map(len, side))
        yield np.array([ids + [PAD] * (longest - len(ids)) for ids in side])


# ---- Training and answers
def train(numbers, random):
    p, moments = initial(random), {}
    for step in range(1, STEPS + 1):
        source, target = batch(random.choice(numbers, N))
        scores, backward = transformer(p, source, target[:, :-1])  # from the tokens before ...
        loss, loss_backward = cross_entropy(scores, target[:, 1:])  # ... predict each next one
        rate = min(step / 100, 1 - step / STEPS)  # warm-up, then down to 0
        adam(p, backward(loss_backward()), moments, step, 0.002 * rate)
        if step % 50 == 0:
            print(f"step {step}  loss {loss:.4f}")
    return p


def answer(p, numbers):
    """Translate greedily: append the likeliest token until every answer has ended."""
    source, _ = batch(numbers)
    target = np.full((len(numbers), 1), BEGIN)
    while target.shape[1] < 16 and not (target == END).any(axis=1).all():
        scores, _ = transformer(p, source, target)
        target = np.hstack([target, scores[:, -1:].argmax(axis=-1)])
    return ["".join(KOREAN[i] for i in ids[1:]).split("<end>")[0] for ids in target]


def main():
    random = np.random.default_rng(0)
    digits = random.integers(1, 10, (40_000, 6)) * random.integers(0, 2, (40_000, 6))
    numbers = np.maximum(digits @ 10 ** np.arange(6), 1)  # every second digit is 0
    p = train(numbers[numbers % 7 != 3], random)
    new = np.unique(numbers[numbers % 7 == 3])  # one number in seven is held out
    right = sum(got == korean(n) for n, got in zip(new, answer(p, new), strict=True))
    print(f"right: {right} of {len(new)} numbers that it was never trained on")
    shown = [int(number) for number in sys.argv[1:]] or [456_788, 60_000, 300_023, 73]
    for n, got in zip(shown, answer(p, shown), strict=True):
        print(f"{n:,}: {' '.join(english(n))} → {got} {'✓' if got == korean(n) else '✗'}")


if __name__ == "__main__":
    main()

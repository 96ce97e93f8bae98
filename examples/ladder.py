"""A ladder to transformer.py: from counting to the Transformer, one change a rung.

    python examples/ladder.py

Every rung writes the same Korean numbers from the same English ones, and is scored on numbers that
it never saw. What a rung cannot do is the reason for the next. All of them are made of the
functions of transformer.py, which is the file to read after this one; here is only what differs.
Each rung scores every token of the vocabulary as the next one, from the source (N, S) and the
answer so far (N, L), and returns the scores (N, L, V) and its backward.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

from transformer import (
    KOREAN,
    PAD,
    TARGET,
    N,
    adam,
    answer,
    arrays,
    attention,
    batch,
    decoder_layer,
    embed,
    encoder_layer,
    initial,
    linear,
    loss_and_gradients,
    transformer,
    words,
)

STEPS = 500


# ---- 1. Counts: which token followed this one most often?
def counts(p, source, target):
    """log of how often each token followed the last one. Nothing of the source is read."""
    return np.log(p["counts"] + 1e-3)[target], lambda dscores: {}


# ---- 2. Linear: every source word votes for the next token. A gradient, and steps against it
def votes(p, source, target):
    """W (mean of the source's vectors + the last token's vector) + b.

    The first rung that learns: −log p falls along w − one_hot, the gradient of the scores. The
    mean knows which words there are, not their order: 45 and 54 are one number to it.
    """
    real = source[:, :, None] != PAD
    share = real / real.sum(axis=1, keepdims=True)
    x = (share * p["source"][source]).sum(axis=1, keepdims=True) + p["target"][target]
    scores, output_backward = linear(p["output"], x)

    def backward(dscores):
        dx, g_output = output_backward(dscores)
        g = {"output": g_output, **{side: np.zeros_like(p[side]) for side in ("source", "target")}}
        np.add.at(g["target"], target, dx)
        np.add.at(g["source"], source, share * dx.sum(axis=1, keepdims=True))
        return g

    return scores, backward


# ---- 3. One head of attention: the mean gets weights, and the answer so far chooses them
def one_head(p, source, target):
    """W (attention(x, memory) + x) + b, where x is the last token and memory the source.

    Positions are added to both, so that a token can ask for "the word after the last one". But a
    query knows one token of the answer, not what was written before it.
    """
    memory, source_backward = embed(p["source"], source)
    x, target_backward = embed(p["target"], target)
    q, q_backward = linear(p["q"], x)
    k, k_backward = linear(p["k"], memory)
    v, v_backward = linear(p["v"], memory)
    z, attention_backward = attention(q, k, v, (source == PAD)[:, None, :])
    scores, output_backward = linear(p["output"], z + x)

    def backward(dscores):
        g = {}
        dsum, g["output"] = output_backward(dscores)  # the gradient of z, and of x beside it
        dq, dk, dv = attention_backward(dsum)
        dx, g["q"] = q_backward(dq)
        dkeys, g["k"] = k_backward(dk)
        dvalues, g["v"] = v_backward(dv)
        g["target"], g["source"] = target_backward(dsum + dx), source_backward(dkeys + dvalues)
        return g

    return scores, backward


# ---- 4. A layer: both sides read themselves first; norms and residuals hold it together
def one_layer(p, source, target):
    """An encoder layer and a decoder layer of transformer.py: four heads, a feed-forward network.

    Each token now knows its neighbours: the source's words which group they belong to, the answer
    what has been written.
    """
    padding = (source == PAD)[:, None, None, :]
    future = np.triu(np.ones((target.shape[1], target.shape[1]), dtype=bool), 1)
    x, source_backward = embed(p["source"], source)
    y, target_backward = embed(p["target"], target)
    memory, encoder_backward = encoder_layer(p["encoder"][0], x, padding)
    y, decoder_backward = decoder_layer(p["decoder"][0], y, memory, future, padding)
    scores, output_backward = linear(p["output"], y)

    def backward(dscores):
        g = {"encoder": {}, "decoder": {}}
        dy, g["output"] = output_backward(dscores)
        dy, dmemory, g["decoder"][0] = decoder_backward(dy)
        dx, g["encoder"][0] = encoder_backward(dmemory)
        g["target"], g["source"] = target_backward(dy), source_backward(dx)
        return g

    return scores, backward


# ---- 5 and 6. The same layer with Adam; two layers a side: transformer.py
def descend(p, g, step, rate):
    """Step against the gradient: one rate for all numbers, with warm-up and decay."""
    for w, dw in zip(arrays(p), arrays(g), strict=True):
        w -= rate * min(step / 100, 1 - step / STEPS) * dw


def parameters(random, rung):
    """Draw the parameters of a rung: those of transformer.py, as far as it has them."""
    p = initial(random)
    if rung is transformer:
        return p
    if rung is one_layer:
        return {**p, "encoder": {0: p["encoder"][0]}, "decoder": {0: p["decoder"][0]}}
    if rung is one_head:
        first = p["decoder"][0]["cross"]
        kept = {part: first[part] for part in ("q", "k", "v")}
        return {**kept, **{name: p[name] for name in ("source", "target", "output")}}
    return {name: p[name] for name in ("source", "target", "output")}


def counted(numbers):
    """Return how often each token followed each other one in the answers of some numbers."""
    _, target = batch(numbers)
    table = np.zeros((len(TARGET), len(TARGET)))
    np.add.at(table, (target[:, :-1], target[:, 1:]), target[:, 1:] != PAD)
    return {"counts": table}


def train(model, p, numbers, random, rate):
    """Train a rung for STEPS steps on batches of N numbers."""
    m, v = ([np.zeros_like(w) for w in arrays(p)] for _ in range(2))
    for step in range(1, STEPS + 1):
        _, g = loss_and_gradients(p, *batch(random.choice(numbers, N)), model)
        if rate is None:
            adam(p, g, m, v, step, 0.002 * min(step / 100, 1 - step / STEPS))
        else:
            descend(p, g, step, rate)
    return p


# With the rate of plain descent: the best of 0.3, 3, 10 for linear, of 0.1, 0.3, 1 for a head.
RUNGS = (
    ("1 counts", counts, None),
    ("2 linear", votes, 10.0),
    ("3 one head", one_head, 0.3),
    ("4 one layer", one_layer, 0.3),
    ("5 and Adam", one_layer, None),
    ("6 two layers", transformer, None),
)


def climb(rung, numbers, new, seed=0):
    """Train one rung; return its loss on new numbers, what it writes for them, and for SHOWN."""
    _, model, rate = rung
    random = np.random.default_rng(seed)
    if model is counts:
        p = counted(numbers)
    else:
        p = train(model, parameters(random, model), numbers, random, rate)
    loss, _ = loss_and_gradients(p, *batch(new), model)
    right = sum(
        "".join(words(n, KOREAN)) == got for n, got in zip(new, answer(p, new, model), strict=True)
    )
    return loss, right, answer(p, [SHOWN], model)[0]


SHOWN = 456_788


def main():
    random = np.random.default_rng(0)
    digits = random.integers(1, 10, (40_000, 6)) * random.integers(0, 2, (40_000, 6))
    numbers = np.maximum(digits @ 10 ** np.arange(6), 1)  # half of the digits are 0
    new = np.unique(numbers[numbers % 7 == 3])[::4]  # one number in seven is held out
    print(f"rung          loss   right of {len(new)}   {SHOWN:,} = {''.join(words(SHOWN, KOREAN))}")
    for rung in RUNGS:
        loss, right, shown = climb(rung, numbers[numbers % 7 != 3], new)
        print(f"{rung[0]:12}  {loss:.3f}  {right:12}   {shown}", flush=True)


if __name__ == "__main__":
    main()

"""Images as sentences: a digit of 8 × 8 pixels is cut into 16 patches, and each patch is a token.

    python examples/digits.py

Article 004 names images beside text. The encoder is that of transformer.py, unchanged: it reads 16
tokens of 2 × 2 pixels, and the mean of what comes out is classified. The digits are drawn here, a
few strokes each, shifted, turned, and with noise; every one is new. Three models, three random
seeds:

    encoder         patches + learnt positions
    no positions    the same without positions: a bag of patches
    linear          the 64 pixels and one matrix
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import transformer as t

Array = np.ndarray

STROKES = {
    0: ".5,.1 .25,.3 .25,.7 .5,.9 .75,.7 .75,.3 .5,.1",
    1: ".35,.25 .55,.1 .55,.9",
    2: ".25,.3 .35,.12 .65,.12 .75,.3 .25,.9 .78,.9",
    3: ".25,.15 .7,.12 .75,.3 .45,.47 .75,.65 .68,.88 .25,.86",
    4: ".65,.9 .65,.1 .2,.62 .82,.62",
    5: ".75,.12 .3,.12 .27,.45 .65,.45 .75,.68 .6,.9 .25,.85",
    6: ".7,.12 .4,.3 .25,.65 .4,.9 .68,.85 .72,.6 .3,.55",
    7: ".22,.12 .78,.12 .42,.9",
    8: ".5,.47 .28,.3 .5,.1 .72,.3 .5,.47 .25,.7 .5,.92 .75,.7 .5,.47",
    9: ".72,.4 .35,.45 .28,.2 .6,.1 .72,.3 .7,.9",
}
"""The corners of each digit's line: x to the right, y down, from 0 to 1."""

LINES = {
    digit: np.array([[float(n) for n in corner.split(",")] for corner in line.split()])
    for digit, line in STROKES.items()
}
PIXELS = (np.stack(np.meshgrid(np.arange(8), np.arange(8)), axis=-1).reshape(64, 2) + 0.5) / 8
MODELS = ("encoder", "no positions", "linear")
RATES = {"encoder": 0.003, "no positions": 0.003, "linear": 0.1}
"""The best of 0.003, 0.01, 0.03 and 0.1 for the linear model, with seed 0."""


def drawn(digit: int, random: np.random.Generator) -> Array:
    """Draw a digit: (8, 8), about 1 on its line and 0 elsewhere."""
    turn, size = random.normal(0, 0.2), random.uniform(0.7, 0.95)
    matrix = size * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    corners = (LINES[digit] - 0.5) @ matrix.T + 0.5 + random.uniform(-0.1, 0.1, 2)
    start, along = corners[:-1], np.diff(corners, axis=0)
    reached = PIXELS[:, None] - start  # (pixels, strokes, 2)
    part = np.clip((reached * along).sum(axis=-1) / (along**2).sum(axis=-1), 0, 1)
    away = np.linalg.norm(reached - part[..., None] * along, axis=-1).min(axis=-1)
    return (np.exp(-((away / 0.08) ** 2)) + random.normal(0, 0.15, 64)).reshape(8, 8)


def images(n: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Draw n digits, (n, 8, 8), and return them with what they are."""
    digits = random.integers(0, 10, n)
    return np.stack([drawn(int(digit), random) for digit in digits]), digits


def patches(x: Array) -> Array:
    """(N, 8, 8) to (N, 16, 4): cut rows and columns in twos, then one token for each square."""
    return x.reshape(-1, 4, 2, 4, 2).swapaxes(2, 3).reshape(-1, 16, 4)


def initial(kind: str, random: np.random.Generator) -> dict[str, Any]:
    """Draw the parameters of a model."""

    def affine(rows: int, columns: int) -> dict[str, Array]:
        return {"W": random.normal(0, rows**-0.5, (rows, columns)), "b": np.zeros(columns)}

    if kind == "linear":
        return {"output": affine(64, 10)}
    encoder = t.initial(random, np.float64)["encoder"]
    p = {"patch": affine(4, t.E), "encoder": encoder, "output": affine(t.E, 10)}
    return p if kind == "no positions" else {**p, "position": random.normal(0, 1, (16, t.E))}


def model(p: dict[str, Any], x: Array) -> tuple[Array, Callable[[Array], Any]]:
    """Score each of 10 digits for images (N, 8, 8); and the backward."""
    if "encoder" not in p:
        scores, linear_backward = t.linear(p["output"], x.reshape(-1, 1, 64))
        return scores[:, 0], lambda ds: {"output": linear_backward(ds[:, None])[1]}
    y, patch_backward = t.linear(p["patch"], patches(x))  # 1. a token for each patch
    y = y + p.get("position", 0)  # 2.
    layers = {}
    for n, layer in p["encoder"].items():  # 3. nothing is masked
        y, layers[n] = t.encoder_layer(layer, y, False)
    scores, output_backward = t.linear(p["output"], y.mean(axis=1, keepdims=True))  # 4.

    def backward(ds: Array) -> Any:
        g: dict[str, Any] = {"encoder": {}}
        dmean, g["output"] = output_backward(ds[:, None])  # 4. each token has a 16th of the mean
        dy = np.broadcast_to(dmean / y.shape[1], y.shape)
        for n in reversed(layers):  # 3.
            dy, g["encoder"][n] = layers[n](dy)
        if "position" in p:
            g["position"] = dy.sum(axis=0)  # 2. all images share them
        return {**g, "patch": patch_backward(dy)[1]}  # 1.

    return scores[:, 0], backward


def loss_and_gradients(p: dict[str, Any], x: Array, digits: Array) -> tuple[float, Any]:
    """Return the mean of −log p(digit), and the gradients."""
    scores, backward = model(p, x)
    w, _ = t.softmax(scores)
    one_hot = np.eye(10)[digits]
    return float(-np.log(w[one_hot > 0]).mean()), backward((w - one_hot) / len(x))


def slopes(kind: str, seed: int = 0) -> tuple[float, float]:
    """Return the slope of the loss along a random direction, by hand and by a difference."""
    random = np.random.default_rng(seed)
    p, (x, digits) = initial(kind, random), images(7, random)
    direction = [random.standard_normal(w.shape) for w in t.arrays(p)]
    _, g = loss_and_gradients(p, x, digits)
    losses = []
    for h in (1e-6, -2e-6):
        for w, d in zip(t.arrays(p), direction, strict=True):
            w += h * d
        losses.append(loss_and_gradients(p, x, digits)[0])
    by_hand = sum(map(np.vdot, t.arrays(g), direction))
    return float(by_hand), (losses[0] - losses[1]) / 2e-6


def learned(kind: str, seed: int, steps: int = 300) -> float:
    """Train on new digits in every step; return the share of 1,000 others that is right."""
    random = np.random.default_rng(seed)
    p = initial(kind, random)
    m, v = ([np.zeros_like(w) for w in t.arrays(p)] for _ in range(2))
    for step in range(1, steps + 1):
        _, g = loss_and_gradients(p, *images(64, random))
        t.adam(p, g, m, v, step, RATES[kind] * min(step / 30, 1 - step / (steps + 1)))
    x, digits = images(1000, random)
    return float((model(p, x)[0].argmax(axis=-1) == digits).mean())


def main() -> None:
    """Print a digit as the model reads it, the slopes, and what each model learns."""
    x, _ = images(1, np.random.default_rng(4))
    for row in x[0]:
        print("".join(2 * " ·░▒▓█"[int(np.clip(5 * pixel, 0, 5))] for pixel in row))
    print("is 16 tokens:", patches(x).shape)
    for kind in MODELS:
        by_hand, by_difference = slopes(kind)
        print(f"{kind:<13} slope by hand {by_hand:+.6f}, by difference {by_difference:+.6f}")
    for kind in MODELS:
        right = "  ".join(f"{learned(kind, seed):.1%}" for seed in (0, 1, 2))
        print(f"{kind:<13} right of 1,000 new digits, by seed: {right}", flush=True)


if __name__ == "__main__":
    main()

"""Additive attention next to the dot product, forward and backward by hand, at d_k 8 to 512.

    python examples/additive.py --output runs/examples    (about four minutes of one core)

It writes additive.png, and additive.json: of each score and d_k, what passes at the start and the
errors. Those of `docs/articles.md` are in results/additive.json.

The paper of the Transformer scales because "additive attention outperforms dot product attention
without scaling for larger values of d_k", and it *suspects* why: large products push softmax to
where its gradients are small. Article 003 quotes that. Here is the experiment, small: a query must
find its key among 16. Four scores, three learning rates, three random seeds:

    additive      a = v · tanh(W_q x + W_k y)
    unscaled      a = (W_q x) · (W_k y)
    scaled        a = (W_q x) · (W_k y) / √d_k
    small start   unscaled, but W_q and W_k are drawn smaller by d_k^(1/4) each, so that the scores
                  start with variance 1: if the start is what hurts, this cures it
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

N, S, C = 32, 16, 16
"""Queries in a batch, keys for each, and features of both."""

Array = np.ndarray


def softmax(a: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return the weights of each row of scores, and the backward."""
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    w = e / e.sum(axis=-1, keepdims=True)
    return w, lambda dw: w * (dw - (dw * w).sum(axis=-1, keepdims=True))


def additive(p: dict[str, Array], q: Array, k: Array) -> tuple[Array, Callable[[Array], Any]]:
    """a = v · tanh(q + k): q (N, D), k (N, S, D) to (N, S); backward returns dq, dk and dv."""
    h = np.tanh(q[:, None] + k)  # 1.
    a = h @ p["v"]  # 2.

    def backward(da: Array) -> tuple[Array, Array, dict[str, Array]]:
        dv = np.tensordot(da, h, axes=2)  # 2.
        dh = da[..., None] * p["v"]
        dsum = dh * (1 - h**2)  # 1. tanh′ = 1 − tanh²
        return dsum.sum(axis=1), dsum, {"v": dv}  # one query serves all keys

    return a, backward


def dot(scale: float) -> Callable[..., Any]:
    """Return a = scale · q·k with its backward."""

    def score(p: dict[str, Array], q: Array, k: Array) -> tuple[Array, Callable[[Array], Any]]:
        def backward(da: Array) -> tuple[Array, Array, dict[str, Array]]:
            dq = scale * (da[:, None] @ k)[:, 0]
            return dq, scale * da[..., None] * q[:, None], {}

        return scale * (k @ q[..., None])[..., 0], backward

    return score


def attend(
    score: Callable[..., Any], p: dict[str, Array], x: Array, y: Array, values: Array
) -> tuple[Array, Array, Callable[[Array], dict[str, Array]]]:
    """Return the mean of values (N, S, C) for queries x (N, C) and keys y (N, S, C), and w."""
    q, k = x @ p["W_q"], y @ p["W_k"]  # 1.
    a, score_backward = score(p, q, k)  # 2.
    w, softmax_backward = softmax(a)  # 3.
    z = (w[:, None] @ values)[:, 0]  # 4.

    def backward(dz: Array) -> dict[str, Array]:
        dw = (values @ dz[..., None])[..., 0]  # 4.
        da = softmax_backward(dw)  # 3.
        dq, dk, g = score_backward(da)  # 2.
        return {**g, "W_q": x.T @ dq, "W_k": np.tensordot(y, dk, axes=((0, 1), (0, 1)))}  # 1.

    return z, w, backward


KINDS = ("additive", "unscaled", "scaled", "small start")
NAMES = {"additive": "additive", "unscaled": "unscaled", "scaled": "/ √d_k",
         "small start": "unscaled, smaller start"}  # fmt: skip


def drawn(kind: str, d_k: int, random: np.random.Generator) -> tuple[Any, dict[str, Array]]:
    """Return a score and its parameters; q and k have entries of variance 1, but in the last."""
    p = {name: random.standard_normal((C, d_k)) / C**0.5 for name in ("W_q", "W_k")}
    if kind == "additive":
        return additive, {**p, "v": random.standard_normal(d_k) / d_k**0.5}
    if kind == "small start":
        p = {name: w / d_k**0.25 for name, w in p.items()}
    return dot(d_k**-0.5 if kind == "scaled" else 1.0), p


def batch(turn: Array, random: np.random.Generator, n: int = N) -> tuple[Array, ...]:
    """Return queries, keys, values and which key each query belongs to: x = y W + noise."""
    y, values = random.standard_normal((2, n, S, C))
    place = random.integers(0, S, n)
    x = y[np.arange(n), place] @ turn + 0.3 * random.standard_normal((n, C))
    return x, y, values, place


def learned(kind: str, d_k: int, rate: float, seed: int, steps: int) -> tuple[float, float, float]:
    """Train with Adam; return the variance of the scores and |da| / |dw| at first, and the error.

    The error is that on new queries, 1.0 being what equal weights give.
    """
    random = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(random.standard_normal((C, C)))
    score, p = drawn(kind, d_k, random)
    m, v = ({name: np.zeros_like(w) for name, w in p.items()} for _ in range(2))
    x, y, values, _ = batch(turn, random, 256)
    a, _ = score(p, x @ p["W_q"], y @ p["W_k"])
    w, softmax_backward = softmax(a)
    dw = random.standard_normal(w.shape)
    passes = float(np.linalg.norm(softmax_backward(dw)) / np.linalg.norm(dw))
    for step in range(1, steps + 1):
        x, y, values, place = batch(turn, random)
        z, _, backward = attend(score, p, x, y, values)
        g = backward((z - values[np.arange(N), place]) / N)
        for name, one in g.items():
            m[name] += 0.1 * (one - m[name])
            v[name] += 0.01 * (one**2 - v[name])
            mean, square = m[name] / (1 - 0.9**step), v[name] / (1 - 0.99**step)
            p[name] -= rate * mean / (np.sqrt(square) + 1e-8)
    x, y, values, place = batch(turn, random, 1000)
    z, _, _ = attend(score, p, x, y, values)
    truth, equal = values[np.arange(1000), place], values.mean(axis=1)
    error = ((z - truth) ** 2).sum() / ((equal - truth) ** 2).sum()
    return float(a.var(axis=-1).mean()), passes, float(error)


def check(seed: int = 0) -> dict[str, tuple[float, float]]:
    """Return the slope of the loss along a random direction, by hand and by a difference."""
    found = {}
    for kind in KINDS:
        random = np.random.default_rng(seed)
        score, p = drawn(kind, 7, random)
        x, y, values, place = batch(np.eye(C), random)
        truth = values[np.arange(N), place]
        direction = {name: random.standard_normal(w.shape) for name, w in p.items()}
        z, _, backward = attend(score, p, x, y, values)
        by_hand = sum(float((g * direction[name]).sum()) for name, g in backward(z - truth).items())
        ends = []
        for h in (1e-6, -1e-6):
            moved = {name: w + h * direction[name] for name, w in p.items()}
            ends.append(0.5 * ((attend(score, moved, x, y, values)[0] - truth) ** 2).sum())
        found[kind] = by_hand, float(ends[0] - ends[1]) / 2e-6
    return found


def draw(errors: dict[tuple[str, int], list[float]], widths: list[int], path: Path) -> None:
    """Write the picture: the error by d_k, a line for each score, a point for each seed."""
    from pellucid.apps.teach import pictures

    with pictures.style("additive"):
        figure, (ax,) = pictures.new_figure(7.0, 4.2, 1)
        for colour, kind in zip(pictures.COLOURS, KINDS, strict=False):
            ends = np.array([sorted(errors[kind, d_k]) for d_k in widths])
            ax.plot(widths, ends[:, ends.shape[1] // 2], "o-", color=colour, label=kind)
            ax.fill_between(widths, ends[:, 0], ends[:, -1], color=colour, alpha=0.2)
        ax.set_xscale("log", base=2)
        ax.set_xticks(widths, [str(d_k) for d_k in widths])
        ax.set(xlabel="$d_k$", ylabel="error on new queries (1 = equal weights)", yscale="log")
        ax.legend()
    pictures.save(figure, path)


def table(stored: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Return the rows of the table in docs/articles.md: the errors' range, and what passes."""
    rows = []
    for kind, found in stored.items():
        widths = sorted(found, key=int)
        ranges = [
            f"{min(found[d_k]['errors']):.3f}–{max(found[d_k]['errors']):.3f}" for d_k in widths
        ]
        passes = ", ".join(f"{found[d_k]['passes']:.3f}" for d_k in (widths[0], widths[-1]))
        rows.append(" | ".join([NAMES[kind], *ranges, passes]))
    return rows


def main() -> None:
    """Print the table, store it, and draw it."""
    from pellucid.core.errors import UserError

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/examples"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--widths", type=int, nargs="+", default=[8, 32, 128, 512])
    given = parser.parse_args()
    for kind, (by_hand, numeric) in check().items():
        print(f"{kind:<12} slope by hand {by_hand:+.6f}, by difference {numeric:+.6f}")
    print("\nscore        d_k   at the start: variance, |da| / |dw|   error at the end, by seed")
    errors = {}
    stored: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for d_k in given.widths:
            runs = np.array(
                [
                    [learned(kind, d_k, rate, seed, given.steps) for rate in (3e-3, 1e-2, 3e-2)]
                    for seed in (0, 1, 2)
                ]
            )
            best = runs[:, :, 2].mean(axis=0).argmin()  # the learning rate, for all seeds
            variance, passes, _ = runs[:, best].mean(axis=0)
            errors[kind, d_k] = runs[:, best, 2].tolist()
            stored[kind][str(d_k)] = {"passes": float(passes), "errors": errors[kind, d_k]}
            ends = "  ".join(f"{error:.3f}" for error in errors[kind, d_k])
            print(f"{kind:<12} {d_k:<5} {variance:<23.2f} {passes:<13.3f}   {ends}", flush=True)
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "additive.json").write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
    try:
        draw(errors, given.widths, given.output / "additive.png")
    except UserError as error:  # matplotlib is not installed
        print(f"no picture: {error}")


if __name__ == "__main__":
    main()

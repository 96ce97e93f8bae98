"""The output layer and its loss: logits become their own gradient in place, a few rows at a time.

The logits are the largest array of a model, and the plain page sweeps over them a dozen times,
twice. Here a chunk of them is made by BLAS, and one sweep over each row, which fits the nearest
caches, turns it into softmax − target while its loss and the bias's gradient are summed. The two
products back to x and W follow at once, while the chunk is at hand. So forward does the work of
backward too, for a loss gradient of 1; backward only scales. Nothing as large as the logits is
kept: only dx, dW and db.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.kernels import threads
from pellucid.kernels.compile import kernel
from pellucid.kernels.math import exp
from pellucid.kernels.rows import plain_vector

Array = np.ndarray
_f = np.float32
# Logits held at once: fewer and larger chunks add to dW less often, and need more memory.
_HELD = 12_000_000


class Saved(NamedTuple):
    dx: Array
    dweight: Array
    dbias: Array | None


def accepts(
    x: Array,
    weight: Array,
    bias: Array | None,
    target: Array,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> bool:
    """float32 rows; targets within the vocabulary or ignored (the plain page names others)."""
    if not (
        all(
            isinstance(a, np.ndarray) and a.dtype == np.float32 and a.ndim == 2 for a in (x, weight)
        )
        and len(x) > 0
        and x.shape[1] == weight.shape[1]
        and plain_vector(bias, len(weight))
        and target.shape == x.shape[:1]
        and target.dtype == np.int64
        and 0.0 <= label_smoothing <= 1.0
    ):
        return False
    kept = target[target != ignore_index]
    return not len(kept) or bool(kept.min() >= 0 and kept.max() < len(weight))


def linear_cross_entropy(
    x: Array,
    weight: Array,
    bias: Array | None,
    target: Array,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[Array, Saved]:
    """See `ops.linear_cross_entropy`."""
    (rows, width), vocabulary = x.shape, len(weight)
    b = np.zeros(vocabulary, np.float32) if bias is None else bias
    chunks = max(1, -(-rows * vocabulary // _HELD))
    held = -(-rows // chunks)
    logits = np.empty((held, vocabulary), np.float32)
    losses = np.empty(rows, np.float64)
    dx = np.empty((rows, width), np.float32)
    dweight: Array | None = None
    dbias = np.zeros(vocabulary, np.float32)
    for begin in range(0, rows, held):
        end = min(rows, begin + held)
        here = logits[: end - begin]
        np.matmul(x[begin:end], weight.T, out=here)
        dbias += _to_gradients(
            here, b, target[begin:end], ignore_index, label_smoothing, losses[begin:end]
        )
        np.matmul(here, weight, out=dx[begin:end])
        product = here.T @ x[begin:end]
        dweight = product if dweight is None else np.add(dweight, product, out=dweight)
    assert dweight is not None
    total = np.asarray(losses.sum(), np.float32)
    return total, Saved(dx, dweight, None if bias is None else dbias)


def linear_cross_entropy_backward(dloss: Array, saved: Saved) -> tuple[Array, Array, Array | None]:
    """Return dx, dweight, dbias: those for a loss gradient of 1, times `dloss`."""
    dx, dweight, dbias = saved
    factor = np.float32(dloss)
    if factor == 1.0:
        return dx, dweight, dbias
    return dx * factor, dweight * factor, None if dbias is None else dbias * factor


def _to_gradients(
    logits: Array, bias: Array, target: Array, ignore_index: int, smoothing: float, losses: Array
) -> Array:
    """Turn logits into their gradients in place; write the losses, return the bias's gradient."""
    bounds = threads.cut(len(logits), 8)
    sums = np.zeros((len(bounds) - 1, logits.shape[1]), np.float32)

    def part(i: int) -> None:
        _rows(logits, bias, target, ignore_index, smoothing, bounds[i], bounds[i + 1], losses,
              sums[i])  # fmt: skip

    threads.run(part, len(bounds) - 1)
    return np.asarray(sums.sum(axis=0))


@kernel("void(f4[:,::1],f4[::1],i8[:],i8,f8,i8,i8,f8[:],f4[::1])")
def _rows(logits, bias, target, ignore_index, smoothing, begin, end, losses, dbias):
    vocabulary = logits.shape[1]
    share = _f(smoothing / vocabulary)
    for i in range(begin, end):
        if target[i] == ignore_index:
            losses[i] = 0.0
            logits[i, :] = _f(0.0)
            continue
        top, whole = _f(-np.inf), _f(0.0)
        for v in range(vocabulary):
            a = logits[i, v] + bias[v]
            logits[i, v] = a
            top = max(top, a)
            whole += a
        right = np.float64(logits[i, target[i]])
        base = _f(0.0) if top == _f(-np.inf) else top
        total = _f(0.0)
        for v in range(vocabulary):
            e = exp(logits[i, v] - base)
            logits[i, v] = e
            total += e
        lse = np.float64(base) + (np.log(np.float64(total)) if total > _f(0.0) else 0.0)
        losses[i] = lse - right
        if smoothing > 0.0:
            losses[i] += smoothing * (right - np.float64(whole) / vocabulary)
        factor = _f(1.0) / total if total > _f(0.0) else _f(0.0)
        at_target = logits[i, target[i]] * factor - share
        for v in range(vocabulary):
            d = logits[i, v] * factor - share
            logits[i, v] = d
            dbias[v] += d
        rest = _f(1.0 - smoothing)
        logits[i, target[i]] = at_target - rest
        dbias[target[i]] -= rest

"""The output layer and R-Drop's loss: both readings' logits become their own gradients in place.

As in `linear_cross_entropy`, a task takes a slice of tokens through all steps, here both rows of
each, and forward does the work of backward for a loss gradient of 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.core.vjp import Run, check_gradient
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import EXACT, inner
from pellucid.kernels.backend.math import exp
from pellucid.kernels.backend.matmul import multiply, multiply_rows, near_or_panels, panels
from pellucid.kernels.backend.rows import is_rows, is_vector, writeable
from pellucid.kernels.backend.simd import LANES, choose, full, highest, load, store, total
from pellucid.kernels.linear_cross_entropy import HELD, NOTHING, slices

Array = np.ndarray
_f = np.float32


def plan(
    x: Array,
    weight: Array,
    bias: Array | None,
    target: Array,
    *,
    alpha: float = 1.0,
    label_smoothing: float = 0.0,
) -> Run | None:
    """Plan `ops.linear_r_drop` for float32 rows and targets that exist; the page names others."""
    if not (
        is_rows(x)
        and is_rows(weight)
        and x.ndim == weight.ndim == 2
        and x.shape[1] == weight.shape[1]
        and is_vector(bias, len(weight))
        and len(x) == 2 * len(target)
        and target.shape == (len(target),)
        and target.dtype == np.int64
        and 0.0 <= label_smoothing <= 1.0
        and target.min() >= 0
        and target.max() < len(weight)
    ):
        return None
    rows, w, targets = writeable(x), writeable(weight), writeable(target)
    start = NOTHING if bias is None else writeable(bias)

    def run() -> tuple[Array, Any]:
        loss, dx, dweight, dbias = _with_gradients(rows, w, start, targets, alpha, label_smoothing)

        def backward(dloss: Array) -> tuple[Array, Array, Array | None]:
            """Return dx, dweight, dbias: those for a loss gradient of 1, times `dloss`."""
            check_gradient(dloss, ())
            factor = np.float32(dloss)
            return dx * factor, dweight * factor, None if bias is None else dbias * factor

        return loss, backward

    return run


def _with_gradients(
    x: Array, weight: Array, bias: Array, target: Array, alpha: float, smoothing: float
) -> tuple[Array, Array, Array, Array]:
    """Return the loss, and dx, dweight, dbias for a loss gradient of 1."""
    tokens, vocabulary = len(target), len(weight)
    chunks = max(1, -(-2 * tokens * vocabulary // HELD))
    held = -(-tokens // chunks)
    losses = np.empty(tokens, np.float64)
    logits = np.empty((2 * held, vocabulary), np.float32)
    dx, dweight = np.empty_like(x), np.empty_like(weight)
    dbias, sums = np.zeros(vocabulary, np.float32), np.empty(vocabulary, np.float32)
    to_logits, to_dx = panels(weight.T), panels(weight)

    for begin in range(0, tokens, held):
        end = min(begin + held, tokens)
        both = np.concatenate([x[begin:end], x[tokens + begin : tokens + end]])
        dboth = np.empty_like(both)
        dlogits = logits[: len(both)]
        _chunk(
            slices(end - begin), both, to_logits, to_dx, bias, target[begin:end], alpha, smoothing,
            dlogits, losses[begin:end], dboth,
        )  # fmt: skip
        multiply(dlogits.T, near_or_panels(both), dweight, add=begin > 0, sums=sums)
        dbias += sums
        dx[begin:end], dx[tokens + begin : tokens + end] = np.split(dboth, 2)
    return np.asarray(losses.sum(), np.float32), dx, dweight, dbias


@threads.parallel("f4[:,::1],f4[:,::1],f4[:,::1],f4[::1],i8[:],f8,f8,f4[:,::1],f8[:],f4[:,::1]")
def _chunk(task, tasks, x, to_logits, to_dx, bias, target, alpha, smoothing, logits, losses, dx):
    tokens = len(target)
    begin, end = threads.slice_of(task, tasks, tokens)
    nothing = dx[0, :0]
    for half in range(2):
        first = half * tokens + begin
        last = half * tokens + end
        multiply_rows(x, to_logits, logits, bias, False, nothing, first, last, 0, len(to_logits))
    _to_gradients(logits, target, alpha, smoothing, losses, begin, end)
    for half in range(2):
        first = half * tokens + begin
        last = half * tokens + end
        multiply_rows(logits, to_dx, dx, nothing, False, nothing, first, last, 0, len(to_dx))


@inner(EXACT)
def _to_gradients(logits, target, alpha, smoothing, losses, begin, end):
    """Compute the losses of tokens and, in place of both rows of logits, their gradients."""
    vocabulary = logits.shape[1]
    whole = vocabulary // LANES * LANES  # the rest of a row is done number by number
    off_target = _f(0.5 * smoothing / vocabulary)
    half, pull = _f(0.5), _f(0.25 * alpha)
    for i in range(begin, end):
        t, other = target[i], i + len(target)
        top_p, rest_p, loss_p = _log_sum(logits, i, whole, t, smoothing)
        top_q, rest_q, loss_q = _log_sum(logits, other, whole, t, smoothing)
        at, after = i * vocabulary, other * vocabulary

        from_p, from_q = full(_f(0.0)), full(_f(0.0))
        for v in range(0, whole, LANES):
            a = load(logits, at + v) - top_p - rest_p
            b = load(logits, after + v) - top_q - rest_q
            d = _difference(a, b)
            from_p = from_p + exp(a) * d
            from_q = from_q + exp(b) * d
        p_q, q_p = np.float64(total(from_p)), -np.float64(total(from_q))  # KL(p‖q), KL(q‖p)
        for v in range(whole, vocabulary):
            a = logits[i, v] - top_p - rest_p
            b = logits[other, v] - top_q - rest_q
            d = _difference(a, b)
            p_q += exp(a) * d
            q_p -= exp(b) * d
        losses[i] = 0.5 * (loss_p + loss_q) + 0.25 * alpha * (p_q + q_p)

        # α/4 [p (d − KL(p‖q)) + p − q] + ½ (p − t), and the same with p and q exchanged
        own_p = _f(0.5 + 0.25 * alpha * (1.0 - p_q))
        own_q = _f(0.5 + 0.25 * alpha * (1.0 - q_p))
        for v in range(0, whole, LANES):
            a = load(logits, at + v) - top_p - rest_p
            b = load(logits, after + v) - top_q - rest_q
            p, q, d = exp(a), exp(b), _difference(a, b) * pull
            store(logits, at + v, p * (d + own_p) - q * pull - off_target)
            store(logits, after + v, q * (own_q - d) - p * pull - off_target)
        for v in range(whole, vocabulary):
            a = logits[i, v] - top_p - rest_p
            b = logits[other, v] - top_q - rest_q
            p, q, d = exp(a), exp(b), _difference(a, b) * pull
            logits[i, v] = p * (d + own_p) - q * pull - off_target
            logits[other, v] = q * (own_q - d) - p * pull - off_target
        logits[i, t] -= half * _f(1.0 - smoothing)
        logits[other, t] -= half * _f(1.0 - smoothing)


@inner()
def _difference(a, b):
    """a − b, 0 where they are equal: −inf − (−inf) is NaN."""
    return choose(a > b, a - b, choose(a < b, a - b, _f(0.0)))


@inner(EXACT)
def _log_sum(logits, i, whole, t, smoothing):
    """Return the largest logit z of a row, log Σ exp(z − it), and the row's cross-entropy.

    The two are subtracted one after the other: their sum would be rounded more.
    """
    vocabulary = logits.shape[1]
    at = i * vocabulary
    tops = full(_f(-np.inf))
    for v in range(0, whole, LANES):
        a = load(logits, at + v)
        tops = choose(a > tops, a, tops)
    top = highest(tops)
    for v in range(whole, vocabulary):
        top = logits[i, v] if logits[i, v] > top else top
    base = _f(0.0) if top == _f(-np.inf) else top

    sums = full(_f(0.0))
    for v in range(0, whole, LANES):
        sums = sums + exp(load(logits, at + v) - base)
    sum_ = np.float64(total(sums))
    for v in range(whole, vocabulary):
        sum_ += exp(logits[i, v] - base)

    right = np.float64(logits[i, t])
    if smoothing > 0.0 and right != -np.inf:  # where it is, the loss is inf already
        mean = np.float64(0.0)
        for v in range(vocabulary):
            mean += np.float64(logits[i, v])
        right += smoothing * (mean / vocabulary - right)
    rest = np.log(sum_) if sum_ > 0.0 else 0.0
    return base, _f(rest), np.float64(base) + rest - right

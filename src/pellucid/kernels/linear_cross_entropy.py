"""The output layer and its loss, which computes the gradients already in forward.

The logits are the largest array of a model, and the reference op passes over them a dozen times in
forward and again in backward. Here a task computes the logits of a slice of rows, replaces them by
their gradient softmax − target, and multiplies the slice by W to get dx while it is in the cache.
The slices of a chunk then update dW and db in place. So forward does the work of backward too, for
a loss gradient of 1, and backward only scales. No more than about `HELD` logits are stored at a
time.
"""

from functools import cache

import numpy as np

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import inner, variant
from pellucid.kernels.backend.math import exp
from pellucid.kernels.backend.matmul import HEIGHT, NOTHING, Products, products
from pellucid.kernels.backend.rows import is_rows, is_vector
from pellucid.kernels.backend.simd import LANES, load, reduce_add, reduce_max, select, splat, store
from pellucid.kernels.backend.tile import ROWS

Array = np.ndarray
_f = np.float32
# Number of logits in memory at a time. A chunk adds to the whole of dW, so it should have many
# rows; but memory of over 32 MB would be returned to the system, and cleared by it, each time.
HELD = 7_500_000
_SPAN = 4096  # numbers of a row that are summed in float32


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.linear_cross_entropy` for float32 rows and valid targets.

    A target outside 0 … V − 1 that is not `ignore_index` is declined, so that the reference op
    raises its error, which names it.
    """
    x, weight, bias, target = call.x, call.weight, call.bias, call.target
    ignore_index, label_smoothing = call.ignore_index, call.label_smoothing
    if not (
        is_rows(x)
        and is_rows(weight)
        and x.ndim == weight.ndim == 2
        and x.shape[1] == weight.shape[1]
        and is_vector(bias, len(weight))
        and target.shape == x.shape[:1]
        and target.dtype == np.int64
        and 0.0 <= label_smoothing <= 1.0
    ):
        return Declined("expects float32 rows, float32 weights and int64 targets (T,)")
    kept = target[target != ignore_index]
    if len(kept) and (kept.min() < 0 or kept.max() >= len(weight)):
        return Declined("a target is no row of the weights")

    start = NOTHING if bias is None else bias
    loss, dx, dweight, dbias = _with_gradients(
        x, weight, start, target, ignore_index, label_smoothing
    )

    def backward(dloss: Array) -> tuple[Array, Array, Array | None]:
        """Return dx, dweight, dbias: those computed in forward, times `dloss`."""
        check_gradient(dloss, ())
        factor = np.float32(dloss)
        gradients = (dx, dweight, None if bias is None else dbias)
        if factor == 1.0:
            return gradients
        return tuple(None if d is None else d * factor for d in gradients)  # type: ignore[return-value]

    return loss, backward


def slices(rows: int) -> int:
    """Return the number of slices, of at most HEIGHT rows, into which to divide a chunk.

    It is a multiple of the number of threads if there are enough rows.
    """
    count = threads.count()
    wanted = -(-rows // (HEIGHT * count)) * count
    return max(1, min(wanted, rows // ROWS))


def _with_gradients(
    x: Array,
    weight: Array,
    bias: Array,
    target: Array,
    ignore_index: int,
    smoothing: float,
) -> tuple[Array, Array, Array, Array]:
    """Return the summed loss, and dx, dweight, dbias for a loss gradient of 1."""
    rows, vocabulary = len(x), len(weight)
    chunks = max(1, -(-rows * vocabulary // HELD))
    held = -(-rows // chunks)
    logits = np.empty((held, vocabulary), np.float32)
    losses = np.empty(rows, np.float64)
    dx, dweight = np.empty_like(x), np.empty_like(weight)
    dbias, sums = np.zeros(vocabulary, np.float32), np.empty(vocabulary, np.float32)
    own = products()
    to_logits, to_dx = own.panels(weight.T), own.panels(weight)
    of_chunk = _chunk(own)

    for begin in range(0, rows, held):
        chunk = slice(begin, begin + held)
        dlogits = logits[: len(x[chunk])]
        of_chunk(
            slices(len(dlogits)), x[chunk], to_logits, to_dx, bias, target[chunk],
            ignore_index, smoothing, dlogits, losses[chunk], dx[chunk],
        )  # fmt: skip
        own.multiply(dlogits.T, own.panels(x[chunk]), dweight, add=begin > 0, sums=sums)
        dbias += sums
    return np.asarray(losses.sum(), np.float32), dx, dweight, dbias


@cache
def _chunk(own: Products) -> threads.ParallelKernel:
    """Return the kernel that computes losses, logit gradients and dx of a chunk of rows."""
    multiply_rows = own.multiply_rows

    def _chunk(
        task, tasks, x, to_logits, to_dx, bias, target, ignore_index, smoothing, logits, losses, dx
    ):
        begin, end = threads.slice_of(task, tasks, len(x))
        nothing = dx[0, :0]
        multiply_rows(x, to_logits, logits, bias, False, nothing, begin, end, 0, len(to_logits))
        _to_gradients(logits, target, ignore_index, smoothing, losses, begin, end)
        multiply_rows(logits, to_dx, dx, nothing, False, nothing, begin, end, 0, len(to_dx))

    signature = "f4[:,::1],f4[:,::1],f4[:,::1],f4[::1],i8[:],i8,f8,f4[:,::1],f8[:],f4[:,::1]"
    return threads.parallel(signature)(variant(_chunk, own.name))


@inner()
def _to_gradients(logits, target, ignore_index, smoothing, losses, begin, end):
    """Compute the losses of rows of logits, and replace the logits by their gradients."""
    vocabulary = logits.shape[1]
    whole = vocabulary // LANES * LANES  # the rest of a row is done number by number
    off_target = _f(smoothing / vocabulary)
    for i in range(begin, end):
        at, t = i * vocabulary, target[i]
        if t == ignore_index:
            losses[i] = 0.0
            for v in range(vocabulary):
                logits[i, v] = _f(0.0)
            continue

        maxima, mean = splat(_f(-np.inf)), np.float64(0.0)
        for start in range(0, whole, _SPAN):
            sums = splat(_f(0.0))
            for v in range(start, min(start + _SPAN, whole), LANES):
                a = load(logits, at + v)
                maxima, sums = select(a > maxima, a, maxima), sums + a
            mean += np.float64(reduce_add(sums))
        maximum = reduce_max(maxima)
        for v in range(whole, vocabulary):
            maximum = logits[i, v] if logits[i, v] > maximum else maximum
            mean += np.float64(logits[i, v])
        mean /= vocabulary
        base = _f(0.0) if maximum == _f(-np.inf) else maximum

        right, sum_ = np.float64(logits[i, t]), np.float64(0.0)
        for start in range(0, whole, _SPAN):
            sums = splat(_f(0.0))
            for v in range(start, min(start + _SPAN, whole), LANES):
                e = exp(load(logits, at + v) - base)
                sums = sums + e
                store(logits, at + v, e)
            sum_ += np.float64(reduce_add(sums))
        for v in range(whole, vocabulary):
            logits[i, v] = exp(logits[i, v] - base)
            sum_ += np.float64(logits[i, v])
        log_sum = np.float64(base) + (np.log(sum_) if sum_ != 0.0 else 0.0)
        losses[i] = log_sum - right
        if smoothing > 0.0 and right != -np.inf:  # where it is, the loss is inf already
            losses[i] += smoothing * (right - mean)

        factor = _f(1.0 / sum_) if sum_ != 0.0 else _f(0.0)
        for v in range(0, whole, LANES):
            store(logits, at + v, load(logits, at + v) * factor - off_target)
        for v in range(whole, vocabulary):
            logits[i, v] = logits[i, v] * factor - off_target
        logits[i, t] -= _f(1.0 - smoothing)

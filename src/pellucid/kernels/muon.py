"""The step of Muon for all matrices of a model: one task each, products with their kernel.

NumPy needs five products of three kinds for each matrix, one after another. Here a matrix stays in
the cache, and the threads share the matrices. X is kept with more rows than columns, so that
A = XᵀX is the smaller of the two Gram matrices; its columns are padded to whole vectors with zeros.
"""

import numpy as np

from pellucid.core.vjp import Call, Declined, Result, no_backward
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import empty
from pellucid.kernels.backend.simd import address_of, nowhere
from pellucid.kernels.backend.slices import address, floats, whole
from pellucid.kernels.backend.tile import padded, product
from pellucid.optim.muon import ITERATIONS, LEAST_NORM, NEWTON_SCHULZ

_f = np.float32
_A, _B, _C = map(_f, NEWTON_SCHULZ)


def kernel(call: Call) -> Result | Declined:
    """Update all matrices and their momentum in place, by the step of `optim.muon.muon`.

    In the call, θ, gradient, states and step are lists over the parameters; gradients are
    multiplied by `call.scale` on the way, and their arrays are not changed.
    """
    tensors = list(zip(call.theta, call.gradient, *zip(*call.states, strict=True), strict=True))
    if not whole(x for arrays in tensors for x in arrays):
        return Declined("expects float32 arrays, each in one piece that may be written")
    addresses = np.array([[address(x) for x in arrays] for arrays in tensors], np.int64)
    shapes = np.array([theta.shape for theta in call.theta], np.int64)
    numbers = call.scale, call.momentum, 1 - call.lr * call.weight_decay, 0.2 * call.lr
    _step(len(tensors), addresses, shapes, *map(_f, numbers))
    return None, no_backward


@threads.parallel("i8[:,::1],i8[:,::1],f4,f4,f4,f4")
def _step(task, tasks, addresses, shapes, scale, momentum, keep, rate):
    """Update one matrix."""
    rows, columns = shapes[task, 0], shapes[task, 1]
    tall, short = max(rows, columns), min(rows, columns)
    width = padded(short)
    size = tall * width
    down, right = (width, 1) if rows == tall else (1, width)  # where X has θ's rows and columns
    x = empty(2 * size, np.float32)  # before and after an iteration
    gram, square = empty((short, width), np.float32), empty((short, width), np.float32)
    theta = floats(addresses[task, 0], 0, rows * columns)
    gradient = floats(addresses[task, 1], 0, rows * columns)
    m = floats(addresses[task, 2], 0, rows * columns)
    for i in range(size):
        x[i] = _f(0.0)
    total = 0.0
    for i in range(rows):
        for j in range(columns):
            at = i * columns + j
            g = gradient[at] * scale
            m[at] += (g - m[at]) * (_f(1.0) - momentum)
            u = g + (m[at] - g) * momentum
            x[i * down + j * right] = u
            total += np.float64(u) * np.float64(u)
    norm = max(np.sqrt(_f(total)), _f(LEAST_NORM))
    for i in range(size):
        x[i] /= norm
    of_gram, of_square = address_of(gram, 0), address_of(square, 0)
    for k in range(ITERATIONS):
        now, then = address_of(x, k % 2 * size), address_of(x, (k + 1) % 2 * size)
        product(short, width, tall, now, 1, width, now, width, of_gram, width, nowhere(), 0)
        product(short, width, short, of_gram, width, 1, of_gram, width, of_square, width,
                nowhere(), 0)  # fmt: skip
        for i in range(short):
            for j in range(width):
                gram[i, j] = _B * gram[i, j] + _C * square[i, j]
            gram[i, i] += _A
        product(tall, width, short, now, width, 1, of_gram, width, then, width, nowhere(), 0)
    last, step = ITERATIONS % 2 * size, rate * np.sqrt(_f(tall))
    for i in range(rows):
        for j in range(columns):
            at = i * columns + j
            theta[at] = theta[at] * keep - step * x[last + i * down + j * right]

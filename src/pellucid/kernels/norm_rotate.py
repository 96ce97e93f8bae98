"""Normalise and rotate heads in one pass over memory, and compute the backward in another.

Backward needs the input and 1 / √(mean square + ε) of each head; x̂ is computed again.

The cosines and sines of a batch are computed by the reference op, and cached by its positions for
all layers. As in `add_dropout_norm`, a loop that sums does not write.
"""

from functools import lru_cache

import numpy as np

from pellucid import ops
from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels.add_dropout_norm import BLOCK, is_affine
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.math import inverse_root
from pellucid.kernels.backend.rows import gradient_rows, is_rows, row_tasks, sum_tasks
from pellucid.kernels.backend.simd import get
from pellucid.ops.norm_rotate import gains_of
from pellucid.ops.rotary import Angles, cos_sin

Array = np.ndarray
_f = np.float32


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.norm_rotate` for contiguous float32 heads, with rotary or no positions.

    Raises `ValueError` when x has query and key heads but only one of the two weights is given.
    """
    x, positions, weights = call.x, call.positions, (call.q_weight, call.k_weight)
    if not (
        is_rows(x)
        and x.ndim == 3
        and all(is_affine(weight, None, x.shape[2], call.eps) for weight in weights)
    ):
        return Declined("expects float32 heads of at least two numbers in one piece of memory")
    rows, heads, width = x.shape
    cos = sin = np.empty((0, width // 2), np.float32)
    if positions is not None:
        if call.rotate is not ops.rotary:
            return Declined(f"no kernel knows the rotation {call.rotate.__name__}")
        if positions.dtype != np.int64 or positions.shape != (rows,) or width % 2:
            return Declined("expects int64 positions of all rows, and heads of an even width")
        cos, sin = _turns(positions.tobytes(), width, call.angles)
    q, k = call.heads
    gains = gains_of(call.heads, *weights)
    normed = gains is not None
    gains = np.ones((q + k, width), np.float32) if gains is None else np.ascontiguousarray(gains)
    y, inverse = np.empty(x.shape, np.float32), np.ones((rows, q + k), np.float32)
    tasks = row_tasks(rows, heads * width)
    _forward(tasks, x, normed, gains, np.float32(call.eps), cos, sin, y, inverse)

    def backward(dy: Array) -> tuple[Array, Array | None, Array | None]:
        """Return dx, dq_weight and dk_weight."""
        dy = gradient_rows(dy, x.shape).reshape(x.shape)
        dx, tasks = np.empty_like(x), sum_tasks(rows, heads * width)
        sums = np.zeros((tasks, *gains.shape), np.float32)
        _backward(tasks, dy, x, normed, gains, inverse, cos, sin, dx, sums)
        of = sums.sum(axis=0)
        dq, dk = (d.sum(axis=0) if normed and len(d) else None for d in (of[:q], of[q:]))
        return dx, dq, dk

    return y, backward


@lru_cache(maxsize=8)
def _turns(positions: bytes, width: int, angles: Angles) -> tuple[Array, Array]:
    """Return cos θ and sin θ of every row's position, (T, D / 2); positions as bytes, cached."""
    head = np.empty((0, 1, width), np.float32)
    cos, sin = cos_sin(np.frombuffer(positions, np.int64), head, angles)
    return cos[:, 0], sin[:, 0]


@threads.parallel("f4[:,:,::1],b1,f4[:,::1],f4,f4[:,::1],f4[:,::1],f4[:,:,::1],f4[:,::1]")
def _forward(task, tasks, x, normed, gains, eps, cos, sin, y, inverse):
    """Compute a slice of the rows."""
    begin, end = threads.slice_of(task, tasks, len(x))
    heads, width = x.shape[1], x.shape[2]
    half, per_number = width // 2, 1.0 / width
    for i in range(begin, end):
        for h in range(len(gains)):
            r, row = _f(1.0), (i * heads + h) * width
            if normed:
                squares = 0.0
                for first in range(0, width, BLOCK):
                    part = _f(0.0)
                    for j in range(first, min(first + BLOCK, width)):
                        part += get(x, row + j) * get(x, row + j)
                    squares += part
                r = inverse_root(_f(squares * per_number) + eps)
                inverse[i, h] = r
            if len(cos):
                for j in range(half):
                    a, b = x[i, h, j] * r * gains[h, j], x[i, h, half + j] * r * gains[h, half + j]
                    y[i, h, j] = a * cos[i, j] - b * sin[i, j]
                    y[i, h, half + j] = b * cos[i, j] + a * sin[i, j]
            else:
                for j in range(width):
                    y[i, h, j] = x[i, h, j] * r * gains[h, j]
        for h in range(len(gains), heads):
            for j in range(width):
                y[i, h, j] = x[i, h, j]


@threads.parallel(
    "f4[:,:,::1],f4[:,:,::1],b1,f4[:,::1],f4[:,::1],f4[:,::1],f4[:,::1],f4[:,:,::1],f4[:,:,::1]"
)
def _backward(task, tasks, dy, x, normed, gains, inverse, cos, sin, dx, sums):
    """Compute dx of a slice of the rows, and the task's part of the weights' gradients."""
    begin, end = threads.slice_of(task, tasks, len(x))
    heads, width = x.shape[1], x.shape[2]
    half, per_number = width // 2, 1.0 / width
    for i in range(begin, end):
        for h in range(heads):
            if h < len(gains) and len(cos):
                for j in range(half):
                    a, b = dy[i, h, j], dy[i, h, half + j]
                    dx[i, h, j] = a * cos[i, j] + b * sin[i, j]
                    dx[i, h, half + j] = b * cos[i, j] - a * sin[i, j]
            else:
                for j in range(width):
                    dx[i, h, j] = dy[i, h, j]
        for h in range(len(gains) if normed else 0):
            r, row, sum_gx = inverse[i, h], (i * heads + h) * width, 0.0
            for first in range(0, width, BLOCK):
                part = _f(0.0)
                for j in range(first, min(first + BLOCK, width)):
                    part += get(dx, row + j) * get(gains, h * width + j) * get(x, row + j)
                sum_gx += part
            mean_gx = _f(sum_gx * per_number) * r
            for j in range(width):
                sums[task, h, j] += dx[i, h, j] * (x[i, h, j] * r)
            for j in range(width):
                g = dx[i, h, j] * gains[h, j]
                dx[i, h, j] = (g - x[i, h, j] * r * mean_gx) * r

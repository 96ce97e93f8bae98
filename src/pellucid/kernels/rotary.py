"""Rotary positions in one pass over memory, from and to heads of any strides.

The cosines and sines of a batch are those of the page, found once for its positions: every layer
asks again, for queries and for keys.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.rows import row_tasks, writeable
from pellucid.kernels.flash import is_heads
from pellucid.ops.rotary import Angles, cos_sin

Array = np.ndarray


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.rotary` for float32 with a head's numbers adjacent."""
    x, positions = call.x, call.positions
    if not (
        is_heads(x)
        and x.size > 0
        and x.shape[2] % 2 == 0
        and isinstance(positions, np.ndarray)
        and positions.dtype == np.int64
        and positions.shape == x.shape[:1]
    ):
        return Declined("expects float32 heads of an even width and their int64 positions")
    cos, sin, minus = _turns(positions.tobytes(), x.shape[2], call.angles)

    def backward(dy: Array) -> Array:
        """Return dx."""
        check_gradient(dy, x.shape)
        given = dy if is_heads(dy) else np.array(dy, np.float32, order="C")
        return _turned(given, cos, minus)

    return _turned(x, cos, sin), backward


@lru_cache(maxsize=8)
def _turns(positions: bytes, width: int, angles: Angles) -> tuple[Array, Array, Array]:
    """Return cos θ, sin θ and −sin θ of every row's position, (T, D / 2)."""
    head = np.empty((0, 1, width), np.float32)
    cos, sin = (part[:, 0] for part in cos_sin(np.frombuffer(positions, np.int64), head, angles))
    return cos, sin, -sin


def _turned(x: Array, cos: Array, sin: Array) -> Array:
    y = np.empty(x.shape, np.float32)
    _turn(row_tasks(len(x), x.shape[1] * x.shape[2]), writeable(x), cos, sin, y)
    return y


@threads.parallel("f4[:,:,:],f4[:,::1],f4[:,::1],f4[:,:,::1]")
def _turn(task, tasks, x, cos, sin, y):
    begin, end = threads.slice_of(task, tasks, len(x))
    half = cos.shape[1]
    for i in range(begin, end):
        for h in range(x.shape[1]):
            for j in range(half):
                a, b = x[i, h, j], x[i, h, half + j]
                y[i, h, j] = a * cos[i, j] - b * sin[i, j]
                y[i, h, half + j] = b * cos[i, j] + a * sin[i, j]

"""Adam's step and the gradient's norm: one pass over memory each, on all threads.

The plain page makes a dozen passes over arrays far larger than the cache, so memory sets its speed.
Here every number is read once and written once, in place: the optimiser owns these arrays. The
factor for clipping and the loss's normalisation is folded in, so no scaled gradient is ever made.
The order of operations is the plain page's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.kernels import threads
from pellucid.kernels.compile import kernel

Array = np.ndarray
_SLICE = 1 << 16  # numbers worth a part of their own


def accepts(*arrays: Array) -> bool:
    """float32 in one piece of memory, all of one shape."""
    return all(
        x.dtype == np.float32
        and x.flags.c_contiguous
        and x.flags.writeable
        and x.shape == arrays[0].shape
        for x in arrays
    )


def adam_step(
    theta: Array,
    gradient: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    *,
    scale: float,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """Do `training.optim.adam` on scale · gradient, writing θ and both moments in place."""
    beta1, beta2 = betas
    keep = 1 - lr * weight_decay if decoupled else 1.0
    numbers = [
        np.float32(x)
        for x in (
            scale,
            0.0 if decoupled else weight_decay,
            keep,
            1 - beta1,
            beta2,
            1 - beta2,
            1 / (1 - beta2**step) ** 0.5,
            eps,
            lr / (1 - beta1**step),
        )
    ]
    flat = [x.reshape(-1) for x in (theta, gradient, exp_avg, exp_avg_sq)]
    bounds = threads.cut(theta.size, _SLICE)

    def part(i: int) -> None:
        _step(*(x[bounds[i] : bounds[i + 1]] for x in flat), *numbers)

    threads.run(part, len(bounds) - 1)


def sum_of_squares(x: Array) -> float:
    """Return Σ x² in float64: slices of a fixed size, added in order."""
    flat = x.reshape(-1)
    starts = range(0, len(flat), _SLICE)
    sums = [0.0] * len(starts)

    def part(i: int) -> None:
        sums[i] = _squares(flat[i * _SLICE : (i + 1) * _SLICE])

    if len(starts) > 1:
        threads.run(part, len(starts))
    elif starts:
        part(0)
    return float(sum(sums))


@kernel("void(f4[::1],f4[::1],f4[::1],f4[::1],f4,f4,f4,f4,f4,f4,f4,f4,f4)")
def _step(theta, gradient, m, v, scale, decay, keep, rest1, beta2, rest2, unbias2, eps, rate):
    for i in range(theta.size):
        here = theta[i] * keep
        g = gradient[i] * scale + decay * here
        m_i = m[i] + (g - m[i]) * rest1
        v_i = beta2 * v[i] + rest2 * (g * g)
        m[i], v[i] = m_i, v_i
        theta[i] = here - rate * (m_i / (np.sqrt(v_i) * unbias2 + eps))


@kernel("f8(f4[::1])")
def _squares(x: Any) -> Any:
    total = 0.0
    for i in range(x.size):
        wide = np.float64(x[i])
        total += wide * wide
    return total

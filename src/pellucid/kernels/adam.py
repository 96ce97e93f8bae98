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
    _step(threads.count(theta.size, _SLICE), *flat, *numbers)


def sum_of_squares(x: Array) -> float:
    """Return Σ x² in float64: slices of a fixed size, added in order."""
    sums = np.empty(-(-x.size // _SLICE))
    _squares(len(sums), x.reshape(-1), sums)
    return float(sum(sums.tolist()))


@threads.shared("f4[::1],f4[::1],f4[::1],f4[::1],f4,f4,f4,f4,f4,f4,f4,f4,f4")
def _step(
    part, parts, theta, gradient, m, v, scale, decay, keep, rest1, beta2, rest2, unbias2, eps, rate
):
    # Slices, because an index that might be negative keeps a loop from being vectorised.
    begin, end = threads.span(part, parts, theta.size)
    theta, gradient, m, v = theta[begin:end], gradient[begin:end], m[begin:end], v[begin:end]
    for i in range(theta.size):
        here = theta[i] * keep
        g = gradient[i] * scale + decay * here
        m_i = m[i] + (g - m[i]) * rest1
        v_i = beta2 * v[i] + rest2 * (g * g)
        m[i], v[i] = m_i, v_i
        theta[i] = here - rate * (m_i / (np.sqrt(v_i) * unbias2 + eps))


@threads.shared("f4[::1],f8[::1]")
def _squares(part: Any, parts: Any, x: Any, sums: Any) -> None:
    total = 0.0
    here = x[part * _SLICE : (part + 1) * _SLICE]
    for i in range(here.size):
        wide = np.float64(here[i])
        total += wide * wide
    sums[part] = total

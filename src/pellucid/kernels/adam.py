"""Adam's step and the gradient's norm for all parameters at once: one pass over memory each.

The plain page makes a dozen passes over arrays far larger than the cache, so memory sets its speed.
Here every number is read once and written once, in place: the optimiser owns these arrays. The
factor for clipping and the loss's normalisation is folded in, so no scaled gradient is ever made.
The order of operations is the plain page's. A model has many small parameters, so one call takes
the addresses of all of them, and a task is a slice of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.simd import pointer

Array = np.ndarray
_SLICE = 1 << 16  # numbers worth a task of their own


def accepts(*arrays: Array) -> bool:
    """float32 in one piece of memory, all of one shape."""
    shape = arrays[0].shape
    for x in arrays:
        flags = x.flags
        if x.dtype != np.float32 or x.shape != shape:
            return False
        if not (flags.c_contiguous and flags.writeable):
            return False
    return True


def adam_step(
    parameters: Sequence[tuple[Array, Array, Array, Array]],
    steps: Sequence[int],
    *,
    scale: float,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """Do `training.optim.adam` on (θ, scale · gradient, m, v) of every parameter, in place.

    `steps` holds the number of each parameter's step, counted from 1.
    """
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
            eps,
        )
    ]
    unbias = {t: (1 / (1 - beta2**t) ** 0.5, lr / (1 - beta1**t)) for t in set(steps)}
    rates = np.array([unbias[t] for t in steps], np.float32)
    addresses = np.array([[_address(x) for x in arrays] for arrays in parameters], np.int64)
    slices = _slices(tuple(arrays[0].size for arrays in parameters))
    if len(slices):
        _step(len(slices), addresses, slices, rates, *numbers)


def sum_of_squares(arrays: Sequence[Array]) -> float:
    """Return Σ x² of all arrays in float64: slices of a fixed size, added in order."""
    slices = _slices(tuple(x.size for x in arrays))
    sums = np.empty(len(slices))
    if len(slices):
        _squares(len(slices), np.array([_address(x) for x in arrays], np.int64), slices, sums)
    return float(sum(sums.tolist()))


def _address(x: Array) -> int:
    address: int = x.__array_interface__["data"][0]
    return address


@lru_cache(maxsize=8)
def _slices(sizes: tuple[int, ...]) -> Array:
    """Return rows (which array, first number, how many) that cover arrays of these sizes."""
    slices = [
        (which, first, min(_SLICE, size - first))
        for which, size in enumerate(sizes)
        for first in range(0, size, _SLICE)
    ]
    return np.array(slices, np.int64).reshape(-1, 3)


@inner()
def _floats(address, first, size):
    return carray(pointer(address + 4 * first), (size,), np.float32)


@threads.parallel("i8[:,::1],i8[:,::1],f4[:,::1],f4,f4,f4,f4,f4,f4,f4")
def _step(task, tasks, addresses, slices, rates, scale, decay, keep, rest1, beta2, rest2, eps):
    which, first, size = slices[task, 0], slices[task, 1], slices[task, 2]
    theta, gradient = (
        _floats(addresses[which, 0], first, size),
        _floats(addresses[which, 1], first, size),
    )
    m, v = (
        _floats(addresses[which, 2], first, size),
        _floats(addresses[which, 3], first, size),
    )
    unbias2, rate = rates[which, 0], rates[which, 1]
    for i in range(theta.size):
        here = theta[i] * keep
        g = gradient[i] * scale + decay * here
        m_i = m[i] + (g - m[i]) * rest1
        v_i = beta2 * v[i] + rest2 * (g * g)
        m[i], v[i] = m_i, v_i
        theta[i] = here - rate * (m_i / (np.sqrt(v_i) * unbias2 + eps))


@threads.parallel("i8[::1],i8[:,::1],f8[::1]")
def _squares(task: Any, tasks: Any, addresses: Any, slices: Any, sums: Any) -> None:
    here = _floats(addresses[slices[task, 0]], slices[task, 1], slices[task, 2])
    total = 0.0
    for i in range(here.size):
        wide = np.float64(here[i])
        total += wide * wide
    sums[task] = total

"""Helpers of kernels that process rows: checks and conversions of arguments, and dropout bits."""

from typing import NamedTuple

import numpy as np

from pellucid.core.rng import Rng, keep_threshold
from pellucid.core.vjp import check_gradient
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import mix

Array = np.ndarray
_NUMBERS = 1 << 14  # numbers worth a separate task
_SUMS = 16  # partial sums of one kernel at most


class Bits(NamedTuple):
    """The numbers from which a kernel draws dropout bits; threshold 0 means no dropout."""

    names: Array  # (T,) uint32: the keys of the rows, empty without dropout
    site: np.uint32
    threshold: np.uint32
    scale: np.float32  # 1 / (1 − p)


NO_BITS = "dropout of 1, or an rng that names other rows than these"
"""Why a kernel with dropout declines where `dropout_bits` returns None."""
KEEP_ALL = Bits(np.empty(0, np.uint32), np.uint32(0), np.uint32(0), np.float32(1.0))


def is_rows(x: Array) -> bool:
    """Return whether x is a contiguous float32 array of at least two axes that is not empty."""
    return (
        isinstance(x, np.ndarray)
        and x.dtype == np.float32
        and x.ndim >= 2
        and x.size > 0
        and x.flags.c_contiguous
        and x.flags.aligned
    )


def is_vector(x: Array | None, width: int) -> bool:
    """Return whether x is None or a contiguous float32 vector of `width` numbers."""
    return x is None or (
        isinstance(x, np.ndarray)
        and x.dtype == np.float32
        and x.shape == (width,)
        and bool(x.flags.c_contiguous and x.flags.aligned)
    )


def read_only(y: Array) -> Array:
    """Return a read-only view of an output that backward reads again."""
    view = y.view()
    view.flags.writeable = False
    return view


def as_vector(x: Array | None, width: int, default: float) -> Array:
    """Return x, or if it is None a vector of `width` numbers that are all `default`."""
    return np.full(width, default, np.float32) if x is None else x


def gradient_rows(dy: Array, shape: tuple[int, ...]) -> Array:
    """Convert the gradient of an output of this shape to contiguous float32 rows.

    Raises `ValueError` when dy has another shape.
    """
    check_gradient(dy, shape)
    dy = np.ascontiguousarray(dy, np.float32)
    return (dy if dy.flags.aligned else dy.copy()).reshape(-1, shape[-1])


def dropout_bits(p: float, rng: Rng | None, rows: tuple[int, ...]) -> Bits | None:
    """Return the `Bits` for dropout of rows of this shape; None if a kernel cannot draw them.

    Nothing is dropped if p is 0 or `rng` is None. A kernel cannot draw if p is 1 or not a
    probability, or if `rng` has keys for rows of another shape.
    """
    if p == 0.0 or rng is None:
        return KEEP_ALL
    fit = rng.rows is None or rng.rows.shape == rows
    return bits_of(p, rng, rng.row_names(rows) if fit else None)


def bits_of(p: float, rng: Rng | None, names: Array | None) -> Bits | None:
    """Return the `Bits` for dropout of rows with these keys; None if a kernel cannot draw them.

    Nothing is dropped if p is 0 or `rng` is None. A kernel cannot draw if p is 1 or not a
    probability, or if `names` is None; the reference op then runs.
    """
    if p == 0.0 or rng is None:
        return KEEP_ALL
    if not 0.0 < p < 1.0 or names is None:
        return None
    names = np.ascontiguousarray(names).reshape(-1)
    return Bits(names, np.uint32(rng.site_key()), keep_threshold(p), np.float32(1.0 / (1.0 - p)))


@inner()
def row_start(names, row, site):
    """Return the hash from which a row's random bits are derived, as `Rng.row_hash` does."""
    return mix(np.uint32(names[row] ^ site))


def row_tasks(rows: int, width: int) -> int:
    """Return the number of tasks for rows of this width, if each task writes only its own rows."""
    most = max(_SUMS, threads.most_tasks())
    return threads.task_count(rows * width, _NUMBERS, most=min(most, rows))


def sum_tasks(rows: int, width: int) -> int:
    """Return the number of tasks for rows that are also summed, with a partial sum in each task.

    The bits of the sum depend on this number, so it depends only on the shape.
    """
    return threads.task_count(rows * width, _NUMBERS, most=min(_SUMS, rows))

"""Helpers of the row-by-row kernels: what they accept, what they make of it, dropout's bits."""

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
    """Inputs from which a kernel draws dropout's random bits; threshold 0 keeps everything."""

    names: Array  # (T,) uint32: the names of the rows, empty without dropout
    site: np.uint32
    threshold: np.uint32
    scale: np.float32  # 1 / (1 − p)


NO_BITS = "dropout of 1, or an rng that names other rows than these"
"""Why a kernel with dropout declines where `dropout_bits` returns None."""
KEEP_ALL = Bits(np.empty(0, np.uint32), np.uint32(0), np.uint32(0), np.float32(1.0))


def is_rows(x: Array) -> bool:
    """Return whether x is contiguous float32 rows with at least one number."""
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
    """Return a vector that `is_vector` accepts; `default` everywhere where it is None."""
    return np.full(width, default, np.float32) if x is None else x


def gradient_rows(dy: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of an output of this shape as contiguous rows.

    Raises `ValueError` when dy has another shape.
    """
    check_gradient(dy, shape)
    dy = np.ascontiguousarray(dy, np.float32)
    return (dy if dy.flags.aligned else dy.copy()).reshape(-1, shape[-1])


def dropout_bits(p: float, rng: Rng | None, rows: tuple[int, ...]) -> Bits | None:
    """Return the parameters of dropout bits for rows of this shape; None if `rng` has others."""
    if p == 0.0 or rng is None:
        return KEEP_ALL
    fit = rng.rows is None or rng.rows.shape == rows
    return bits_of(p, rng, rng.row_names(rows) if fit else None)


def bits_of(p: float, rng: Rng | None, names: Array | None) -> Bits | None:
    """Return the parameters that kernels draw the dropout bits of these rows from.

    None where the reference op must draw them: p is 1 or not a probability, or names are missing.
    """
    if p == 0.0 or rng is None:
        return KEEP_ALL
    if not 0.0 < p < 1.0 or names is None:
        return None
    names = np.ascontiguousarray(names).reshape(-1)
    return Bits(names, np.uint32(rng.site_key()), keep_threshold(p), np.float32(1.0 / (1.0 - p)))


@inner()
def row_start(names, row, site):
    """Return the hash that a row's random bits start from: `Rng.row_hash` inside a kernel."""
    return mix(np.uint32(names[row] ^ site))


def row_tasks(rows: int, width: int) -> int:
    """Return how many tasks to make of rows of this width, each writing to its own rows alone."""
    most = max(_SUMS, threads.most_tasks())
    return threads.task_count(rows * width, _NUMBERS, most=min(most, rows))


def sum_tasks(rows: int, width: int) -> int:
    """Return how many tasks to make of rows that are summed too, a partial sum in each task.

    The number decides the bits, so that it depends on the shape alone.
    """
    return threads.task_count(rows * width, _NUMBERS, most=min(_SUMS, rows))

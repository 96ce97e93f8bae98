"""What the row-by-row kernels share: their guards, and the dropout bits of a row."""

from __future__ import annotations

import numpy as np

from pellucid.core.rng import Rng, keep_threshold
from pellucid.core.vjp import check_gradient
from pellucid.kernels.backend import threads

Array = np.ndarray
_NUMBERS = 1 << 14  # numbers worth a part of their own


def plain_rows(x: Array) -> bool:
    """float32 in one piece of writeable memory (Numba asks for it), at least one number."""
    return (
        isinstance(x, np.ndarray)
        and x.dtype == np.float32
        and x.ndim >= 2
        and x.size > 0
        and x.flags.c_contiguous
        and x.flags.aligned
        and x.flags.writeable
    )


def plain_vector(x: Array | None, width: int) -> bool:
    """None, or `width` numbers of float32 in one piece of memory."""
    return x is None or (
        x.dtype == np.float32
        and x.shape == (width,)
        and bool(x.flags.c_contiguous and x.flags.writeable)
    )


def as_rows(dy: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of an output of this shape as rows in one piece of memory."""
    check_gradient(dy, shape)
    rows = np.ascontiguousarray(dy, np.float32).reshape(-1, shape[-1])
    return rows if rows.flags.writeable else rows.copy()


def can_drop(x: Array, p: float, rng: Rng | None) -> bool:
    """Whether the bits can be drawn here: p below 1, rows named for this shape or not at all."""
    if p == 0.0 or rng is None:
        return True
    return p < 1.0 and (rng.rows is None or rng.rows.shape == x.shape[:-1])


def dropout_bits(
    p: float, rng: Rng | None, rows: tuple[int, ...]
) -> tuple[Array, np.uint32, np.float32]:
    """Return (start of each row's bits, threshold, 1 / (1 − p)); threshold 0 keeps everything."""
    if p == 0.0 or rng is None:
        return np.empty(0, np.uint32), np.uint32(0), np.float32(1.0)
    return rng.row_hash(rows).reshape(-1), keep_threshold(p), np.float32(1.0 / (1.0 - p))


def parts_of(rows: int, width: int) -> int:
    """Return into how many parts rows are cut."""
    return threads.count(rows * width, _NUMBERS, most=min(16, rows))

"""Dropout in one pass: the hash is computed where the number is, and no mask is made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.core.rng import Rng
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.math import channel_bits
from pellucid.kernels.backend.rows import as_rows, can_drop, dropout_bits, parts_of, plain_rows

Array = np.ndarray


class Saved(NamedTuple):
    shape: tuple[int, ...]
    starts: Array
    threshold: np.uint32
    scale: np.float32


def accepts(x: Array, p: float, rng: Rng | None) -> bool:
    """float32 rows in one piece of memory, of which some are dropped (0 < p < 1)."""
    return p > 0.0 and rng is not None and plain_rows(x) and can_drop(x, p, rng)


def dropout(x: Array, p: float, rng: Rng | None) -> tuple[Array, Saved]:
    """See `ops.dropout`."""
    saved = Saved(x.shape, *dropout_bits(p, rng, x.shape[:-1]))
    return _drop(x, saved), saved


def dropout_backward(dy: Array, saved: Saved) -> Array:
    """Return dx: the same numbers dropped, the rest scaled as forward."""
    return _drop(as_rows(dy, saved.shape), saved)


def _drop(x: Array, saved: Saved) -> Array:
    shape, *bits = saved
    rows = x.reshape(-1, shape[-1])
    y = np.empty_like(rows)
    _rows(parts_of(*rows.shape), rows, *bits, y)
    return y.reshape(shape)


@threads.shared("f4[:,::1],u4[::1],u4,f4,f4[:,::1]")
def _rows(part, parts, x, starts, threshold, scale, y):
    begin, end = threads.span(part, parts, len(x))
    for i in range(begin, end):
        start = starts[i]
        for j in range(x.shape[1]):
            kept = channel_bits(start, np.uint32(j)) >= threshold
            y[i, j] = x[i, j] * scale if kept else np.float32(0.0)

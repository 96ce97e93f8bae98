"""Rows of a table, and the table's gradient: columns are shared out, so no two threads add to one
number, and the additions to it come in the order of the index."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.kernels.backend import threads
from pellucid.kernels.backend.rows import as_rows
from pellucid.ops.embedding import embedding as plain_embedding

Array = np.ndarray
_COLUMNS = 64  # of a table, worth a part of their own


class Saved(NamedTuple):
    ids: Array
    shape: tuple[int, int]
    padding_idx: int | None


def accepts(index: Array, weight: Array, padding_idx: int | None = None) -> bool:
    """64-bit integers into a float32 table that is not empty."""
    return (
        index.dtype == np.int64
        and index.flags.writeable
        and isinstance(weight, np.ndarray)
        and weight.dtype == np.float32
        and weight.ndim == 2
        and weight.size > 0
    )


def embedding(index: Array, weight: Array, padding_idx: int | None = None) -> tuple[Array, Saved]:
    """See `ops.embedding`, which does it: NumPy's `take` is as fast as memory."""
    y, _ = plain_embedding(index, weight, padding_idx)
    return y, Saved(index, weight.shape, padding_idx)


def embedding_backward(dy: Array, saved: Saved) -> Array:
    """Return dweight."""
    ids, (rows, width), padding_idx = saved
    flat = ids.reshape(-1)
    updates = as_rows(dy, (*ids.shape, width))
    dweight = np.zeros((rows, width), np.float32)
    skipped = -1 if padding_idx is None else padding_idx
    _add(threads.count(width, _COLUMNS, most=4), flat, updates, skipped, dweight)
    return dweight


@threads.shared("i8[:],f4[:,::1],i8,f4[:,::1]")
def _add(part, parts, index, updates, skipped, total):
    first, last = threads.span(part, parts, total.shape[1])
    for i in range(len(index)):
        row = index[i]
        if row != skipped:
            for j in range(first, last):
                total[row, j] += updates[i, j]

"""Dropout in one pass over memory: the hash is computed for each element; no mask is stored."""

import numpy as np

from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels.backend import rows as row_tools
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.math import channel_bits

Array = np.ndarray


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.dropout` for contiguous float32 rows, with an `rng` and 0 < p < 1.

    If the rng has row keys, there must be one for each row.
    """
    x = call.x
    bits = row_tools.dropout_bits(call.p, call.rng, x.shape[:-1]) if row_tools.is_rows(x) else None
    if bits is None or not bits.threshold:
        return Declined("expects float32 rows and a probability between 0 and 1, both excluded")
    shape = x.shape

    def dropped(rows: Array) -> Array:
        y = np.empty_like(rows)
        _rows(row_tools.row_tasks(*rows.shape), rows, *bits, y)
        return y.reshape(shape)

    # backward drops the same numbers
    return dropped(x.reshape(-1, shape[-1])), lambda dy: dropped(row_tools.gradient_rows(dy, shape))


@threads.parallel("f4[:,::1],u4[::1],u4,u4,f4,f4[:,::1]")
def _rows(task, tasks, x, names, site, threshold, scale, y):
    """Compute a slice of the rows."""
    begin, end = threads.slice_of(task, tasks, len(x))
    for i in range(begin, end):
        start = row_tools.row_start(names, i, site)
        for j in range(x.shape[1]):
            kept = channel_bits(start, np.uint32(j)) >= threshold
            y[i, j] = x[i, j] * scale if kept else np.float32(0.0)

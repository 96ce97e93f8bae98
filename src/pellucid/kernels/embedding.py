"""Embedding look-up, and the gradient of its table.

The columns of the gradient are divided among tasks. So no two threads add to the same number, and
the additions happen in the order of the index.
"""

import numpy as np

from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.rows import gradient_rows, row_tasks
from pellucid.ops.embedding import embedding

Array = np.ndarray
_COLUMNS = 16  # of a table, for a task: a line of the cache


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.embedding` for int64 indices and a float32 table that is not empty."""
    index, weight, padding_idx = call.index, call.weight, call.padding_idx
    if not (
        index.dtype == np.int64
        and index.flags.aligned
        and isinstance(weight, np.ndarray)
        and weight.dtype == np.float32
        and weight.ndim == 2
        and weight.size > 0
    ):
        return Declined("expects aligned int64 indices and a float32 table")
    rows, width = weight.shape
    flat = index.reshape(-1)
    skipped = -1 if padding_idx is None else padding_idx

    y, _ = embedding(index, weight, padding_idx)  # NumPy's `take` is as fast as memory

    def backward(dy: Array) -> Array:
        """Return dweight: zeros, to which the rows of dy are added, but for `padding_idx`."""
        updates = gradient_rows(dy, (*index.shape, width))
        dweight = np.empty((rows, width), np.float32)
        clearing = row_tasks(rows, width)
        # every task reads the whole index, so that there are no more of them than threads
        tasks = threads.task_count(width, _COLUMNS, most=max(4, threads.count()))
        _add(clearing, clearing + tasks, flat, updates, skipped, dweight)
        return dweight

    return y, backward


@threads.parallel("i8[:],f4[:,::1],i8,f4[:,::1]", stages=2)
def _add(task, clearing, tasks, index, updates, skipped, total):
    """Zero a slice of the rows (first stage), or add updates to a slice of the columns (second)."""
    if task < clearing:
        begin, end = threads.slice_of(task, clearing, len(total))
        for row in range(begin, end):
            for j in range(total.shape[1]):
                total[row, j] = np.float32(0.0)
        return
    first, last = threads.slice_of(task - clearing, tasks - clearing, total.shape[1])
    for i in range(len(index)):
        row = index[i]
        if row != skipped:
            for j in range(first, last):
                total[row, j] += updates[i, j]

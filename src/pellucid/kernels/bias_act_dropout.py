"""dropout(activation(x + b)) in one pass over memory instead of six.

The loops are compiled separately for each activation, with its `value` and `slope` (see
`activations`) inlined, so that they vectorise. Backward reads x and draws the dropout bits again;
for ReLU it reads only the output, which the next layer keeps anyway. A gated activation uses
`value` and `slope` of its gate.
"""

import importlib
from functools import cache
from types import ModuleType

import numpy as np

from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels.backend import rows as row_tools
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import variant
from pellucid.kernels.backend.math import channel_bits
from pellucid.ops.activations import ACTIVATIONS

Array = np.ndarray
_f = np.float32


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.bias_act_dropout` for contiguous float32 rows if the activation has a kernel."""
    x, bias, activation = call.x, call.bias, call.activation
    record = ACTIVATIONS.get(activation)
    if (
        record is None
        or record.kernel is None
        or not row_tools.is_rows(x)
        or not row_tools.is_vector(bias, x.shape[-1])
        or x.shape[-1] % record.gates
    ):
        return Declined(f"expects float32 rows and an activation with a kernel, got {activation}")
    bits = row_tools.dropout_bits(call.dropout, call.rng, x.shape[:-1])
    if bits is None:
        return Declined(row_tools.NO_BITS)
    rows, b = x.reshape(-1, x.shape[-1]), row_tools.as_vector(bias, x.shape[-1], 0.0)
    shape = (*x.shape[:-1], x.shape[-1] // record.gates)
    from_output = hasattr(_module(activation), "gradient_from_output")

    y = np.empty((len(rows), shape[-1]), np.float32)
    _forward(activation)(row_tools.row_tasks(*rows.shape), rows, b, *bits, y)
    # what backward reads
    kept = (y, bits.scale) if from_output else (rows, b, *bits)
    ungated = _backward_from_output if from_output else _backward
    differentiate = (_gated_backward if record.gates == 2 else ungated)(activation)

    def backward(dy: Array) -> tuple[Array, Array | None]:
        """Return dx and dbias."""
        dy_rows = row_tools.gradient_rows(dy, shape)
        tasks = row_tools.sum_tasks(*rows.shape)
        dx, sums = np.empty_like(rows), np.zeros((tasks, x.shape[-1]), np.float32)
        differentiate(tasks, dy_rows, *kept, dx, sums)
        return dx.reshape(x.shape), None if bias is None else sums.sum(axis=0)

    y = y.reshape(shape)
    return row_tools.read_only(y) if from_output else y, backward


@cache
def _module(activation: str) -> ModuleType:
    """Import the kernel module of an activation."""
    return importlib.import_module(f"pellucid.kernels.{ACTIVATIONS[activation].kernel}")


@cache
def _forward(activation: str) -> threads.ParallelKernel:
    """Return the kernel that computes y = dropout(activation(x + b)).

    For a gated activation y = dropout(gate(a + b_a) ⊙ (c + b_c)), where x = [a, c].
    """
    value, gated = _module(activation).value, ACTIVATIONS[activation].gates == 2

    def forward(task, tasks, x, bias, names, site, threshold, scale, y):
        begin, end = threads.slice_of(task, tasks, len(x))
        width = y.shape[1]
        for i in range(begin, end):
            for j in range(width):
                a = value(x[i, j] + bias[j])
                y[i, j] = a * (x[i, width + j] + bias[width + j]) if gated else a
            if threshold:
                start = row_tools.row_start(names, i, site)
                for j in range(width):
                    kept = channel_bits(start, np.uint32(j)) >= threshold
                    y[i, j] = y[i, j] * scale if kept else _f(0.0)

    signature = "f4[:,::1],f4[::1],u4[::1],u4,u4,f4,f4[:,::1]"
    return threads.parallel(signature)(variant(forward, activation))


@cache
def _backward(activation: str) -> threads.ParallelKernel:
    """Return the kernel that computes dx from x, and the sum of dx over each task's rows."""
    slope = _module(activation).slope

    def backward(task, tasks, dy, x, bias, names, site, threshold, scale, dx, sums):
        begin, end = threads.slice_of(task, tasks, len(x))
        dbias = sums[task]
        for i in range(begin, end):
            for j in range(x.shape[1]):
                dx[i, j] = dy[i, j] * slope(x[i, j] + bias[j])
            if threshold:
                start = row_tools.row_start(names, i, site)
                for j in range(x.shape[1]):
                    kept = channel_bits(start, np.uint32(j)) >= threshold
                    dx[i, j] = dx[i, j] * scale if kept else _f(0.0)
            for j in range(x.shape[1]):
                dbias[j] += dx[i, j]

    signature = "f4[:,::1],f4[:,::1],f4[::1],u4[::1],u4,u4,f4,f4[:,::1],f4[:,::1]"
    return threads.parallel(signature)(variant(backward, activation))


@cache
def _backward_from_output(activation: str) -> threads.ParallelKernel:
    """Return the kernel that computes dx from y, and the sum of dx over each task's rows."""
    gradient = _module(activation).gradient_from_output

    def backward_from_output(task, tasks, dy, y, scale, dx, sums):
        begin, end = threads.slice_of(task, tasks, len(dy))
        dbias = sums[task]
        for i in range(begin, end):
            for j in range(y.shape[1]):
                d = gradient(dy[i, j] * scale, y[i, j])
                dx[i, j] = d
                dbias[j] += d

    signature = "f4[:,::1],f4[:,::1],f4,f4[:,::1],f4[:,::1]"
    return threads.parallel(signature)(variant(backward_from_output, activation))


@cache
def _gated_backward(activation: str) -> threads.ParallelKernel:
    """Return the kernel that computes dx = [da, dc] of a gated activation, and sums of dx."""
    value, slope = _module(activation).value, _module(activation).slope

    def gated_backward(task, tasks, dy, x, bias, names, site, threshold, scale, dx, sums):
        begin, end = threads.slice_of(task, tasks, len(x))
        half, dbias = dy.shape[1], sums[task]
        for i in range(begin, end):
            for j in range(half):
                dx[i, j] = dy[i, j]
            if threshold:
                start = row_tools.row_start(names, i, site)
                for j in range(half):
                    kept = channel_bits(start, np.uint32(j)) >= threshold
                    dx[i, j] = dx[i, j] * scale if kept else _f(0.0)
            for j in range(half):
                a, c, d = x[i, j] + bias[j], x[i, half + j] + bias[half + j], dx[i, j]
                dx[i, j] = d * c * slope(a)
                dx[i, half + j] = d * value(a)
            for j in range(2 * half):
                dbias[j] += dx[i, j]

    signature = "f4[:,::1],f4[:,::1],f4[::1],u4[::1],u4,u4,f4,f4[:,::1],f4[:,::1]"
    return threads.parallel(signature)(variant(gated_backward, activation))

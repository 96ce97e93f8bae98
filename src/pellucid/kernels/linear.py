"""x Wᵀ + b by the products of `matmul`, which add the bias when they write their sums."""

from functools import cache

import numpy as np

from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import variant
from pellucid.kernels.backend.matmul import (
    NOTHING,
    Products,
    copying_tasks,
    division,
    part_of,
    products,
)
from pellucid.kernels.backend.rows import gradient_rows, is_rows, is_vector

Array = np.ndarray
_FEW = 8  # rows for which copying W into panels would cost more than the product


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.linear` for contiguous float32 arrays with more than 8 rows."""
    x, weight, bias = call.x, call.weight, call.bias
    if not (
        is_rows(x)
        and is_rows(weight)
        and weight.ndim == 2
        and x.shape[-1] == weight.shape[1]
        and x.size > _FEW * weight.shape[1]
        and is_vector(bias, len(weight))
    ):
        return Declined(f"expects float32 arrays in one piece of memory, more than {_FEW} rows")
    outputs, inputs = weight.shape
    rows, b = x.reshape(-1, inputs), NOTHING if bias is None else bias
    shape = (*x.shape[:-1], outputs)

    own = products()
    y, packed = np.empty((len(rows), outputs), np.float32), own.empty_panels(inputs, outputs)
    copying, (tasks, columns) = copying_tasks(packed), division(len(rows), inputs, outputs)
    _forward(own)(copying, copying + tasks, columns, rows, weight, b, packed, y)

    def backward(dy: Array) -> tuple[Array, Array, Array | None]:
        """Return dx = dy W, dW = dyᵀ x and db = Σ dy."""
        dy_rows = gradient_rows(dy, shape)
        dx, dweight, dbias = np.empty_like(rows), np.empty_like(weight), np.empty_like(b)
        for_dx, for_dw = own.empty_panels(outputs, inputs), own.empty_panels(*rows.shape)
        first, second = copying_tasks(for_dx), copying_tasks(for_dw)
        third, columns = division(len(rows), outputs, inputs)
        fourth, columns_w = division(outputs, len(rows), inputs)
        copying = first + second
        _backward(own)(
            copying, copying + third + fourth, first, third, columns, columns_w,
            dy_rows, rows, weight, for_dx, for_dw, dx, dweight, dbias,
        )  # fmt: skip
        return dx.reshape(x.shape), dweight, None if bias is None else dbias

    return y.reshape(shape), backward


@cache
def _forward(own: Products) -> threads.ParallelKernel:
    """Return the kernel of y: it packs W into panels, then multiplies."""
    pack, multiply_rows = own.pack, own.multiply_rows

    def _forward(task, copying, tasks, columns, x, weight, bias, packed, y):
        if task < copying:
            pack(task, copying, weight.T, packed)
        else:
            begin, end, left, right = part_of(task - copying, tasks - copying, columns, y)
            multiply_rows(x, packed, y, bias, False, bias[:0], begin, end, left, right)

    signature = "i8,f4[:,::1],f4[:,::1],f4[::1],f4[:,::1],f4[:,::1]"
    return threads.parallel(signature, stages=2)(variant(_forward, own.name))


@cache
def _backward(own: Products) -> threads.ParallelKernel:
    """Return the kernel of dx, dW and db: it packs W and x into panels, then multiplies."""
    pack, multiply_rows = own.pack, own.multiply_rows

    def _backward(
        task, copying, tasks, for_w, for_dx, columns, columns_w,
        dy, x, weight, packed_w, for_dw, dx, dweight, dbias,
    ):  # fmt: skip
        nothing, done = dbias[:0], copying + for_dx
        if task < for_w:
            pack(task, for_w, weight, packed_w)
        elif task < copying:
            pack(task - for_w, copying - for_w, x, for_dw)
        elif task < done:
            begin, end, left, right = part_of(task - copying, for_dx, columns, dx)
            multiply_rows(dy, packed_w, dx, nothing, False, nothing, begin, end, left, right)
        else:
            begin, end, left, right = part_of(task - done, tasks - done, columns_w, dweight)
            multiply_rows(dy.T, for_dw, dweight, nothing, False, dbias, begin, end, left, right)

    rows = ",f4[:,::1]" * 7
    return threads.parallel(f"i8,i8,i8,i8{rows},f4[::1]", stages=2)(variant(_backward, own.name))

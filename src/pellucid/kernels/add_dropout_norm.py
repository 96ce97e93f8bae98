"""norm(residual + dropout(x)) in one pass over memory, and its backward in another.

A row of a few hundred numbers stays in the nearest cache while it is summed, normalised, scaled and
shifted. Backward needs x̂ and 1 / √(σ² + ε), as the reference op does; the dropout bits are
computed again. The variance is computed from the centred row, in a second sweep, because
E[x²] − μ² would lose digits by cancellation. For RMSNorm the means are 0.

If arrays overlap or are close in memory, LLVM runs a scalar version of a loop that writes, instead
of the vector version. So that both give the same bits, a loop that sums does not write, and a loop
with dropout does not add: only its scalar version would use a fused multiply-add.
"""

from typing import Any

import numpy as np

from pellucid.core.array import LEAST_NORMAL
from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels.backend import rows as row_tools
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.math import channel_bits, inverse_root
from pellucid.kernels.backend.simd import get
from pellucid.ops.layer_norm import NEARLY_CONSTANT

Array = np.ndarray
_f = np.float32

BLOCK = 256
"""Numbers summed in float32, in vectors of any width; such sums are added in float64. So a long row
is as exact as on the page, which adds in pairs, and as exact on one processor as on another."""
CENTRED = {"layer_norm": True, "rms_norm": False}
"""The norms computed here, and whether they subtract the row's mean."""


NOT_NORMAL = (
    f"expects float32 rows of at least two numbers, one piece of memory, eps ≥ {LEAST_NORMAL:.2g}"
)


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.add_dropout_norm` for contiguous float32 x and residual of the same shape.

    The norm is LayerNorm or RMSNorm, and rows are at least two numbers wide.
    """
    x, residual, weight, bias, eps = call.x, call.residual, call.weight, call.bias, call.eps
    if call.norm not in CENTRED:
        return Declined(f"no kernel knows {call.norm}")
    if not (
        row_tools.is_rows(x)
        and row_tools.is_rows(residual)
        and x.shape == residual.shape
        and is_affine(weight, bias, x.shape[-1], eps)
    ):
        return Declined(NOT_NORMAL)
    bits = row_tools.dropout_bits(call.dropout, call.rng, x.shape[:-1])
    if bits is None:
        return Declined(row_tools.NO_BITS)
    rows = x.reshape(-1, x.shape[-1])
    return normalise(rows, residual, weight, bias, eps, bits, CENTRED[call.norm])


def is_affine(weight: Array | None, bias: Array | None, width: int, eps: float) -> bool:
    """Return whether the kernel can normalise rows of this width with these parameters.

    Weight and bias must be contiguous float32 vectors of the width, or None. It cannot for a width
    of 1, where LayerNorm's x̂ is exactly 0 but a fused multiply-add would leave a rounding error,
    nor for an ε below the smallest normal float32, for which the fast 1 / √x fails.
    """
    return (
        width > 1
        and eps >= LEAST_NORMAL
        and row_tools.is_vector(weight, width)
        and row_tools.is_vector(bias, width)
    )


def normalise(
    x: Array,
    residual: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    bits: row_tools.Bits,
    centred: bool,
) -> Result:
    """Compute norm(residual + dropout(x)); return it and its backward.

    x: rows (T, E), or (0, E) for norm(residual). `centred`: LayerNorm, else RMSNorm.
    `backward(dy)` returns dx, dresidual, dweight, dbias (None for a parameter that is None);
    without dropout dx and dresidual share their memory.
    """
    shape, width = residual.shape, residual.shape[-1]
    rows = residual.reshape(-1, width)
    gamma, beta = row_tools.as_vector(weight, width, 1.0), row_tools.as_vector(bias, width, 0.0)
    y, x_hat = np.empty_like(rows), np.empty_like(rows)
    inverse_std = np.empty(len(rows), np.float32)
    _forward(
        row_tools.row_tasks(*rows.shape),
        x, rows, gamma, beta, np.float32(eps), centred, *bits, y, x_hat, inverse_std,
    )  # fmt: skip

    def backward(dy: Array) -> Any:
        dy_rows, dresidual = row_tools.gradient_rows(dy, shape), np.empty_like(x_hat)
        dx = np.empty_like(x_hat) if bits.threshold else dresidual
        tasks = row_tools.sum_tasks(*rows.shape)
        sums = np.zeros((tasks, 2, width), np.float32)
        _backward(tasks, dy_rows, x_hat, inverse_std, gamma, centred, *bits, dx, dresidual, sums)
        dweight, dbias = sums.sum(axis=0)
        return (
            dx.reshape(shape),
            dresidual.reshape(shape),
            None if weight is None else dweight,
            None if bias is None else dbias,
        )

    return y.reshape(shape), backward


@threads.parallel(
    "f4[:,::1],f4[:,::1],f4[::1],f4[::1],f4,b1,u4[::1],u4,u4,f4,f4[:,::1],f4[:,::1],f4[::1]"
)
def _forward(
    task, tasks, x, residual, gamma, beta, eps, centred,
    names, site, threshold, scale, y, x_hat, inverse_std,
):  # fmt: skip
    """Normalise a slice of the rows; write y, x̂ and 1 / √(σ² + ε)."""
    begin, end = threads.slice_of(task, tasks, len(residual))
    width = x.shape[1]
    per_number = 1.0 / width
    for i in range(begin, end):
        if threshold:
            start = row_tools.row_start(names, i, site)
            for j in range(width):
                kept = channel_bits(start, np.uint32(j)) >= threshold
                x_hat[i, j] = x[i, j] * scale if kept else _f(0.0)
            for j in range(width):
                x_hat[i, j] += residual[i, j]
        elif len(x):
            for j in range(width):
                x_hat[i, j] = residual[i, j] + x[i, j]
        else:
            for j in range(width):
                x_hat[i, j] = residual[i, j]
        row = i * width
        while True:
            total, squares = 0.0, 0.0
            for first in range(0, width, BLOCK):
                part = _f(0.0)
                for j in range(first, min(first + BLOCK, width)):
                    part += get(x_hat, row + j)
                total += part
            mu = _f(total * per_number) if centred else _f(0.0)
            for first in range(0, width, BLOCK):
                part = _f(0.0)
                for j in range(first, min(first + BLOCK, width)):
                    c = get(x_hat, row + j) - mu
                    part += c * c
                squares += part
            if not squares * per_number < NEARLY_CONSTANT * mu * mu:
                break
            for j in range(width):  # the remaining row contains the rounding error of μ
                x_hat[i, j] -= mu
        r = inverse_root(_f(squares * per_number) + eps)
        inverse_std[i] = r
        for j in range(width):
            h = (x_hat[i, j] - mu) * r
            x_hat[i, j] = h
            y[i, j] = h * gamma[j] + beta[j]


@threads.parallel(
    "f4[:,::1],f4[:,::1],f4[::1],f4[::1],b1,u4[::1],u4,u4,f4,f4[:,::1],f4[:,::1],f4[:,:,::1]"
)
def _backward(
    task, tasks, dy, x_hat, inverse_std, gamma, centred,
    names, site, threshold, scale, dx, dresidual, sums,
):  # fmt: skip
    """Compute dx and dresidual of a slice of the rows, and the task's part of dweight and dbias."""
    begin, end = threads.slice_of(task, tasks, len(dy))
    dgamma, dbeta = sums[task, 0], sums[task, 1]
    width = dy.shape[1]
    per_number = 1.0 / width
    for i in range(begin, end):
        row, sum_g, sum_gx = i * width, 0.0, 0.0
        for first in range(0, width, BLOCK):
            part_g, part_gx = _f(0.0), _f(0.0)
            for j in range(first, min(first + BLOCK, width)):
                g = get(dy, row + j) * get(gamma, j)
                part_g += g
                part_gx += g * get(x_hat, row + j)
            sum_g += part_g
            sum_gx += part_gx
        for j in range(width):
            dbeta[j] += dy[i, j]
            dgamma[j] += dy[i, j] * x_hat[i, j]
        mean_g = _f(sum_g * per_number) if centred else _f(0.0)
        mean_gx, r = _f(sum_gx * per_number), inverse_std[i]
        for j in range(width):
            dresidual[i, j] = (dy[i, j] * gamma[j] - mean_g - x_hat[i, j] * mean_gx) * r
        if threshold:
            start = row_tools.row_start(names, i, site)
            for j in range(width):
                kept = channel_bits(start, np.uint32(j)) >= threshold
                dx[i, j] = dresidual[i, j] * scale if kept else _f(0.0)

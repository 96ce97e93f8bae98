"""x Wᵀ + b and back, on the products of `matmul`; the bias is where the sums start from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.kernels.backend.matmul import multiply, panels
from pellucid.kernels.backend.rows import as_rows, plain_rows, plain_vector

Array = np.ndarray
_FEW = 8  # rows for which copying W into panels would cost more than the product


class Saved(NamedTuple):
    x: Array
    weight: Array
    has_bias: bool


def accepts(x: Array, weight: Array, bias: Array | None = None) -> bool:
    """float32 in one piece of memory, more than a few rows of the weight's width."""
    return (
        plain_rows(x)
        and plain_rows(weight)
        and weight.ndim == 2
        and x.shape[-1] == weight.shape[1]
        and x.size > _FEW * weight.shape[1]
        and plain_vector(bias, len(weight))
    )


def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Saved]:
    """See `ops.linear`."""
    rows = x.reshape(-1, x.shape[-1])
    y = np.empty((len(rows), len(weight)), np.float32)
    multiply(rows, panels(weight.T), y, bias)
    return y.reshape(*x.shape[:-1], len(weight)), Saved(x, weight, bias is not None)


def linear_backward(dy: Array, saved: Saved) -> tuple[Array, Array, Array | None]:
    """Return dx = dy W, dW = dyᵀ x and db = Σ dy."""
    x, weight, has_bias = saved
    dy_rows = as_rows(dy, (*x.shape[:-1], len(weight)))
    x_rows = x.reshape(-1, x.shape[-1])
    dx, dweight = np.empty_like(x_rows), np.empty_like(weight)
    multiply(dy_rows, panels(weight), dx)
    dbias = np.empty(len(weight), np.float32) if has_bias else None
    multiply(dy_rows.T, panels(x_rows), dweight, sums=dbias)
    return dx.reshape(x.shape), dweight, dbias

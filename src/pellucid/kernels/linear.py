"""x Wᵀ + b on the products of `matmul`; the bias is what the sums start from."""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.core.vjp import Run
from pellucid.kernels.backend.matmul import multiply, panels
from pellucid.kernels.backend.rows import as_rows, gradient_rows, is_rows, is_vector, writeable

Array = np.ndarray
_FEW = 8  # rows for which copying W into panels would cost more than the product


def plan(x: Array, weight: Array, bias: Array | None = None) -> Run | None:
    """Plan `ops.linear` for float32 in one piece of memory, more than a few rows."""
    if not (
        is_rows(x)
        and is_rows(weight)
        and weight.ndim == 2
        and x.shape[-1] == weight.shape[1]
        and x.size > _FEW * weight.shape[1]
        and is_vector(bias, len(weight))
    ):
        return None
    rows, w = as_rows(x), writeable(weight)
    b = None if bias is None else writeable(bias)
    shape = (*x.shape[:-1], len(weight))

    def run() -> tuple[Array, Any]:
        y = np.empty((len(rows), len(w)), np.float32)
        multiply(rows, panels(w.T), y, b)

        def backward(dy: Array) -> tuple[Array, Array, Array | None]:
            """Return dx = dy W, dW = dyᵀ x and db = Σ dy."""
            dy_rows = gradient_rows(dy, shape)
            dx, dweight = np.empty_like(rows), np.empty_like(w)
            multiply(dy_rows, panels(w), dx)
            dbias = None if b is None else np.empty(len(w), np.float32)
            multiply(dy_rows.T, panels(rows), dweight, sums=dbias)
            return dx.reshape(x.shape), dweight, dbias

        return y.reshape(shape), backward

    return run

"""Layer normalisation in one pass over memory: `add_dropout_norm` with nothing to add."""

from __future__ import annotations

import numpy as np

from pellucid.core.array import LEAST_NORMAL
from pellucid.kernels.add_dropout_norm import Saved, add_dropout_norm_backward, normalise
from pellucid.kernels.backend.rows import plain_rows, plain_vector

Array = np.ndarray


def accepts(
    x: Array, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> bool:
    """float32 rows in one piece of memory, more than one number wide (see `add_dropout_norm`)."""
    width = x.shape[-1] if x.ndim else 0
    return (
        width > 1
        and eps >= LEAST_NORMAL
        and plain_rows(x)
        and plain_vector(weight, width)
        and plain_vector(bias, width)
    )


def layer_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> tuple[Array, Saved]:
    """See `ops.layer_norm`."""
    nothing = np.empty((0, x.shape[-1]), np.float32)
    return normalise(nothing, x, weight, bias, eps, 0.0, None)


def layer_norm_backward(dy: Array, saved: Saved) -> tuple[Array, Array | None, Array | None]:
    """Return dx, dweight, dbias."""
    _, dx, dweight, dbias = add_dropout_norm_backward(dy, saved)
    return dx, dweight, dbias

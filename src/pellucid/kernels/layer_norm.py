"""Layer normalisation in one pass over memory, by the kernel of `add_dropout_norm`."""

import numpy as np

from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels.add_dropout_norm import NOT_NORMAL, is_affine, normalise
from pellucid.kernels.backend.rows import KEEP_ALL, is_rows

Array = np.ndarray


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.layer_norm` for contiguous float32 rows."""
    return norm(call.x, call, centred=True)


def norm(x: Array, call: Call, *, centred: bool) -> Result | Declined:
    """Compute LayerNorm (`centred`) or RMSNorm of contiguous float32 rows x, at least 2 wide."""
    weight, bias, eps = call.weight, call.bias, call.eps
    if not (is_rows(x) and is_affine(weight, bias, x.shape[-1], eps)):
        return Declined(NOT_NORMAL)
    nothing = np.empty((0, x.shape[-1]), np.float32)

    y, norm_backward = normalise(nothing, x, weight, bias, eps, KEEP_ALL, centred)
    return y, lambda dy: norm_backward(dy)[1:]

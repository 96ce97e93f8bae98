"""Layer normalisation by PyTorch's functions.

Backward needs x, the means and 1 / √(σ² + ε) instead of x̂. A row whose σ² overflows gives β, where
the reference op gives NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.layer_norm` of a tensor that is not empty."""
    x, weight, bias = call.x, call.weight, call.bias
    if not is_affine(x, weight, bias):
        return Declined(NOT_TENSORS)
    return normalise(x, weight, bias, call.eps)


def is_affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Return whether PyTorch can normalise x with these parameters."""
    width = tuple(x.shape[-1:])
    return (
        are_numbers(x, weight, bias)
        and x.numel() > 0
        and all(v is None or tuple(v.shape) == width for v in (weight, bias))
    )


def normalise(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Any]:
    """Compute LayerNorm(x); return it, and backward(dy) -> dx, dweight, dbias."""
    width = [x.shape[-1]]
    y, mean, rstd = torch.native_layer_norm(x, width, weight, bias, eps)

    def backward(dy: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        check_gradient(dy, tuple(x.shape))
        wanted = [True, weight is not None, bias is not None]
        dx, dweight, dbias = torch.ops.aten.native_layer_norm_backward(
            dy.contiguous(), x, width, mean, rstd, weight, bias, wanted
        )
        return dx, dweight if wanted[1] else None, dbias if wanted[2] else None

    return y, backward

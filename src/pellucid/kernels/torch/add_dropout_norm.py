"""LayerNorm(residual + dropout(x)), by PyTorch's layer norm."""

from __future__ import annotations

from torch import Tensor

from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels.torch.draws import draws_on, mask_of, masked
from pellucid.kernels.torch.layer_norm import is_affine, normalise
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.add_dropout_norm` with LayerNorm, for x and residual of the same shape.

    Dropout is declined on the CPU.
    """
    x, residual, weight, bias = call.x, call.residual, call.weight, call.bias
    if not (
        call.norm == "layer_norm"
        and are_numbers(x, residual)
        and x.shape == residual.shape
        and is_affine(x, weight, bias)
        and draws_on(x.device, call.dropout, call.rng)
    ):
        return Declined(NOT_TENSORS)

    keep = mask_of(x, call.dropout, call.rng)
    y, norm_backward = normalise(residual + masked(x, keep, call.dropout), weight, bias, call.eps)

    def backward(dy: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return dx, dresidual, dweight and dbias."""
        dsum, dweight, dbias = norm_backward(dy)
        return masked(dsum, keep, call.dropout), dsum, dweight, dbias

    return y, backward

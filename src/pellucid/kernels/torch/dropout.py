"""Dropout on a GPU with PyTorch's generator; see `draws`. On a CPU it is declined."""

from __future__ import annotations

from torch import Tensor

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.draws import draws_on, keep_mask, masked
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.dropout` on a GPU, with an `rng` and 0 < p < 1."""
    x, p, rng = call.x, call.p, call.rng
    if p == 0.0 or rng is None or not are_numbers(x) or not draws_on(x.device, p, rng):
        return Declined(NOT_TENSORS)
    keep = keep_mask(x, p, rng)

    def backward(dy: Tensor) -> Tensor:
        check_gradient(dy, tuple(x.shape))
        return masked(dy, keep, p)

    return masked(x, keep, p), backward

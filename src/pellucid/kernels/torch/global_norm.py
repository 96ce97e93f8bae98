"""The norm of all gradients in float64, with a single transfer from the device."""

from __future__ import annotations

import math

import torch

from pellucid.core.vjp import Call, Declined, Result, no_backward
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers


def kernel(call: Call) -> Result | Declined:
    """Compute √Σ g² over all gradients."""
    if not are_numbers(*call.gradients):
        return Declined(NOT_TENSORS)
    norms = torch._foreach_norm(call.gradients, 2, dtype=torch.float64)
    return math.sqrt(float(torch.stack(norms).square().sum())), no_backward

"""The step of Adam and AdamW for all parameters of a model, by PyTorch's fused functions."""

from __future__ import annotations

import torch

from pellucid.core.vjp import Call, Declined, Result, no_backward
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers


def kernel(call: Call) -> Result | Declined:
    """Update all parameters and moments in place, by the step of `optim.adam.adam`.

    The arguments of the call are those of `kernels.adam`.
    """
    m, v = (list(arrays) for arrays in zip(*call.moments, strict=True))
    if not are_numbers(*call.theta, *call.gradient, *m, *v):
        return Declined(NOT_TENSORS)
    device = call.theta[0].device
    counts = {t: torch.full((), float(t), device=device) for t in set(call.step)}
    step = torch._fused_adamw_ if call.decoupled else torch._fused_adam_
    step(
        call.theta,
        torch._foreach_mul(call.gradient, call.scale),
        m,
        v,
        [],
        [counts[t] for t in call.step],
        lr=call.lr,
        beta1=call.betas[0],
        beta2=call.betas[1],
        weight_decay=call.weight_decay,
        eps=call.eps,
        amsgrad=False,
        maximize=False,
    )
    return None, no_backward

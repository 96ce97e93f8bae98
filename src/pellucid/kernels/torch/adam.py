"""The step of Adam and AdamW for all parameters of a model in one of torch's fused calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pellucid.kernels.torch.tensors import are_numbers


def plan(
    tensors: Sequence[tuple[Tensor, ...]],
    steps: Sequence[int],
    *,
    scale: float,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool = False,
) -> Callable[[], None] | None:
    """Plan `training.optimizers.adam.adam` on every parameter, in place. None: not for these.

    tensors and steps are as in `kernels.adam`.
    """
    if not all(are_numbers(*arrays) for arrays in tensors):
        return None

    def run() -> None:
        device = tensors[0][0].device
        counts = {t: torch.full((), float(t), device=device) for t in set(steps)}
        theta, gradients, m, v = (list(arrays) for arrays in zip(*tensors, strict=True))
        step = torch._fused_adamw_ if decoupled else torch._fused_adam_
        step(
            theta,
            torch._foreach_mul(gradients, scale),
            m,
            v,
            [],
            [counts[t] for t in steps],
            lr=lr,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=weight_decay,
            eps=eps,
            amsgrad=False,
            maximize=False,
        )

    return run

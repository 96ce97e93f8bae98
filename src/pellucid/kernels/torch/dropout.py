"""Dropout with torch's generator on a GPU; see `draws`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pellucid.core.rng import Rng
from pellucid.core.vjp import Run, check_gradient
from pellucid.kernels.torch.draws import draws_on, keep_mask, masked
from pellucid.kernels.torch.tensors import are_numbers


def plan(x: Tensor, p: float, rng: Rng | None) -> Run | None:
    """Plan `ops.dropout` on a GPU, where some numbers are dropped."""
    if p == 0.0 or rng is None or not are_numbers(x) or not draws_on(x.device, p, rng):
        return None
    source: Rng = rng

    def run() -> tuple[Tensor, Any]:
        keep = keep_mask(x, p, source)

        def backward(dy: Tensor) -> Tensor:
            check_gradient(dy, tuple(x.shape))
            return masked(dy, keep, p)

        return masked(x, keep, p), backward

    return run

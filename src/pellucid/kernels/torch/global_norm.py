"""The sum of squares of all gradients in float64, read from the device once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pellucid.kernels.torch.tensors import are_numbers


def plan(arrays: Sequence[Tensor]) -> Callable[[], float] | None:
    """Plan Σ x² of all arrays. None: not for these."""
    if not arrays or not all(are_numbers(x) for x in arrays):
        return None

    def run() -> float:
        norms = torch._foreach_norm(list(arrays), 2, dtype=torch.float64)
        return float(torch.stack(norms).square().sum())

    return run

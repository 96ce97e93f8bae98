"""Rows of a table, and the table's gradient by torch's own sum, which sorts the index on a GPU.

On a GPU an index outside the table is torch's to report, which it does for the whole process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pellucid.core.vjp import Run, check_gradient
from pellucid.kernels.torch.tensors import are_numbers, wide
from pellucid.ops.embedding import embedding


def plan(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Run | None:
    """Plan `ops.embedding` for 64-bit integers into a table of the same device."""
    if not (
        isinstance(weight, torch.Tensor)
        and index.dtype == torch.int64
        and index.device == weight.device
        and are_numbers(weight)
        and weight.ndim == 2
    ):
        return None
    rows, width = weight.shape
    shape = (*index.shape, width)
    skipped = -1 if padding_idx is None else padding_idx

    def run() -> tuple[Tensor, Any]:
        if index.device.type == "cpu":
            y, _ = embedding(index, weight, padding_idx)  # it checks the index
        else:
            y = functional.embedding(index, weight)

        def backward(dy: Tensor) -> Tensor:
            """Return dweight."""
            check_gradient(dy, shape)
            updates = dy.to(wide(dy.dtype))
            dweight: Tensor = torch.ops.aten.embedding_dense_backward(
                updates, index, rows, skipped, False
            )
            return dweight

        return y, backward

    return run

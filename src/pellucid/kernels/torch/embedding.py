"""Embedding look-up, and the gradient of its table, by PyTorch's functions.

On a GPU PyTorch reports an index outside the table, by an error that ends all use of the GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers, wide
from pellucid.ops.embedding import embedding


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.embedding` for int64 indices and a table on the same device."""
    index, weight = call.index, call.weight
    if not (
        isinstance(weight, torch.Tensor)
        and index.dtype == torch.int64
        and index.device == weight.device
        and are_numbers(weight)
        and weight.ndim == 2
    ):
        return Declined(NOT_TENSORS)
    rows, width = weight.shape
    shape = (*index.shape, width)
    skipped = -1 if call.padding_idx is None else call.padding_idx

    if index.device.type == "cpu":
        y, _ = embedding(index, weight, call.padding_idx)  # it checks the index
    else:
        y = functional.embedding(index, weight)

    def backward(dy: Tensor) -> Tensor:
        """Return dweight, in the dtype in which rows are summed."""
        check_gradient(dy, shape)
        updates = dy.to(wide(dy.dtype))
        dweight: Tensor = torch.ops.aten.embedding_dense_backward(
            updates, index, rows, skipped, False
        )
        return dweight

    return y, backward

"""The output layer and its loss, by PyTorch's products and log-softmax, in chunks of rows.

The logits of a chunk are replaced by their gradient, for a loss gradient of 1, and backward only
scales. So logits are computed once, and at most 2²⁶ of them (or a row) are stored at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers, sum_of_rows, wide

_HELD = 1 << 26
"""Logits held at a time: 256 MB in float32."""


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.linear_cross_entropy` for int64 targets.

    On the CPU a call with invalid targets is declined, so that the reference op raises its error.
    """
    x, weight, bias, target = call.x, call.weight, call.bias, call.target
    if not (
        are_numbers(x, weight, bias)
        and x.ndim == weight.ndim == 2
        and x.shape[1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
        and target.shape == x.shape[:1]
        and target.dtype == torch.int64
        and target.device == x.device
        and 0.0 <= call.label_smoothing <= 1.0
    ):
        return Declined(NOT_TENSORS)
    if target.device.type == "cpu":
        kept = target[target != call.ignore_index]
        if len(kept) and not 0 <= int(kept.min()) <= int(kept.max()) < len(weight):
            return Declined(NOT_TENSORS)

    loss, dx, dweight, dbias = _with_gradients(
        x, weight, bias, target, call.ignore_index, call.label_smoothing
    )

    def backward(dloss: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return dx, dweight, dbias: those computed in forward, times `dloss`."""
        check_gradient(dloss, ())
        return dx * dloss, dweight * dloss, None if bias is None else dbias * dloss

    return loss, backward


def _with_gradients(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    ignored: int,
    smoothing: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the summed loss, and dx, dweight, dbias for a loss gradient of 1."""
    rows, vocabulary, dtype = len(x), len(weight), wide(x.dtype)
    dx = torch.empty_like(x)
    dweight = torch.zeros_like(weight, dtype=dtype)
    dbias = torch.zeros(vocabulary, dtype=dtype, device=x.device)
    loss = torch.zeros((), dtype=dtype, device=x.device)
    held = max(1, _HELD // max(vocabulary, 1))
    for begin in range(0, rows, held):
        chunk = slice(begin, begin + held)
        kept = target[chunk] != ignored
        chosen = torch.where(kept, target[chunk], 0)[:, None]
        counts = kept[:, None].to(dtype)

        logits = functional.linear(x[chunk], weight, bias).to(dtype)
        log_p = torch.log_softmax(logits, -1)
        right = log_p.gather(1, chosen)[:, 0]
        if smoothing:
            # A class that cannot be, of log-probability −inf, adds nothing where it is not wanted.
            mean = log_p.sum(1) / vocabulary
            right = (1.0 - smoothing) * right + smoothing * mean
        loss = loss - torch.where(kept, right, 0).sum()

        dlogits = log_p.exp_()
        if smoothing:
            dlogits.sub_(smoothing / vocabulary)
        dlogits.scatter_add_(1, chosen, torch.full_like(counts, smoothing - 1.0))
        dlogits.mul_(counts)
        dbias += sum_of_rows(dlogits)
        narrow = dlogits.to(x.dtype)
        torch.mm(narrow, weight, out=dx[chunk])
        if dtype == x.dtype:
            dweight.addmm_(narrow.T, x[chunk])
        else:
            dweight += narrow.T @ x[chunk]
    return loss, dx, dweight, dbias

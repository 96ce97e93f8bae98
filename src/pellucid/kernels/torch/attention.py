"""Attention on padded batches by torch's fused functions on a GPU; see `flash`."""

from __future__ import annotations

from math import prod

from torch import Tensor

from pellucid.core.batch import one_length
from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.flash import attend_packed, causal_alone, fits
from pellucid.ops.attention import whole_rule


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.attention` for (…, H, L, D) without a mask and without dropout."""
    q, k, v = call.q, call.k, call.v
    causal = causal_alone(whole_rule(call.rule, call.mask, call.causal))
    if causal is None or not (
        (call.dropout == 0.0 or call.rng is None)
        and fits(q, k, v)
        and q.ndim >= 3
        and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
        and k.shape[-2] == v.shape[-2]
    ):
        return Declined("expects tensors (…, H, L, D) without dropout, and no rule but causality")
    factor = q.shape[-1] ** -0.5 if call.scale is None else float(call.scale)
    lead = q.shape[:-3]
    cu_q, cu_k = (one_length(prod(lead), x.shape[-2]) for x in (q, k))
    out, attend_backward = attend_packed(
        _rows(q), _rows(k), _rows(v), cu_q, cu_k, causal, factor, 0.0, None
    )

    def backward(dout: Tensor) -> tuple[Tensor, ...]:
        check_gradient(dout, (*q.shape[:-1], v.shape[-1]))
        return tuple(_heads(x, lead) for x in attend_backward(_rows(dout)))

    return _heads(out, lead), backward


def _rows(x: Tensor) -> Tensor:
    """(…, H, L, D) -> (N · L, H, D)."""
    return x.transpose(-3, -2).reshape(-1, x.shape[-3], x.shape[-1])


def _heads(rows: Tensor, lead: tuple[int, ...]) -> Tensor:
    """(N · L, H, D) -> (…, H, L, D)."""
    length = len(rows) // prod(lead)
    return rows.reshape(*lead, length, *rows.shape[1:]).transpose(-3, -2)

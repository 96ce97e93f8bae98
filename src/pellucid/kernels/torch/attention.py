"""Attention on padded batches by torch's fused functions; see `flash`."""

from __future__ import annotations

from math import prod

from torch import Tensor

from pellucid.core.batch import one_length
from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.flash import attend_packed, attend_padded, causal_alone, fits
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
    lead, length, source = q.shape[:-3], q.shape[-2], k.shape[-2]
    n = prod(lead)

    qs, ks, vs = (x.reshape(n, *x.shape[-3:]) for x in (q, k, v))
    if q.device.type == "cpu":
        out, attend_backward = attend_padded(qs, ks, vs, None, causal, factor)
        z = out
    else:
        spans = one_length(n, length), one_length(n, source)
        rows = _rows(qs), _rows(ks), _rows(vs)
        out, attend_backward = attend_packed(*rows, *spans, causal, factor, 0.0, None)
        z = _heads(out, n)

    def backward(dout: Tensor) -> tuple[Tensor, ...]:
        check_gradient(dout, (*q.shape[:-1], v.shape[-1]))
        dz = dout.reshape(n, *dout.shape[-3:])
        if q.device.type == "cpu":
            gradients = attend_backward(dz)
        else:
            gradients = [_heads(x, n) for x in attend_backward(_rows(dz))]
        return tuple(x.reshape(*lead, *x.shape[-3:]) for x in gradients)

    return z.reshape(*lead, *z.shape[-3:]), backward


def _rows(x: Tensor) -> Tensor:
    """(N, H, L, D) -> (N · L, H, D)."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])


def _heads(rows: Tensor, n: int) -> Tensor:
    """(N · L, H, D) -> (N, H, L, D)."""
    return rows.reshape(n, -1, *rows.shape[1:]).transpose(1, 2)

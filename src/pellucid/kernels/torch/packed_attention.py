"""Attention over packed rows by torch's fused functions; see `flash`.

A GPU takes the rows as they are. On the CPU they are padded, and the padding after the keys masked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.core.batch import pack_rows, pad_rows
from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.draws import draws_on
from pellucid.kernels.torch.flash import attend_packed, attend_padded, causal_alone, fits


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.packed_attention` without a mask, where every sequence has keys."""
    q, k, v, cu_q, cu_k = call.q, call.k, call.v, call.cu_q, call.cu_k
    causal = causal_alone(call.rule)
    if causal is None or not (
        (call.offset is None or not call.offset.any())
        and fits(q, k, v)
        and q.ndim == k.ndim == v.ndim == 3
        and q.shape[1] == k.shape[1] == v.shape[1]
        and len(k) == len(v)
        and len(cu_q) == len(cu_k)
        and (len(q), len(k)) == (cu_q[-1], cu_k[-1])
        and bool(np.diff(cu_k).all())
        and draws_on(q.device, call.dropout, call.rng)
    ):
        return Declined("expects keys in every sequence, and no rule but causality")
    factor = q.shape[-1] ** -0.5 if call.scale is None else float(call.scale)
    shape = (*q.shape[:2], v.shape[2])

    if q.device.type == "cpu":
        out, attend_backward = _padded(q, k, v, cu_q, cu_k, causal, factor)
    else:
        out, attend_backward = attend_packed(
            q, k, v, cu_q, cu_k, causal, factor, call.dropout, call.rng
        )

    def backward(dout: Tensor) -> Any:
        check_gradient(dout, shape)
        return attend_backward(dout)

    return out, backward


def _padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: np.ndarray,
    cu_k: np.ndarray,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Any]:
    lengths = np.diff(cu_k)
    mask = None
    if not (lengths == lengths.max()).all():
        past = torch.from_numpy(np.arange(lengths.max()) >= lengths[:, None])
        mask = torch.zeros(past.shape, dtype=q.dtype).masked_fill_(past, -torch.inf)
        mask = mask[:, None, None].expand(-1, 1, int(np.diff(cu_q).max()), -1)
    heads = (_heads(q, cu_q), _heads(k, cu_k), _heads(v, cu_k))
    out, attend_backward = attend_padded(*heads, mask, causal, scale)

    def backward(dout: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = attend_backward(_heads(dout, cu_q))
        return _rows(dq, cu_q), _rows(dk, cu_k), _rows(dv, cu_k)

    return _rows(out, cu_q), backward


def _heads(rows: Tensor, cu_seqlens: np.ndarray) -> Tensor:
    """(T, H, D) -> (N, H, L, D)."""
    padded: Tensor = pad_rows(rows, cu_seqlens)
    return padded.transpose(1, 2)


def _rows(x: Tensor, cu_seqlens: np.ndarray) -> Tensor:
    """(N, H, L, D) -> (T, H, D)."""
    rows: Tensor = pack_rows(x.transpose(1, 2), cu_seqlens)
    return rows

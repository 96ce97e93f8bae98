"""Attention over packed rows, by PyTorch's fused functions on a GPU; see `flash`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.draws import draws_on
from pellucid.kernels.torch.flash import attend_packed, causal_alone, fits


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.packed_attention` on a GPU with the causal or no rule.

    All sequences must have keys, and all offsets must be 0.
    """
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

    out, attend_backward = attend_packed(
        q, k, v, cu_q, cu_k, causal, factor, call.dropout, call.rng
    )

    def backward(dout: Tensor) -> Any:
        check_gradient(dout, shape)
        return attend_backward(dout)

    return out, backward

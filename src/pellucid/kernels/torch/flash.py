"""Attention over packed rows on a GPU, by PyTorch's fused functions, without a score matrix.

PyTorch has two functions for sequences of any lengths one after another: memory-efficient attention
and, for bfloat16, flash attention. Both keep the log-sum-exp of each row for backward, which adds
in no fixed order, so that its last bits vary from run to run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.core.rng import Rng
from pellucid.kernels.torch.draws import seed_of
from pellucid.kernels.torch.tensors import are_numbers, on_device
from pellucid.ops import rules
from pellucid.ops.rule import Rule

_aten = torch.ops.aten
_ALIGNED = 8  # numbers of a head's width that the GPU's functions read together
_FROM_TOP_LEFT = 1  # the causal mask in which query l sees keys 0 … l
_WIDEST_FLASH = 256
_PACKED = ("cuda",)  # the types of device that have functions for packed rows


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether PyTorch has a fused attention for heads of this dtype, width and device.

    It has none for empty arrays.
    """
    if not are_numbers(q, k, v) or min(x.numel() for x in (q, k, v)) == 0:
        return False
    if q.shape[-1] != k.shape[-1]:
        return False
    aligned = not (q.shape[-1] % _ALIGNED or v.shape[-1] % _ALIGNED)
    return q.device.type in _PACKED and q.dtype != torch.float64 and aligned


def causal_alone(rule: Rule) -> bool | None:
    """Return True for the causal rule, False for the empty rule, None for any other rule."""
    if rule.score or set(rule.allowed) - set(rules.causal.allowed):
        return None
    return bool(rule.allowed)


def attend_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: np.ndarray,
    cu_k: np.ndarray,
    causal: bool,
    scale: float,
    dropout: float,
    rng: Rng | None,
) -> tuple[Tensor, Any]:
    """Compute attention within each sequence on a GPU.

    It is from q (T, H, D) to k (U, H, D) and v (U, H, Dv); without an rng nothing is dropped.

    Returns out (T, H, Dv) and backward(dout) -> dq, dk, dv. Every sequence must have a key.
    With dropout, PyTorch's default generator of the GPU gets a new seed.
    """
    spans = [on_device(cu, torch.int32, q.device) for cu in (cu_q, cu_k)]
    longest = [int(np.diff(cu).max()) for cu in (cu_q, cu_k)]
    dropout = 0.0 if rng is None else dropout
    if rng is not None and dropout:  # the device's own generator draws, and its state is kept
        torch.cuda.default_generators[q.device.index or 0].manual_seed(seed_of(rng))
    # Flash attention's causal mask is aligned at the end of the keys.
    aligned = not causal or np.array_equal(cu_q, cu_k)
    if q.dtype == torch.bfloat16 and aligned and q.shape[-1] == v.shape[-1] <= _WIDEST_FLASH:
        out, log_sums, state, unused, _ = _aten._flash_attention_forward(
            q, k, v, *spans, *longest, dropout, causal, False, scale=scale
        )

        def flash_backward(dout: Tensor) -> tuple[Tensor, ...]:
            gradients: tuple[Tensor, ...] = _aten._flash_attention_backward(
                dout.contiguous(), q, k, v, out, log_sums, *spans, *longest, dropout, causal,
                state, unused, scale=scale,
            )  # fmt: skip
            return gradients

        return out, flash_backward

    kind = _FROM_TOP_LEFT if causal else 0
    heads = [x[None] for x in (q, k, v)]
    outs, log_sums, seed, offset, *_ = _aten._efficient_attention_forward(
        *heads, None, *spans, *longest, dropout, kind, True, scale=scale
    )

    def backward(dout: Tensor) -> tuple[Tensor, ...]:
        gradients = _aten._efficient_attention_backward(
            dout.contiguous()[None], *heads, None, outs, *spans, *longest, log_sums, dropout,
            seed, offset, kind, False, scale=scale,
        )  # fmt: skip
        return tuple(x[0] for x in gradients[:3])

    return outs[0], backward

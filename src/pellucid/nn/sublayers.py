"""What encoder and decoder layers share: their parts, and attention as a step of a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from pellucid.core.rng import Rng, row_keys
from pellucid.nn.attention import MultiheadAttention
from pellucid.nn.blocks import Sublayer, feed_forward
from pellucid.nn.layers import Dropout, Linear
from pellucid.nn.module import Array, Forward, Module, single_use
from pellucid.nn.recorder import Recorder


def named_rows(rng: Rng | None, x: Array, batch_first: bool) -> Rng | None:
    """Name the rows of a padded batch by (example, position), unless a caller already has."""
    if rng is None or rng.rows is not None:
        return rng
    if x.ndim == 2:
        return rng.at(row_keys(np.zeros(1, int), np.arange(len(x))))
    n, length = x.shape[:2] if batch_first else (x.shape[1], x.shape[0])
    rows = row_keys(np.arange(n)[:, None], np.arange(length))
    return rng.at(rows if batch_first else rows.T)


def self_attention(mha: MultiheadAttention, recorder: Recorder | None, **options: Any) -> Sublayer:
    """Attention from x to itself on the padded road; its three gradients are one."""

    def sublayer(x: Array, rng: Rng | None) -> Forward:
        (y, _), back = mha.forward(
            x, x, x, need_weights=False, rng=rng, recorder=recorder, **options
        )

        def backward(dy: Array) -> Array:
            dq, dk, dv = back(dy)
            return np.asarray(dq + dk + dv)

        return y, backward

    return sublayer


def cross_attention(
    mha: MultiheadAttention, memory: Array, recorder: Recorder | None, **options: Any
) -> Sublayer:
    """Attention from x to memory on the padded road."""

    def sublayer(x: Array, rng: Rng | None) -> Forward:
        (y, _), back = mha.forward(
            x, memory, memory, need_weights=False, rng=rng, recorder=recorder, **options
        )

        def backward(dy: Array) -> tuple[Array, Array]:
            dq, dk, dv = back(dy)
            return dq, dk + dv

        return y, backward

    return sublayer


def packed_attention(
    mha: MultiheadAttention,
    memory: Array | None,
    cu_q: Array,
    cu_k: Array,
    is_causal: bool,
    recorder: Recorder | None,
) -> Sublayer:
    """Attention inside each sequence of packed rows, to x itself or to memory."""

    def sublayer(x: Array, rng: Rng | None) -> Forward:
        return mha.forward_packed(
            x, memory, cu_q, cu_k, is_causal=is_causal, rng=rng, recorder=recorder
        )

    return sublayer


def single(y: Array, back: Callable[..., Any]) -> Forward:
    """Return y and a way back that gives dx alone: there was no memory to give a gradient to."""

    @single_use
    def backward(dy: Array) -> Array:
        dx: Array = back(dy)[0]
        return dx

    return y, backward


class TransformerLayer(Module):
    """What encoder and decoder layers share: self-attention and a feed-forward network."""

    activation: str | Module

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float,
        batch_first: bool,
        norm_first: bool,
        bias: bool,
        dtype: Any,
        scale: float | Literal["learned"] | None,
        attends_to_memory: bool,
    ) -> None:
        self.norm_first, self.batch_first = norm_first, batch_first
        attention = {"batch_first": batch_first, "dtype": dtype, "scale": scale, "seed": None}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, **attention)
        if attends_to_memory:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, **attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype, seed=None)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype, seed=None)

    def feed_forward(self) -> Sublayer:
        """Return linear2(dropout(activation(linear1(x)))) as a step."""
        return feed_forward(self.linear1, self.activation, self.dropout, self.linear2)

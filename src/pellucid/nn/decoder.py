"""The decoder: torch.nn.TransformerDecoderLayer and torch.nn.TransformerDecoder.

Layer and stack have two roads. `forward` takes torch's padded arrays and masks; `forward_packed`
takes packed rows (T, E) and `cu_seqlens`, and never computes on padding.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pellucid.core.rng import Rng
from pellucid.nn import functional
from pellucid.nn.blocks import Block, Sublayer, as_activation, run_blocks
from pellucid.nn.layers import Dropout, LayerNorm
from pellucid.nn.module import Array, Forward, Module
from pellucid.nn.recorder import Recorder, inside
from pellucid.nn.stack import Stack
from pellucid.nn.sublayers import (
    TransformerLayer,
    cross_attention,
    named_rows,
    packed_attention,
    self_attention,
)


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to the encoder's memory, then a feed-forward network.

    torch.nn.TransformerDecoderLayer's arguments; tgt (L, N, E), memory (S, N, E), or batch first,
    or without N. `backward(dy)` returns (dtgt, dmemory). Of ours: `scale` of the scores, a number
    or "learned".
    Source: Vaswani et al. 2017, 3.1; seeds 001 and 002.

    >>> layer = TransformerDecoderLayer(8, 2, 11, batch_first=True).eval()
    >>> layer(np.ones((3, 5, 8), np.float32), np.ones((3, 7, 8), np.float32)).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
        scale: float | Literal["learned"] | None = None,
        seed: int | None = 0,
    ) -> None:
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, batch_first, norm_first, bias, dtype, scale,
            attends_to_memory=True,
        )  # fmt: skip
        self.norm1, self.norm2, self.norm3 = (
            LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(3)
        )
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))
        self.activation = as_activation(activation)
        self.initialise(seed)

    def blocks(self, self_attention: Sublayer, cross_attention: Sublayer) -> list[Block]:
        """Return the residual steps in order."""
        return [
            Block(self_attention, self.norm1, self.dropout1),
            Block(cross_attention, self.norm2, self.dropout2),
            Block(self.feed_forward(), self.norm3, self.dropout3),
        ]

    def forward(
        self,
        tgt: Array,
        memory: Array,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        *,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (y, backward); masks as in `MultiheadAttention.forward`."""
        to_self = self_attention(
            self.self_attn,
            inside(recorder, "self_attn"),
            attn_mask=tgt_mask,
            key_padding_mask=tgt_key_padding_mask,
            is_causal=tgt_is_causal,
        )
        to_memory = cross_attention(
            self.multihead_attn,
            memory,
            inside(recorder, "multihead_attn"),
            attn_mask=memory_mask,
            key_padding_mask=memory_key_padding_mask,
            is_causal=memory_is_causal,
        )
        rng = named_rows(rng, tgt, self.batch_first)
        return run_blocks(tgt, self.blocks(to_self, to_memory), self.norm_first, rng)

    def forward_packed(
        self,
        tgt: Array,
        memory: Array,
        cu_tgt: Array,
        cu_memory: Array,
        *,
        tgt_is_causal: bool = True,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (y, backward) for packed rows tgt (T, E) and memory (U, E)."""
        to_self = packed_attention(
            self.self_attn, None, cu_tgt, cu_tgt, tgt_is_causal, inside(recorder, "self_attn")
        )
        to_memory = packed_attention(
            self.multihead_attn, memory, cu_tgt, cu_memory, False,
            inside(recorder, "multihead_attn"),
        )  # fmt: skip
        return run_blocks(tgt, self.blocks(to_self, to_memory), self.norm_first, rng)


class TransformerDecoder(Stack):
    """`num_layers` copies of `decoder_layer`, then `norm`. torch.nn.TransformerDecoder's arguments.

    `backward(dy)` returns (dtgt, dmemory), every layer's share of memory added up.

    >>> layer = TransformerDecoderLayer(8, 2, 11)
    >>> x = np.ones((5, 3, 8), np.float32)
    >>> TransformerDecoder(layer, 2).eval()(x, x).shape
    (5, 3, 8)
    """

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Array,
        memory: Array,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        *,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (y, backward). `tgt_is_causal` None means False: the mask says it all."""
        return self._run(
            tgt, rng, recorder,
            lambda layer, x, rng, part: layer.forward(
                x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                bool(tgt_is_causal), memory_is_causal, rng=rng, recorder=part,
            ),
        )  # fmt: skip

    def forward_packed(
        self,
        tgt: Array,
        memory: Array,
        cu_tgt: Array,
        cu_memory: Array,
        *,
        tgt_is_causal: bool = True,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (y, backward) for packed rows tgt (T, E) and memory (U, E)."""
        return self._run(
            tgt, rng, recorder,
            lambda layer, x, rng, part: layer.forward_packed(
                x, memory, cu_tgt, cu_memory, tgt_is_causal=tgt_is_causal, rng=rng, recorder=part
            ),
        )  # fmt: skip

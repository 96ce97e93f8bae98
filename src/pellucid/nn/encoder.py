"""The encoder: torch.nn.TransformerEncoderLayer and torch.nn.TransformerEncoder.

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
    named_rows,
    packed_attention,
    self_attention,
    single,
)


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention, then a feed-forward network. torch.nn.TransformerEncoderLayer's arguments.

    src: (S, N, E), or (N, S, E) with batch_first, or (S, E). Of ours: `scale` of the scores, a
    number or "learned".
    Source: Vaswani et al. 2017, 3.1; seeds 001 and 002.

    >>> layer = TransformerEncoderLayer(8, 2, 11, batch_first=True).eval()
    >>> layer(np.ones((3, 5, 8), np.float32)).shape
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
            attends_to_memory=False,
        )  # fmt: skip
        self.norm1, self.norm2 = (
            LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(2)
        )
        self.dropout1, self.dropout2 = (Dropout(dropout) for _ in range(2))
        self.activation = as_activation(activation)
        self.initialise(seed)

    def blocks(self, self_attention: Sublayer) -> list[Block]:
        """Return the residual steps in order."""
        return [
            Block(self_attention, self.norm1, self.dropout1),
            Block(self.feed_forward(), self.norm2, self.dropout2),
        ]

    def forward(
        self,
        src: Array,
        src_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool = False,
        *,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (y, backward); masks as in `MultiheadAttention.forward`."""
        attend = self_attention(
            self.self_attn,
            inside(recorder, "self_attn"),
            attn_mask=src_mask,
            key_padding_mask=src_key_padding_mask,
            is_causal=is_causal,
        )
        rng = named_rows(rng, src, self.batch_first)
        return single(*run_blocks(src, self.blocks(attend), self.norm_first, rng))

    def forward_packed(
        self,
        src: Array,
        cu_seqlens: Array,
        *,
        is_causal: bool = False,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (y, backward) for packed rows (T, E)."""
        attend = packed_attention(
            self.self_attn, None, cu_seqlens, cu_seqlens, is_causal, inside(recorder, "self_attn")
        )
        return single(*run_blocks(src, self.blocks(attend), self.norm_first, rng))


class TransformerEncoder(Stack):
    """`num_layers` copies of `encoder_layer`, then `norm`. torch.nn.TransformerEncoder's arguments.

    As in torch the copies start equal. `enable_nested_tensor` and `mask_check` choose torch's
    implementation; they are accepted and do nothing here.

    >>> layer = TransformerEncoderLayer(8, 2, 11, batch_first=True)
    >>> TransformerEncoder(layer, 2).eval()(np.ones((3, 5, 8), np.float32)).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Array,
        mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool | None = None,
        *,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (memory, backward). `is_causal` None means False: the mask says it all."""
        y, back = self._run(
            src, rng, recorder,
            lambda layer, x, rng, part: layer.forward(
                x, mask, src_key_padding_mask, bool(is_causal), rng=rng, recorder=part
            ),
        )  # fmt: skip
        return single(y, back)

    def forward_packed(
        self,
        src: Array,
        cu_seqlens: Array,
        *,
        is_causal: bool = False,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (memory, backward) for packed rows (T, E)."""
        y, back = self._run(
            src, rng, recorder,
            lambda layer, x, rng, part: layer.forward_packed(
                x, cu_seqlens, is_causal=is_causal, rng=rng, recorder=part
            ),
        )  # fmt: skip
        return single(y, back)

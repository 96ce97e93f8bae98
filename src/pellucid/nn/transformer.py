"""torch.nn.Transformer and its parts: same names, arguments, defaults and numbers.

Every layer and stack has two roads. `forward` takes torch's padded arrays and masks;
`forward_packed` takes packed rows (T, E) and `cu_seqlens`, and never computes on padding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.nn import masks
from pellucid.nn.attention import MultiheadAttention
from pellucid.nn.blocks import Block, Sublayer, as_activation, feed_forward, run_blocks
from pellucid.nn.layers import Dropout, LayerNorm, Linear
from pellucid.nn.module import Array, Forward, Module, ModuleList, way_back, xavier_uniform
from pellucid.nn.recorder import Recorder, inside
from pellucid.rng import Rng, row_keys

Attend = Callable[[MultiheadAttention, str], Sublayer]


class _Layer(Module):
    """What encoder and decoder layers share."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float,
        activation: Any,
        batch_first: bool,
        norm_first: bool,
        bias: bool,
        dtype: Any,
        scale: float | None,
    ) -> None:
        self.activation = as_activation(activation)
        self.norm_first = norm_first
        self.batch_first = batch_first
        self.self_attn = self._attention(d_model, nhead, dropout, bias, dtype, scale)
        self._size = (d_model, dim_feedforward, bias, dtype)

    def _attention(
        self, d_model: int, nhead: int, dropout: float, bias: bool, dtype: Any, scale: float | None
    ) -> MultiheadAttention:
        return MultiheadAttention(
            d_model,
            nhead,
            dropout,
            bias,
            batch_first=self.batch_first,
            dtype=dtype,
            scale=scale,
            seed=None,
        )

    def _feed_forward_parts(self, dropout: float) -> None:
        d_model, dim_feedforward, bias, dtype = self._size
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype, seed=None)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype, seed=None)

    def _norm(self, eps: float) -> LayerNorm:
        d_model, _, bias, dtype = self._size
        return LayerNorm(d_model, eps, bias=bias, dtype=dtype)

    def _ff_block(self) -> Sublayer:
        return feed_forward(self.linear1, self.activation, self.dropout, self.linear2)


def _named_rows(rng: Rng | None, x: Array, batch_first: bool) -> Rng | None:
    """Name the rows of a padded batch by (example, position), unless a caller already has."""
    if rng is None or rng.rows is not None:
        return rng
    if x.ndim == 2:
        return rng.at(row_keys(np.zeros(1, int), np.arange(len(x))))
    n, length = x.shape[:2] if batch_first else (x.shape[1], x.shape[0])
    rows = row_keys(np.arange(n)[:, None], np.arange(length))
    return rng.at(rows if batch_first else rows.T)


def _self_attention(mha: MultiheadAttention, recorder: Recorder | None, **options: Any) -> Sublayer:
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


def _cross_attention(
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


def _packed_attention(
    mha: MultiheadAttention,
    memory: Array | None,
    cu_q: Array,
    cu_k: Array,
    is_causal: bool,
    recorder: Recorder | None,
) -> Sublayer:
    def sublayer(x: Array, rng: Rng | None) -> Forward:
        return mha.forward_packed(
            x, memory, cu_q, cu_k, is_causal=is_causal, rng=rng, recorder=recorder
        )

    return sublayer


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward network. torch.nn.TransformerEncoderLayer's arguments.

    src: (S, N, E), or (N, S, E) with batch_first, or (S, E). Of ours: `scale` of the scores.
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
        activation: Any = ops.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
        scale: float | None = None,
        seed: int | None = 0,
    ) -> None:
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, activation, batch_first, norm_first, bias,
            dtype, scale,
        )  # fmt: skip
        self._feed_forward_parts(dropout)
        self.norm1, self.norm2 = self._norm(layer_norm_eps), self._norm(layer_norm_eps)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.initialise(seed)

    def blocks(self, self_attention: Sublayer) -> list[Block]:
        """Return the residual steps in order."""
        return [
            Block(self_attention, self.norm1, self.dropout1),
            Block(self._ff_block(), self.norm2, self.dropout2),
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
        attend = _self_attention(
            self.self_attn,
            inside(recorder, "self_attn"),
            attn_mask=src_mask,
            key_padding_mask=src_key_padding_mask,
            is_causal=is_causal,
        )
        rng = _named_rows(rng, src, self.batch_first)
        return _single(*run_blocks(src, self.blocks(attend), self.norm_first, rng))

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
        attend = _packed_attention(
            self.self_attn, None, cu_seqlens, cu_seqlens, is_causal, inside(recorder, "self_attn")
        )
        return _single(*run_blocks(src, self.blocks(attend), self.norm_first, rng))


def _single(y: Array, back: Callable[..., Any]) -> Forward:
    @way_back
    def backward(dy: Array) -> Array:
        dx: Array = back(dy)[0]
        return dx

    return y, backward


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's memory, then a feed-forward network.

    torch.nn.TransformerDecoderLayer's arguments; tgt (L, N, E), memory (S, N, E), or batch first,
    or without N. `backward(dy)` returns (dtgt, dmemory). Of ours: `scale` of the scores.
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
        activation: Any = ops.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
        scale: float | None = None,
        seed: int | None = 0,
    ) -> None:
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, activation, batch_first, norm_first, bias,
            dtype, scale,
        )  # fmt: skip
        self.multihead_attn = self._attention(d_model, nhead, dropout, bias, dtype, scale)
        self._feed_forward_parts(dropout)
        self.norm1, self.norm2, self.norm3 = (self._norm(layer_norm_eps) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))
        self.initialise(seed)

    def blocks(self, self_attention: Sublayer, cross_attention: Sublayer) -> list[Block]:
        """Return the residual steps in order."""
        return [
            Block(self_attention, self.norm1, self.dropout1),
            Block(cross_attention, self.norm2, self.dropout2),
            Block(self._ff_block(), self.norm3, self.dropout3),
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
        to_self = _self_attention(
            self.self_attn,
            inside(recorder, "self_attn"),
            attn_mask=tgt_mask,
            key_padding_mask=tgt_key_padding_mask,
            is_causal=tgt_is_causal,
        )
        to_memory = _cross_attention(
            self.multihead_attn,
            memory,
            inside(recorder, "multihead_attn"),
            attn_mask=memory_mask,
            key_padding_mask=memory_key_padding_mask,
            is_causal=memory_is_causal,
        )
        rng = _named_rows(rng, tgt, self.batch_first)
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
        to_self = _packed_attention(
            self.self_attn, None, cu_tgt, cu_tgt, tgt_is_causal, inside(recorder, "self_attn")
        )
        to_memory = _packed_attention(
            self.multihead_attn, memory, cu_tgt, cu_memory, False,
            inside(recorder, "multihead_attn"),
        )  # fmt: skip
        return run_blocks(tgt, self.blocks(to_self, to_memory), self.norm_first, rng)


class _Stack(Module):
    """Layers one after another, and a norm or none at the end."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def _run(
        self,
        x: Array,
        rng: Rng | None,
        recorder: Recorder | None,
        call: Callable[[Any, Array, Rng | None, Recorder | None], Forward],
    ) -> Forward:
        """Pass x through the layers; `backward(dy)` returns (dx, dmemory or None)."""
        backwards = []
        for i, layer in enumerate(self.layers):
            part = inside(inside(recorder, "layers"), str(i))
            x, back = call(layer, x, None if rng is None else rng.fold(i), part)
            backwards.append(back)
        norm_backward = None
        if self.norm is not None:
            x, norm_backward = self.norm.forward(x)

        @way_back
        def backward(dy: Array) -> tuple[Array, Array | None]:
            dmemory: Array | None = None
            if norm_backward is not None:
                dy = norm_backward(dy)
            while backwards:
                gradients = backwards.pop()(dy)
                dy, more = gradients if isinstance(gradients, tuple) else (gradients, None)
                if more is not None:
                    dmemory = more if dmemory is None else dmemory + more
            return dy, dmemory

        return x, backward


class TransformerEncoder(_Stack):
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

        def call(layer: Any, x: Array, rng: Rng | None, part: Recorder | None) -> Forward:
            result: Forward = layer.forward(
                x, mask, src_key_padding_mask, bool(is_causal), rng=rng, recorder=part
            )
            return result

        return _single(*self._run(src, rng, recorder, call))

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

        def call(layer: Any, x: Array, rng: Rng | None, part: Recorder | None) -> Forward:
            result: Forward = layer.forward_packed(
                x, cu_seqlens, is_causal=is_causal, rng=rng, recorder=part
            )
            return result

        return _single(*self._run(src, rng, recorder, call))


class TransformerDecoder(_Stack):
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

        def call(layer: Any, x: Array, rng: Rng | None, part: Recorder | None) -> Forward:
            result: Forward = layer.forward(
                x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                bool(tgt_is_causal), memory_is_causal, rng=rng, recorder=part,
            )  # fmt: skip
            return result

        return self._run(tgt, rng, recorder, call)

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

        def call(layer: Any, x: Array, rng: Rng | None, part: Recorder | None) -> Forward:
            result: Forward = layer.forward_packed(
                x, memory, cu_tgt, cu_memory, tgt_is_causal=tgt_is_causal, rng=rng, recorder=part
            )
            return result

        return self._run(tgt, rng, recorder, call)


class Transformer(Module):
    """Encoder and decoder stacks with a norm after each. torch.nn.Transformer's arguments.

    `backward(dy)` returns (dsrc, dtgt). A custom encoder is any Module whose
    `forward(src, mask, src_key_padding_mask, is_causal)` returns (memory, backward); a custom
    decoder one whose backward returns (dtgt, dmemory). Source: Vaswani et al. 2017; seed 002.

    >>> model = Transformer(8, 2, 1, 1, 11, batch_first=True).eval()
    >>> model(np.ones((3, 5, 8), np.float32), np.ones((3, 7, 8), np.float32)).shape
    (3, 7, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = ops.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
        seed: int | None = 0,
    ) -> None:
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                 norm_first, bias)  # fmt: skip
        self.encoder: Module
        self.decoder: Module
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(*layer, dtype=dtype, seed=None),
                num_encoder_layers,
                LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype),
            )
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*layer, dtype=dtype, seed=None),
                num_decoder_layers,
                LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype),
            )
        for parameter in self.parameters():
            if len(parameter.shape) > 1:
                parameter.init = xavier_uniform
        self.initialise(seed)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    generate_square_subsequent_mask = staticmethod(masks.generate_square_subsequent_mask)

    def forward(
        self,
        src: Array,
        tgt: Array,
        src_mask: Array | None = None,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        *,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (y, backward); masks as in `MultiheadAttention.forward`.

        Raises `ValueError` when src and tgt differ in batch, or either is not d_model wide.
        """
        self._check(src, tgt)
        ours = {} if rng is None else {"rng": rng.fold(0)}
        if recorder is not None:
            ours["recorder"] = recorder.inside("encoder")
        memory, encoder_backward = self.encoder.forward(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
            **ours,
        )
        if rng is not None:
            ours["rng"] = rng.fold(1)
        if recorder is not None:
            ours["recorder"] = recorder.inside("decoder")
        y, decoder_backward = self.decoder.forward(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
            **ours,
        )

        @way_back
        def backward(dy: Array) -> tuple[Array, Array]:
            dtgt, dmemory = decoder_backward(dy)
            if dmemory is None:  # a decoder without layers never looks at memory
                dmemory = np.zeros_like(memory)
            return encoder_backward(dmemory), dtgt

        return y, backward

    def _check(self, src: Array, tgt: Array) -> None:
        if src.ndim != tgt.ndim or src.ndim not in (2, 3):
            raise ValueError(
                f"src and tgt must both have 3 axes, or both 2 without a batch; got {src.shape} "
                f"and {tgt.shape}"
            )
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ValueError(
                f"src and tgt must have the same batch, axis {batch} "
                f"(batch_first={self.batch_first}); got {src.shape} and {tgt.shape}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ValueError(
                f"src and tgt must be d_model = {self.d_model} wide; got {src.shape} and {tgt.shape}"
            )

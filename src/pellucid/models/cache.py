"""One token at a time: the keys and values a decoder has already made, kept for the next step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid import nn, ops
from pellucid.nn.blocks import Sublayer, run_blocks
from pellucid.nn.module import Array
from pellucid.packed import pad_rows
from pellucid.rng import Rng


@dataclass(frozen=True)
class Cache:
    """For every decoder layer its own keys and values so far, and those of the memory.

    self_keys, self_values: per layer (B, H, t, D); memory_keys, memory_values: per layer
    (B, H, S, D); memory_padding: (B, 1, 1, S) bool, True where a source has ended.
    """

    self_keys: tuple[Array, ...]
    self_values: tuple[Array, ...]
    memory_keys: tuple[Array, ...]
    memory_values: tuple[Array, ...]
    memory_padding: Array

    def select(self, rows: Array) -> Cache:
        """Return the cache of these hypotheses, in this order."""

        def chosen(layers: tuple[Array, ...]) -> tuple[Array, ...]:
            return tuple(x[rows] for x in layers)

        return Cache(
            chosen(self.self_keys),
            chosen(self.self_values),
            chosen(self.memory_keys),
            chosen(self.memory_values),
            self.memory_padding[rows],
        )


def _heads(x: Array, heads: int) -> Array:
    """(B, L, E) -> (B, H, L, D)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def start_cache(decoder: nn.TransformerDecoder, memory: Array, cu_seqlens: Array) -> Cache:
    """Project the memory, packed rows (U, E), to every layer's keys and values, once."""
    lengths = np.diff(cu_seqlens)
    padding = np.arange(int(lengths.max(initial=0))) >= lengths[:, None]
    keys, values, none = [], [], []
    for layer in decoder.layers:
        attention = layer.multihead_attn
        _, (w_k, b_k), (w_v, b_v) = attention.projections()
        heads = attention.num_heads
        keys.append(_heads(pad_rows(ops.linear(memory, w_k, b_k)[0], cu_seqlens), heads))
        values.append(_heads(pad_rows(ops.linear(memory, w_v, b_v)[0], cu_seqlens), heads))
        none.append(np.zeros((len(lengths), heads, 0, attention.head_dim), memory.dtype))
    return Cache(tuple(none), tuple(none), tuple(keys), tuple(values), padding[:, None, None, :])


def run_step(decoder: nn.TransformerDecoder, x: Array, cache: Cache) -> tuple[Array, Cache]:
    """Pass one row per hypothesis, x (B, E), through the decoder; return (rows (B, E), cache)."""
    keys, values = [], []
    for i, layer in enumerate(decoder.layers):
        made: list[Array] = []
        to_self = _to_self(layer.self_attn, cache.self_keys[i], cache.self_values[i], made)
        to_memory = _to_memory(
            layer.multihead_attn, cache.memory_keys[i], cache.memory_values[i], cache.memory_padding
        )
        x, _ = run_blocks(x, layer.blocks(to_self, to_memory), layer.norm_first, None)
        keys.append(made[0])
        values.append(made[1])
    if decoder.norm is not None:
        x = decoder.norm(x)
    grown = Cache(
        tuple(keys), tuple(values), cache.memory_keys, cache.memory_values, cache.memory_padding
    )
    return x, grown


def _to_self(
    attention: nn.MultiheadAttention, keys: Array, values: Array, made: list[Array]
) -> Sublayer:
    """Attention of the newest row to itself and all before it; `made` receives the grown cache."""

    def sublayer(x: Array, rng: Rng | None) -> tuple[Array, Any]:
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        assert weight is not None
        qkv, _ = ops.linear(x, weight.data, None if bias is None else bias.data)
        q, k, v = (_heads(part[:, None], attention.num_heads) for part in np.split(qkv, 3, axis=1))
        made.append(np.concatenate([keys, k], axis=2))
        made.append(np.concatenate([values, v], axis=2))
        out, _ = ops.attention(q, made[0], made[1], scale=attention.scale)
        return attention.out_proj(out.reshape(len(x), -1)), _no_way_back

    return sublayer


def _to_memory(
    attention: nn.MultiheadAttention, keys: Array, values: Array, padding: Array
) -> Sublayer:
    """Attention of the newest row to the memory."""

    def sublayer(x: Array, rng: Rng | None) -> tuple[Array, Any]:
        (weight, bias), *_ = attention.projections()
        q = _heads(ops.linear(x, weight, bias)[0][:, None], attention.num_heads)
        out, _ = ops.attention(q, keys, values, mask=padding, scale=attention.scale)
        return attention.out_proj(out.reshape(len(x), -1)), _no_way_back

    return sublayer


def _no_way_back(dy: Array) -> Any:
    raise RuntimeError("a decoding step keeps nothing to go back by; train with Seq2Seq.loss")

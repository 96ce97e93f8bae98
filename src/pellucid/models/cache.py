"""One token at a time: the keys and values already made, kept for the next step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid import nn, ops
from pellucid.core.batch import pad_rows
from pellucid.core.rng import Rng
from pellucid.nn.blocks import Sublayer, run_blocks
from pellucid.nn.layout import split_heads
from pellucid.nn.module import Array
from pellucid.nn.stack import Stack


@dataclass(frozen=True)
class Keys:
    """What the newest row may look at, in every layer.

    keys, values: per layer (B, H, S, D). padding: (B, 1, 1, S) bool, True where there is nothing;
    None when all rows have S.
    """

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    padding: Array | None = None

    def select(self, rows: Array) -> Keys:
        """Return the keys and values of these hypotheses, in this order."""
        return Keys(
            tuple(k[rows] for k in self.keys),
            tuple(v[rows] for v in self.values),
            None if self.padding is None else self.padding[rows],
        )


@dataclass(frozen=True)
class Cache:
    """A stack's own keys and values, and those of the memory if it looks at one."""

    own: Keys
    memory: Keys | None = None


@dataclass(frozen=True)
class State:
    """Where decoding stands: what was read and said so far, and each row's next position (B,)."""

    cache: Cache
    positions: Array

    def select(self, rows: Array) -> State:
        """Return the state of these hypotheses, in this order; one may come several times."""
        memory = self.cache.memory
        cache = Cache(self.cache.own.select(rows), None if memory is None else memory.select(rows))
        return State(cache, self.positions[rows])


def no_keys(stack: Stack, batch: int, dtype: Any) -> Keys:
    """Return the own keys of a stack that has seen nothing."""
    none = tuple(
        np.zeros((batch, layer.self_attn.num_heads, 0, layer.self_attn.head_dim), dtype)
        for layer in stack.layers
    )
    return Keys(none, none)


def padding_of(cu_seqlens: Array) -> Array:
    """Return (B, 1, 1, S) bool, True past the end of each sequence; S is the longest."""
    lengths = np.diff(cu_seqlens)
    past = np.arange(int(lengths.max(initial=0))) >= lengths[:, None]
    return np.asarray(past[:, None, None, :])


def project_memory(decoder: nn.TransformerDecoder, memory: Array, cu_seqlens: Array) -> Keys:
    """Project the memory, packed rows (U, E), to every layer's keys and values, once."""
    keys, values = [], []
    for layer in decoder.layers:
        attention = layer.multihead_attn
        _, (w_k, b_k), (w_v, b_v) = attention.projections()
        heads = attention.num_heads
        keys.append(split_heads(pad_rows(ops.linear(memory, w_k, b_k)[0], cu_seqlens), heads))
        values.append(split_heads(pad_rows(ops.linear(memory, w_v, b_v)[0], cu_seqlens), heads))
    return Keys(tuple(keys), tuple(values), padding_of(cu_seqlens))


def run_step(stack: Stack, x: Array, cache: Cache) -> tuple[Array, Cache]:
    """Pass one row per hypothesis, x (B, E), through the stack; return (rows (B, E), cache).

    The stack is a decoder with a memory, or an encoder whose rows look back only.
    """
    own, memory = cache.own, cache.memory
    padding = own.padding
    if padding is not None:  # the newest row is there for everybody
        padding = np.concatenate([padding, np.zeros_like(padding, shape=(len(x), 1, 1, 1))], axis=3)
    keys, values = [], []
    for i, layer in enumerate(stack.layers):
        made: list[Array] = []
        attend = [_to_self(layer.self_attn, own.keys[i], own.values[i], padding, made)]
        if memory is not None:
            to = (memory.keys[i], memory.values[i], memory.padding)
            attend.append(_to_memory(layer.multihead_attn, *to))
        x, _ = run_blocks(x, layer.blocks(*attend), layer.norm_first, None)
        keys.append(made[0])
        values.append(made[1])
    if stack.norm is not None:
        x = stack.norm(x)
    return x, Cache(Keys(tuple(keys), tuple(values), padding), memory)


def _queries(attention: nn.MultiheadAttention, q: Array) -> Array:
    """(B, E) -> (B, H, 1, D), a learned scale put in."""
    heads = split_heads(q[:, None], attention.num_heads)
    scale = attention.head_scale
    return heads if scale is None else heads * scale.data[:, None, None]


def _to_self(
    attention: nn.MultiheadAttention,
    keys: Array,
    values: Array,
    padding: Array | None,
    made: list[Array],
) -> Sublayer:
    """Attention of the newest row to itself and all before it; `made` receives the grown cache."""

    def sublayer(x: Array, rng: Rng | None) -> tuple[Array, Any]:
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        assert weight is not None
        qkv, _ = ops.linear(x, weight.data, None if bias is None else bias.data)
        q, k, v = np.split(qkv, 3, axis=1)
        k, v = (split_heads(part[:, None], attention.num_heads) for part in (k, v))
        made.append(np.concatenate([keys, k], axis=2))
        made.append(np.concatenate([values, v], axis=2))
        out, _ = ops.attention(_queries(attention, q), *made, mask=padding, scale=attention.scale)
        return attention.out_proj(out.reshape(len(x), -1)), _no_way_back

    return sublayer


def _to_memory(
    attention: nn.MultiheadAttention, keys: Array, values: Array, padding: Array | None
) -> Sublayer:
    """Attention of the newest row to the memory."""

    def sublayer(x: Array, rng: Rng | None) -> tuple[Array, Any]:
        (weight, bias), *_ = attention.projections()
        q = _queries(attention, ops.linear(x, weight, bias)[0])
        out, _ = ops.attention(q, keys, values, mask=padding, scale=attention.scale)
        return attention.out_proj(out.reshape(len(x), -1)), _no_way_back

    return sublayer


def _no_way_back(dy: Array) -> Any:
    raise RuntimeError("a decoding step keeps nothing to go back by; train with the model's loss")

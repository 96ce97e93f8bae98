"""A model's weights as the decoding kernels read them: one long array, and where in it things are.

Products stand in panels (`kernels.matmul`), vectors padded to them, each beginning where a line of
the cache does. It is a copy: a model that is trained further needs a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pellucid.compiled import blocks
from pellucid.compiled.blocks import FEED_FORWARD, MEMORY, SELF
from pellucid.kernels.backend.matmul import WIDTH, panels
from pellucid.kernels.backend.simd import LANES
from pellucid.models.config import StackConfig
from pellucid.nn import LayerNorm, MultiheadAttention, TransformerDecoderLayer
from pellucid.nn.transformer import Stack

Array = np.ndarray

_LINE = 16  # floats in a line of the cache
_ACTIVATIONS = {
    "relu": blocks.RELU,
    "leaky_relu": blocks.LEAKY_RELU,
    "gelu": blocks.GELU,
    "gelu_tanh": blocks.GELU_TANH,
    "silu": blocks.SILU,
}
_NO_TOKEN = -1e30


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


class Laid(NamedTuple):
    """A stack's program and sizes; see `kernels.decode_blocks`."""

    program: Array
    sizes: Array

    @property
    def layers(self) -> int:
        """How many layers keep keys."""
        return int((self.program[:, blocks.KIND] == SELF).sum())


class Layout:
    """Collects weights; `weights()` is the long array."""

    def __init__(self, config: StackConfig) -> None:
        self.config = config
        self.panel = WIDTH
        self.row = _up(config.d_model, WIDTH)
        self.head = _up(config.head_width, LANES)
        self.span = config.num_attention_heads * self.head
        self._parts: list[Array] = []
        self._end = 0

    def weights(self) -> Array:
        """Return everything that was put, (1, all)."""
        raw = np.empty(self._end + _LINE, np.float32)
        skip = -(raw.ctypes.data // raw.itemsize) % _LINE
        w = raw[skip : skip + self._end]
        at = 0
        for part in self._parts:
            w[at : at + part.size] = part.ravel()
            at += part.size
        return w.reshape(1, -1)

    def numbers(self) -> Array:
        """Return what the kernels multiply by, and ε; see `kernels.decode`."""
        config = self.config
        return np.array(
            [
                config.score_factor,
                config.layer_norm_eps,
                config.token_factor,
                config.position_factor,
            ],
            np.float32,
        )

    def stack(self, stack: Stack) -> Laid:
        """Put a stack's blocks, in the order in which its layers run them."""
        program = [line for i, layer in enumerate(stack.layers) for line in self._layer(i, layer)]
        config = self.config
        last = -1 if stack.norm is None else self._norm(stack.norm)
        sizes = (
            config.d_model,
            self.row,
            config.ffn_dim,
            _up(config.ffn_dim, WIDTH),
            config.num_attention_heads,
            self.head,
            int(config.norm == "pre"),
            _ACTIVATIONS[config.activation_function],
            last,
        )
        lines = np.array(program, np.int64).reshape(-1, 7)
        return Laid(lines, np.array(sizes, np.int64))

    def product(self, weight: Array, bias: Array | None, fill: float = 0.0) -> tuple[int, int]:
        """Put x Wᵀ + b; return where W and b stand. `fill` pads the bias to whole panels."""
        at = self._put(panels(weight.T))
        padded = np.full(_up(len(weight), WIDTH), fill, np.float32)
        padded[: len(weight)] = 0.0 if bias is None else bias
        return at, self._put(padded)

    def output(self, weight: Array, bias: Array | None) -> tuple[int, int]:
        """Put the output layer: no token stands in its padding."""
        return self.product(weight, bias, _NO_TOKEN)

    def memory(self, stack: Stack) -> Array:
        """Put what makes a memory into every layer's keys and values: (layers, 2)."""
        places = [self._keys_values(layer.multihead_attn) for layer in stack.layers]
        return np.array(places, np.int64).reshape(-1, 2)

    def _layer(self, i: int, layer: Any) -> Iterable[list[int]]:
        for more in layer.before:
            yield self._feed_forward(more, more.norm)
        yield self._self(i, layer.self_attn, layer.norm1)
        reads = isinstance(layer, TransformerDecoderLayer)
        if reads:
            yield self._memory(i, layer.multihead_attn, layer.norm2)
        yield self._feed_forward(layer, layer.norm3 if reads else layer.norm2)
        for more in layer.after:
            yield self._feed_forward(more, more.norm)

    def _feed_forward(self, network: Any, norm: LayerNorm) -> list[int]:
        into, out = (
            self.product(linear.weight.data, linear.bias.data)
            for linear in (network.linear1, network.linear2)
        )
        return [FEED_FORWARD, self._norm(norm), *into, *out, 0]

    def _self(self, i: int, attention: MultiheadAttention, norm: LayerNorm) -> list[int]:
        q, k, v = (self._heads(*p) for p in attention.folded_projections())
        weight, bias = (np.concatenate(some) for some in zip(q, k, v, strict=True))
        return [SELF, self._norm(norm), *self.product(weight, bias), *self._out(attention), i]

    def _memory(self, i: int, attention: MultiheadAttention, norm: LayerNorm) -> list[int]:
        into = self.product(*self._heads(*attention.folded_projections().q))
        return [MEMORY, self._norm(norm), *into, *self._out(attention), i]

    def _keys_values(self, attention: MultiheadAttention) -> tuple[int, int]:
        _, *kv = attention.projections()
        weight, bias = (
            np.concatenate(some) for some in zip(*(self._heads(*p) for p in kv), strict=True)
        )
        return self.product(weight, bias)

    def _heads(self, weight: Array, bias: Array | None) -> tuple[Array, Array]:
        """Pad every head of a projection with rows of zeros."""
        heads, width, e = (
            self.config.num_attention_heads,
            self.config.head_width,
            self.config.d_model,
        )
        w, b = np.zeros((heads, self.head, e), np.float32), np.zeros((heads, self.head), np.float32)
        w[:, :width] = weight.reshape(heads, width, e)
        b[:, :width] = 0.0 if bias is None else bias.reshape(heads, width)
        return w.reshape(-1, e), b.reshape(-1)

    def _out(self, attention: MultiheadAttention) -> tuple[int, int]:
        """Put the product after the heads, whose padding it meets with zeros."""
        heads, width, e = (
            self.config.num_attention_heads,
            self.config.head_width,
            self.config.d_model,
        )
        out = attention.out_proj
        w = np.zeros((e, heads, self.head), np.float32)
        w[:, :, :width] = out.weight.data.reshape(e, heads, width)
        return self.product(w.reshape(e, -1), None if out.bias is None else out.bias.data)

    def _norm(self, norm: Any) -> int:
        weight, bias = norm.arrays()
        both = np.zeros((2, self.row), np.float32)
        both[:, : len(weight)] = weight, bias
        return self._put(both)

    def _put(self, part: Array) -> int:
        at = self._end
        self._parts.append(part)
        self._end += part.size
        return at

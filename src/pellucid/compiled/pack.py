"""A model's weights as the decoding kernels read them, packed from its description.

Matrices are in panels (`kernels.backend.matmul`, or `.int8`), vectors padded to them, one after
another in one long array of each dtype. It is a copy: a model that is trained further needs a new
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numba import typeof

from pellucid import nn
from pellucid.compiled.blocks import FEED_FORWARD, MEMORY, SELF
from pellucid.compiled.records import (
    MODEL,
    PackedInputs,
    PackedModel,
    PackedOutput,
    PackedStack,
    PackedWeights,
)
from pellucid.kernels.backend import int8
from pellucid.kernels.backend.matmul import panels
from pellucid.kernels.backend.rows import writeable
from pellucid.kernels.backend.simd import LANES, WIDTH
from pellucid.models.describe import (
    GENERATIVE,
    Attention,
    FeedForward,
    Linear,
    Norm,
    Output,
    Reader,
    Residual,
    Stack,
    UnsupportedError,
    array,
    describe,
    parts,
    position_table,
    projections,
)
from pellucid.models.quantize import Arithmetic, int8_rows
from pellucid.ops.activations import ACTIVATIONS

Array = np.ndarray

_ACTIVATIONS = [
    name for name, row in ACTIVATIONS.items() if row.kernel is not None and row.gates == 1
]
READER = Reader("Compiled decoding", {**GENERATIVE, FeedForward: {"activation": _ACTIVATIONS}})

_LINE = 64  # bytes in a line of the processor's cache
_NO_TOKEN = -1e30


def pack(model: nn.Module, arithmetic: Arithmetic) -> tuple[PackedModel, str]:
    """Pack the float32 weights of a model that has a decoder; return them and its activation.

    For int8 every matrix is rounded as `models.quantize` does, which changes none that was stored
    in int8.

    Raises `UnsupportedError` for a model that the kernels do not compute.
    """
    records, weights = describe(model), _Weights(model.state_dict(), arithmetic)
    decoder, encoder = (READER.stack(records, name) for name in ("decoder", "encoder"))
    if decoder is None:
        raise UnsupportedError("Compiled decoding needs a decoder; this model has none")
    target, packed = _inputs(decoder, weights), weights.stack(decoder)
    source, read = target, packed
    memory: list[tuple[int, int]] = []
    if encoder is not None:
        source, read = _inputs(encoder, weights), weights.stack(encoder)
        memory = [
            weights.keys_values(block.sublayer)
            for block in decoder.blocks
            if isinstance(block.sublayer, Attention) and block.sublayer.over == "memory"
        ]
    (output,) = (record for record in records if isinstance(record, Output))
    weight = weights.state[output.linear.weight.name]
    at = weights.product(weight, array(output.linear.bias, weights.state), _NO_TOKEN)
    made = PackedModel(
        encoder is not None,
        weights.joined(),
        read,
        source,
        np.array(memory, np.int64).reshape(-1, 2),
        packed,
        target,
        PackedOutput(*at, len(weight), _up(len(weight), WIDTH)),
    )
    expected = tuple(MODEL[arithmetic].types)
    if (found := tuple(map(typeof, made))) != expected:
        raise TypeError(f"expected a packed model of {expected}, got {found}")
    networks = [part for part in parts(records) if isinstance(part, FeedForward)]
    return made, _the("activation", (network.activation for network in networks), "relu")


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def _inputs(stack: Stack, weights: _Weights) -> PackedInputs:
    tokens, scales = weights.state[stack.tokens.table.name], np.empty(0, np.float32)
    if weights.arithmetic == "int8":
        tokens, scales = int8_rows(tokens)
    return PackedInputs(
        writeable(tokens),
        scales.ravel(),
        writeable(position_table(stack.positions, weights.state, np.float32)),
        np.float32(stack.tokens.factor),
        np.float32(stack.positions.factor),
    )


def _the(name: str, values: Iterable[Any], default: Any) -> Any:
    """Return the one value of a setting that all blocks share; `default` if there are no blocks."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        raise UnsupportedError(
            f"Compiled decoding needs one {name} in all blocks, got "
            f"{', '.join(map(str, different))}"
        )
    return different[0] if different else default


class _Weights:
    """Collects what is packed; every method returns where it begins."""

    def __init__(self, state: Mapping[str, Array], arithmetic: Arithmetic) -> None:
        self.state, self.arithmetic = state, arithmetic
        self._floats, self._bytes = _Row(np.float32), _Row(np.uint8)

    def joined(self) -> PackedWeights:
        """Return everything."""
        return PackedWeights(self._floats.joined(), self._bytes.joined())

    def stack(self, stack: Stack) -> PackedStack:
        """Pack a stack's blocks, in order, and its final norm."""
        blocks = stack.blocks
        networks = [b.sublayer for b in blocks if isinstance(b.sublayer, FeedForward)]
        attentions = [b.sublayer for b in blocks if isinstance(b.sublayer, Attention)]
        norms = [b.norm for b in blocks] + ([] if stack.norm is None else [stack.norm])
        lines = [self._block(block) for block in blocks]
        causal = {each.causal for each in attentions if each.over == "self"}
        if causal - {stack.tokens.stack == "decoder"}:
            raise UnsupportedError(
                "Compiled decoding needs causal attention in the decoder and no other in the "
                f"encoder; {stack.tokens.stack} has causal = {causal}"
            )
        width = stack.tokens.table.shape[1]
        ffn = _the("ffn_dim", (network.linear1.weight.shape[0] for network in networks), 1)
        placement = _the("norm placement", (block.placement for block in blocks), "pre")
        return PackedStack(
            program=np.array(lines, np.int64).reshape(-1, 7),
            layers=len(stack.layers()),
            width=width,
            padded_width=_up(width, WIDTH),
            ffn=ffn,
            padded_ffn=_up(ffn, WIDTH),
            heads=_the("number of heads", (each.heads for each in attentions), 1),
            head_width=_up(_the("head width", (each.head_width for each in attentions), 1), LANES),
            pre_norm=int(placement == "pre"),
            final_norm=-1 if stack.norm is None else self._norm(stack.norm),
            scale=np.float32(_the("scale of the scores", (each.scale for each in attentions), 1.0)),
            eps=np.float32(_the("norm eps", (norm.eps for norm in norms), 0.0)),
        )

    def product(self, weight: Array, bias: Array | None, fill: float = 0.0) -> tuple[int, int]:
        """Pack x Wᵀ + b: W and b. `fill` pads the bias to whole panels."""
        n = len(weight)
        padded = np.full(_up(n, WIDTH), fill, np.float32)
        padded[:n] = 0.0 if bias is None else bias
        if self.arithmetic == "float32":
            return self._floats.add(panels(weight.T)), self._floats.add(padded)
        rows, scales = int8_rows(weight)
        both = np.stack([padded, np.zeros_like(padded)])
        both[1, :n] = scales.ravel()
        return self._bytes.add(int8.panels(rows)), self._floats.add(both)

    def keys_values(self, attention: Attention) -> tuple[int, int]:
        """Pack what projects the encoder's rows to a layer's keys and values."""
        _, *kv = projections(attention, self.state)
        weight, bias = zip(*(self._heads(attention, *p) for p in kv), strict=True)
        return self.product(np.concatenate(weight), np.concatenate(bias))

    def _block(self, block: Residual) -> list[int]:
        """Return a block's line of the program."""
        if isinstance(block.sublayer, FeedForward):
            network = block.sublayer
            into, out = (self._linear(linear) for linear in (network.linear1, network.linear2))
            return [FEED_FORWARD, self._norm(block.norm), *into, *out, block.layer]
        attention = block.sublayer
        each = [self._heads(attention, *p) for p in projections(attention, self.state)]
        kind = {"self": SELF, "memory": MEMORY}[attention.over]
        weight, bias = zip(*(each if kind == SELF else each[:1]), strict=True)
        into = self.product(np.concatenate(weight), np.concatenate(bias))
        return [kind, self._norm(block.norm), *into, *self._out(attention), block.layer]

    def _linear(self, linear: Linear) -> tuple[int, int]:
        return self.product(self.state[linear.weight.name], array(linear.bias, self.state))

    def _heads(
        self, attention: Attention, weight: Array, bias: Array | None
    ) -> tuple[Array, Array]:
        """Pad every head of a projection with rows of zeros."""
        heads, width, e = attention.heads, attention.head_width, weight.shape[1]
        w = np.zeros((heads, _up(width, LANES), e), np.float32)
        b = np.zeros((heads, _up(width, LANES)), np.float32)
        w[:, :width] = weight.reshape(heads, width, e)
        b[:, :width] = 0.0 if bias is None else bias.reshape(heads, width)
        return w.reshape(-1, e), b.reshape(-1)

    def _out(self, attention: Attention) -> tuple[int, int]:
        """Pack the product after the heads; zeros meet their padding."""
        heads, width = attention.heads, attention.head_width
        weight = self.state[attention.out_proj.weight.name]
        w = np.zeros((len(weight), heads, _up(width, LANES)), np.float32)
        w[:, :, :width] = weight.reshape(-1, heads, width)
        bias = array(attention.out_proj.bias, self.state)
        return self.product(w.reshape(len(weight), -1), bias)

    def _norm(self, norm: Norm) -> int:
        weight = self.state[norm.weight.name]
        both = np.zeros((2, _up(len(weight), WIDTH)), np.float32)
        both[0, : len(weight)] = weight
        if norm.bias is not None:
            both[1, : len(weight)] = self.state[norm.bias.name]
        return self._floats.add(both)


class _Row:
    """Arrays of one dtype, one after another."""

    def __init__(self, dtype: Any) -> None:
        self._dtype, self._parts, self._end = np.dtype(dtype), list[Array](), 0

    def add(self, part: Array) -> int:
        """Append an array; return where it begins."""
        at = self._end
        self._parts.append(part)
        self._end += part.size
        return at

    def joined(self) -> Array:
        """Return everything as one array (1, all) that begins at a line of the cache."""
        line = _LINE // self._dtype.itemsize
        raw = np.empty(self._end + line, self._dtype)
        skip = -(raw.ctypes.data // self._dtype.itemsize) % line
        row = raw[skip : skip + self._end]
        at = 0
        for part in self._parts:
            row[at : at + part.size] = part.ravel()
            at += part.size
        return row.reshape(1, -1)

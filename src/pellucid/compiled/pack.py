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

from pellucid import nn, ops
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
    EVERY_ATTENTION,
    GENERATIVE,
    Attention,
    FeedForward,
    Norm,
    Output,
    Positions,
    Reader,
    Residual,
    Stack,
    UnsupportedError,
    array,
    describe,
    distance_table,
    parts,
    position_table,
    projections,
)
from pellucid.models.positions import POSITIONS
from pellucid.models.quantize import Arithmetic, int8_rows
from pellucid.ops.activations import ACTIVATIONS

Array = np.ndarray

CENTRED = {"layer_norm": True, "rms_norm": False}
"""The norms that the kernels compute, and whether each subtracts the mean."""

READER = Reader(
    "Compiled decoding",
    {
        **GENERATIVE,
        Positions: {
            "kind": [name for name, x in POSITIONS.items() if x.rotate in (None, ops.rotary)],
            "table": None,
            "angles": None,
        },
        Norm: {"kind": CENTRED, "of": None},
        Attention: EVERY_ATTENTION,
        FeedForward: {"activation": [n for n, x in ACTIVATIONS.items() if x.kernel is not None]},
    },
)

_LINE = 64  # bytes in a line of the processor's cache
_NO_TOKEN = -1e30
_ANYWHERE = 1 << 31  # a window that no sequence fills


def pack(model: nn.Module, arithmetic: Arithmetic) -> tuple[PackedModel, str]:
    """Pack the float32 weights of a model that has a decoder; return them and its activation's
    module below `pellucid.kernels`.

    For int8 every matrix is rounded as `models.quantize` does, which changes none that was stored
    in int8.

    Raises `UnsupportedError` for a model that the kernels do not compute.
    """
    records, weights = describe(model), _Weights(model.state_dict(), arithmetic)
    decoder, encoder = (READER.stack(records, name) for name in ("decoder", "encoder"))
    if decoder is None:
        raise UnsupportedError("Compiled decoding needs a decoder; this model has none")
    target, packed = weights.inputs(decoder), weights.stack(decoder)
    source, read = target, packed
    memory: list[tuple[int, int, int]] = []
    if encoder is not None:
        source, read = weights.inputs(encoder), weights.stack(encoder)
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
        np.array(memory, np.int64).reshape(-1, 3),
        packed,
        target,
        PackedOutput(*at, len(weight), _up(len(weight), WIDTH)),
    )
    expected = tuple(MODEL[arithmetic].types)
    if (found := tuple(map(typeof, made))) != expected:
        raise TypeError(f"expected a packed model of {expected}, got {found}")
    networks = [part for part in parts(records) if isinstance(part, FeedForward)]
    activation = _the("activation", (network.activation for network in networks), "relu")
    return made, str(ACTIVATIONS[activation].kernel)


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


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

    def inputs(self, stack: Stack) -> PackedInputs:
        """Pack what a stack reads."""
        tokens, scales = self.state[stack.tokens.table.name], np.empty(0, np.float32)
        if self.arithmetic == "int8":
            tokens, scales = int8_rows(tokens)
        table = position_table(stack.positions, self.state, np.float32)
        if table is None:
            table = np.zeros((1, stack.positions.width), np.float32)
        return PackedInputs(
            writeable(tokens),
            scales.ravel(),
            writeable(table),
            np.float32(stack.tokens.factor),
            np.float32(stack.positions.factor),
            -1 if stack.embedding_norm is None else self._norm(stack.embedding_norm),
        )

    def stack(self, stack: Stack) -> PackedStack:
        """Pack a stack's blocks, in order, its final norm, and what its attention varies."""
        blocks = stack.blocks
        subs = [b.sublayer for b in blocks]
        networks = [each for each in subs if isinstance(each, FeedForward)]
        attentions = [each for each in subs if isinstance(each, Attention)]
        own = [each for each in attentions if each.over == "self"]
        norms = [b.norm for b in blocks] + ([] if stack.norm is None else [stack.norm])
        norms += [] if stack.embedding_norm is None else [stack.embedding_norm]
        head_norms = [n for each in attentions for n in (each.q_norm, each.k_norm) if n is not None]
        lines = [self._block(block) for block in blocks]
        causal = {each.causal for each in own}
        if causal - {stack.tokens.stack == "decoder"}:
            raise UnsupportedError(
                "Compiled decoding needs causal attention in the decoder and no other in the "
                f"encoder; {stack.tokens.stack} has causal = {causal}"
            )
        _the("norm of queries and keys", ("rms_norm", *(norm.kind for norm in head_norms)), None)
        width = stack.tokens.table.shape[1]
        activation = _the("activation", (network.activation for network in networks), "relu")
        gates = ACTIVATIONS[activation].gates
        inner = _the("ffn_dim", (network.linear2.weight.shape[1] for network in networks), 1)
        placement = _the("norm placement", (block.placement for block in blocks), "pre")
        heads = _the("number of heads", (each.heads for each in attentions), 1)
        head_width = _the("head width", (each.head_width for each in attentions), 1)
        window = _the("window", (each.window for each in own), None)
        distances, reach = self._distances(stack, own)
        rotates = bool(own) and POSITIONS[stack.positions.kind].rotate is not None
        return PackedStack(
            program=np.array(lines, np.int64).reshape(-1, 8),
            layers=len(stack.layers()),
            width=width,
            padded_width=_up(width, WIDTH),
            ffn=inner,
            padded_ffn=_up(inner, WIDTH),
            gates=gates,
            heads=heads,
            key_heads=_the("number of key heads", (_key_heads(each) for each in attentions), 1),
            head_width=head_width,
            padded_head=_up(head_width, LANES),
            pre_norm=int(placement == "pre"),
            centred=int(CENTRED[_the("norm", (norm.kind for norm in norms), "layer_norm")]),
            final_norm=-1 if stack.norm is None else self._norm(stack.norm),
            window=_ANYWHERE if window is None else window,
            distances=distances,
            reach=reach,
            scale=np.float32(_the("scale of the scores", (each.scale for each in attentions), 1.0)),
            softcap=np.float32(_the("softcap", (a.softcap for a in attentions), None) or 0.0),
            eps=np.float32(_the("norm eps", (norm.eps for norm in norms + head_norms), 0.0)),
            angles=stack.positions.angles.frequencies(head_width // 2 if rotates else 0),
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

    def keys_values(self, attention: Attention) -> tuple[int, int, int]:
        """Pack what projects the encoder's rows to keys and values, and the keys' norm or −1."""
        _, *kv = projections(attention, self.state)
        weight, bias = zip(*(self._heads(attention, *p) for p in kv), strict=True)
        at = self.product(np.concatenate(weight), np.concatenate(bias))
        return *at, self._head_norms(attention, "k")

    def _distances(self, stack: Stack, attentions: list[Attention]) -> tuple[int, int]:
        """Pack what distances add to the scores; return where it begins, and its reach."""
        _the("reach", (each.relative_longest for each in attentions), None)
        found = distance_table(stack.positions, attentions[0], self.state) if attentions else None
        return (-1, 0) if found is None else (self._floats.add(found[0]), found[1])

    def _block(self, block: Residual) -> list[int]:
        """Return a block's line of the program."""
        norm = self._norm(block.norm)
        if isinstance(block.sublayer, FeedForward):
            return self._network(block.sublayer, norm, block.layer)
        attention = block.sublayer
        each = [self._heads(attention, *p) for p in projections(attention, self.state)]
        kind, which = {"self": (SELF, "qk"), "memory": (MEMORY, "q")}[attention.over]
        weight, bias = zip(*(each if kind == SELF else each[:1]), strict=True)
        into = self.product(np.concatenate(weight), np.concatenate(bias))
        head_norm = self._head_norms(attention, which)
        return [kind, norm, *into, *self._out(attention), block.layer, head_norm]

    def _network(self, network: FeedForward, norm: int, layer: int) -> list[int]:
        """Return a feed-forward network's line; of a gated one each half is padded."""
        weight = self.state[network.linear1.weight.name]
        bias = array(network.linear1.bias, self.state)
        gates = ACTIVATIONS[network.activation].gates
        f = len(weight) // gates
        w = np.zeros((gates, _up(f, WIDTH), weight.shape[1]), np.float32)
        b = np.zeros((gates, _up(f, WIDTH)), np.float32)
        w[:, :f] = weight.reshape(gates, f, -1)
        b[:, :f] = 0.0 if bias is None else bias.reshape(gates, f)
        into = self.product(w.reshape(-1, weight.shape[1]), b.reshape(-1))
        out = network.linear2
        onto = self.product(self.state[out.weight.name], array(out.bias, self.state))
        return [FEED_FORWARD, norm, *into, *onto, layer, -1]

    def _heads(
        self, attention: Attention, weight: Array, bias: Array | None
    ) -> tuple[Array, Array]:
        """Pad every head of a projection with rows of zeros."""
        width, e = attention.head_width, weight.shape[1]
        heads = len(weight) // width
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

    def _head_norms(self, attention: Attention, which: str) -> int:
        """Pack a norm for every head of queries ("q"), keys ("k") or both; −1 without one.

        A learned scale of the heads is put into those of the queries.
        """
        if attention.q_norm is None or attention.k_norm is None:
            return -1
        width = attention.head_width
        rows = []
        if "q" in which:
            scale = array(attention.head_scale, self.state)
            scale = np.ones(attention.heads, np.float32) if scale is None else scale
            rows.append(scale[:, None] * self.state[attention.q_norm.weight.name])
        if "k" in which:
            rows.append(
                np.tile(self.state[attention.k_norm.weight.name], (_key_heads(attention), 1))
            )
        every = np.concatenate(rows)
        padded = np.zeros((len(every), 2, _up(width, LANES)), np.float32)
        padded[:, 0, :width] = every
        return self._floats.add(padded)


def _key_heads(attention: Attention) -> int:
    return attention.key_value_heads or attention.heads


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

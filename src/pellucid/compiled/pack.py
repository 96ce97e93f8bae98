"""Pack a model's weights into the arrays that the decoding kernels read.

Matrices are stored in panels (`kernels.backend.matmul`, or `.int8`), vectors padded to the width of
panels, one after another in one long array of each dtype. Embedding tables are copied as they are.
After further training the model must be packed again.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from pellucid import nn, ops
from pellucid.compiled.blocks import FEED_FORWARD, MEMORY, SELF
from pellucid.compiled.records import (
    PackedInputs,
    PackedModel,
    PackedOutput,
    PackedStack,
    PackedWeights,
)
from pellucid.kernels.add_dropout_norm import CENTRED
from pellucid.kernels.backend import int8
from pellucid.kernels.backend.matmul import FLOAT32
from pellucid.kernels.backend.simd import LANES, WIDTH
from pellucid.models import walk
from pellucid.models.config import StackConfig
from pellucid.models.quantize import Arithmetic, int8_rows
from pellucid.models.stack import ModelStack, Step
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import FeedForward
from pellucid.nn.layers import Linear, Norm
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.rules.soft_cap import SoftCap
from pellucid.ops.rules.window import Window

Array = np.ndarray

READER = walk.Reader(
    "Compiled decoding",
    walk.GENERATIVE,
    {
        **walk.EVERY_ATTENTION,
        "rotate": (None, ops.rotary),
        "rotate_cross": None,
        "kind": CENTRED,
        "activation": [name for name, row in ACTIVATIONS.items() if row.kernel is not None],
    },
)

_LINE = 64  # bytes in a line of the processor's cache
_NO_TOKEN = -1e30
_ANYWHERE = 1 << 31  # a window that no sequence fills


def pack(model: nn.Module, arithmetic: Arithmetic) -> tuple[PackedModel, str]:
    """Pack the weights of a model; return them and the kernel module of its activation.

    For int8 arithmetic every matrix is rounded as in `models.quantize` (which changes nothing if
    the model was stored in int8). The module's name is relative to `pellucid.kernels`.

    Raises `UnsupportedError` for a model without a decoder, or that the kernels cannot compute.
    """
    stacks, weights = READER.read(model), _Weights(arithmetic)
    decoder, encoder = (stacks.get(name) for name in ("decoder", "encoder"))
    if decoder is None:
        raise walk.UnsupportedError("Compiled decoding needs a decoder; this model has none")
    target, packed = weights.inputs(decoder), weights.stack(decoder)
    source, read = target, packed
    memory: list[tuple[int, int, int]] = []
    if encoder is not None:
        source, read = weights.inputs(encoder), weights.stack(encoder)
        memory = [weights.heads(each, "kv") for each in decoder.attentions(memory=True)]
    output: Linear = model.output  # type: ignore[attr-defined]
    at, entries = weights.linear(output, _NO_TOKEN), output.out_features
    config: StackConfig = model.config  # type: ignore[attr-defined]
    ends = np.array([config.eos_token_id, *config.end_token_ids], np.int64)
    suppressed = np.array(config.suppress_tokens, np.int64)
    made = PackedModel(
        encoder is not None,
        weights.joined(),
        read,
        source,
        np.array(memory, np.int64).reshape(-1, 3),
        packed,
        target,
        PackedOutput(*at, entries, _up(entries, WIDTH), ends, suppressed),
    )
    networks = (each for stack in stacks.values() for each in stack.networks())
    activation = _common("activation", (network.activation for network in networks), "relu")
    return made, str(ACTIVATIONS[activation].kernel)


def _up(n: int, to: int) -> int:
    """Round n up to a multiple of `to`."""
    return -(-n // to) * to


def _common(what: str, values: Iterable[Any], default: Any) -> Any:
    """Return the value that all blocks share, or `default` without blocks.

    Raises `UnsupportedError` if the values differ; `what` names them.
    """
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        raise walk.UnsupportedError(
            f"Compiled decoding needs one {what} in all blocks, got "
            f"{', '.join(map(str, different))}"
        )
    return different[0] if different else default


class _Weights:
    """Collects packed arrays in one row of floats and one of bytes.

    Methods that pack arrays return the offsets at which these begin, or −1 for an array that does
    not exist; `inputs` and `stack` return records with such offsets.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self._floats, self._bytes = _Row(np.float32), _Row(np.uint8)

    def joined(self) -> PackedWeights:
        """Return all arrays that were packed."""
        return PackedWeights(self._floats.joined(), self._bytes.joined())

    def inputs(self, stack: ModelStack) -> PackedInputs:
        """Pack the embeddings of a stack; the tables are copies, as all weights are."""
        embed = stack.embed
        tokens, scales = embed.tokens.weight.learnt, np.empty(0, np.float32)
        rounded = np.empty((0, tokens.shape[1]), np.int8)
        if self.arithmetic == "int8":
            rounded, scales = int8_rows(tokens)
            tokens = tokens[:0]
        tokens = tokens.copy()
        table = embed.places
        width = embed.config.d_model
        table = np.zeros((1, width), np.float32) if table is None else table.copy()
        return PackedInputs(
            tokens,
            rounded,
            scales.ravel(),
            table,
            np.float32(embed.config.token_factor),
            np.float32(embed.config.position_factor),
            -1 if embed.norm is None else self._norm(embed.norm),
        )

    def stack(self, stack: ModelStack) -> PackedStack:
        """Pack a stack: its blocks in order, its final norm and its attention settings."""
        steps, own = stack.steps, stack.attentions()
        lines = [self._block(step) for step in steps]
        # The kernels support one kind of attention, network and norm for all blocks of a stack.
        no_layers = stack.embed.config.attention
        config = _common("self-attention", (each.config for each in own), no_layers)
        every = [*own, *stack.attentions(memory=True)]
        _common("attention", (each.config.of_memory() for each in every), None)
        activation, inner = _common(
            "feed-forward network",
            ((each.activation, each.linear2.in_features) for each in stack.networks()),
            ("relu", 1),
        )
        norms = [step.block.norm for step in steps] + [stack.norm, stack.embed.norm]
        kinds = [(norm.kind, norm.eps) for norm in norms if norm is not None]
        if own and config.qk_norm is not None:
            kinds.append((kinds[0][0], config.qk_norm))
        kind, eps = _common("norm", kinds, ("layer_norm", 0.0))
        at, reach = self._distances(stack)
        width, head_width = stack.embed.config.d_model, config.head_width
        window, cap = config.rule.part(Window), config.rule.part(SoftCap)
        return PackedStack(
            program=np.array(lines, np.int64).reshape(-1, 8),
            layers=len(stack.body.layers),
            width=width,
            padded_width=_up(width, WIDTH),
            ffn=inner,
            padded_ffn=_up(inner, WIDTH),
            gates=ACTIVATIONS[activation].gates,
            heads=config.num_heads,
            key_heads=config.groups,
            head_width=head_width,
            padded_head=_up(head_width, LANES),
            pre_norm=int(_common("norm placement", (step.norm_first for step in steps), True)),
            centred=int(CENTRED[kind]),
            final_norm=-1 if stack.norm is None else self._norm(stack.norm),
            window=_ANYWHERE if window is None else window.size,
            distances=at,
            reach=reach,
            scale=np.float32(walk.score_factor(config)),
            softcap=np.float32(0.0 if cap is None else cap.cap),
            eps=np.float32(eps),
            angles=config.angles.frequencies(head_width // 2 if config.rotate else 0),
            cross=int(config.rotate_cross),
        )

    def product(self, weight: Array, bias: Array | None, fill: float = 0.0) -> tuple[int, int]:
        """Pack the weight and bias of a product x Wᵀ + b; return their offsets.

        `fill` pads the bias to whole panels. In int8 the scales of W's rows follow the bias.
        """
        n = len(weight)
        padded = np.full(_up(n, WIDTH), fill, np.float32)
        padded[:n] = 0.0 if bias is None else bias
        if self.arithmetic == "float32":
            return self._floats.add(FLOAT32.panels(weight.T)), self._floats.add(padded)
        rows, scales = int8_rows(weight)
        both = np.stack([padded, np.zeros_like(padded)])
        both[1, :n] = scales.ravel()
        return self._bytes.add(int8.panels(rows)), self._floats.add(both)

    def linear(self, linear: Linear, fill: float = 0.0) -> tuple[int, int]:
        """Pack a linear layer; return the offsets of weight and bias."""
        return self.product(linear.weight.learnt, walk.array(linear.bias), fill)

    def heads(self, attention: Attention, which: str) -> tuple[int, int, int]:
        """Pack the projections to those of q, k and v that `which` lists ("qkv", "q" or "kv").

        Returns the offsets of weight, bias and head norms; −1 without norms.
        """
        width = attention.config.head_width
        named = zip("qkv", walk.projections(attention), strict=True)
        each = [_padded(*linear, width, LANES) for name, linear in named if name in which]
        weight, bias = zip(*each, strict=True)
        at = self.product(np.concatenate(weight), np.concatenate(bias))
        return *at, self._head_norms(attention, which)

    def _distances(self, stack: ModelStack) -> tuple[int, int]:
        """Pack the biases of the scores by distance; return their offset (−1: none) and reach.

        All layers share those of the first.
        """
        found = next((stack.distances(each) for each in stack.attentions()), None)
        return (-1, 0) if found is None else (self._floats.add(found[0]), found[1])

    def _block(self, step: Step) -> list[int]:
        """Pack a block; return its line of the program."""
        norm, body = self._norm(step.block.norm), step.block.body
        if isinstance(body, FeedForward):
            into, out = self._network(body), self.linear(body.linear2)
            return [FEED_FORWARD, norm, *into, *out, step.layer, -1]
        kind, which = (MEMORY, "q") if step.block.memory else (SELF, "qkv")
        at, bias, head_norm = self.heads(body, which)
        return [kind, norm, at, bias, *self._out(body), step.layer, head_norm]

    def _network(self, network: FeedForward) -> tuple[int, int]:
        """Pack the first product of a feed-forward network; if gated, each half is padded."""
        linear, f = network.linear1, network.linear2.in_features
        return self.product(*_padded(linear.weight.learnt, walk.array(linear.bias), f, WIDTH))

    def _out(self, attention: Attention) -> tuple[int, int]:
        """Pack the output projection, with zero weights for the padding of each head."""
        out = attention.out_proj
        weight, _ = _padded(out.weight.learnt.T, None, attention.config.head_width, LANES)
        return self.product(weight.T, walk.array(out.bias))

    def _norm(self, norm: Norm) -> int:
        """Pack the weight and bias of a norm over rows."""
        return self._norms(_weight(norm)[None], walk.array(norm.bias), WIDTH)

    def _norms(self, weight: Array, bias: Array | None, to: int) -> int:
        """Pack n norms with weights (n, width): each one's weight, then its bias, padded."""
        n, width = weight.shape
        both = np.zeros((n, 2, _up(width, to)), np.float32)
        both[:, 0, :width], both[:, 1, :width] = weight, 0.0 if bias is None else bias
        return self._floats.add(both)

    def _head_norms(self, attention: Attention, which: str) -> int:
        """Pack a norm for every query and key head, of those in `which`.

        Returns −1 without norms.

        A learned scale of the heads is multiplied into the weights of the query heads.
        """
        c, q_norm, k_norm = attention.config, attention.q_norm, attention.k_norm
        if q_norm is None or k_norm is None:
            return -1
        rows = []
        if "q" in which:
            scale = walk.array(attention.head_scale)
            scale = np.ones(c.num_heads, np.float32) if scale is None else scale
            rows.append(scale[:, None] * _weight(q_norm))
        if "k" in which:
            rows.append(np.tile(_weight(k_norm), (c.groups, 1)))
        return self._norms(np.concatenate(rows), None, LANES)


def _padded(weight: Array, bias: Array | None, block: int, to: int) -> tuple[Array, Array]:
    """Pad every `block` rows of a weight, and its bias, with zeros to a multiple of `to`.

    Returns new arrays (weight, bias); a bias of None becomes zeros.
    """
    bias = np.zeros(len(weight), np.float32) if bias is None else bias
    w, b = weight.reshape(-1, block, weight.shape[1]), bias.reshape(-1, block)
    more = (0, -block % to)
    w, b = np.pad(w, ((0, 0), more, (0, 0))), np.pad(b, ((0, 0), more))
    return w.reshape(-1, weight.shape[1]), b.ravel()


def _weight(norm: Norm) -> Array:
    """Return the weight of a norm, which always exists in models."""
    assert norm.weight is not None
    weight: Array = norm.weight.learnt
    return weight


class _Row:
    """Collects arrays of one dtype, to be concatenated."""

    def __init__(self, dtype: Any) -> None:
        self._dtype, self._parts, self._end = np.dtype(dtype), [np.empty(0, dtype)], 0

    def add(self, part: Array) -> int:
        """Append an array; return its offset."""
        at = self._end
        self._parts.append(part.ravel())
        self._end += part.size
        return at

    def joined(self) -> Array:
        """Concatenate the arrays, flattened, to one (1, total size), aligned to a cache line."""
        line = _LINE // self._dtype.itemsize
        raw = np.empty(self._end + line, self._dtype)
        skip = -(raw.ctypes.data // self._dtype.itemsize) % line
        row = raw[skip : skip + self._end]
        return np.concatenate(self._parts, out=row).reshape(1, -1)

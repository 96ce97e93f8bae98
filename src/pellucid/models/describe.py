"""What a model consists of: an ordered tuple of typed records, without arrays.

Every record names its tensors as `state_dict` does and has all settings that decide what it
computes. Whatever computes, writes or counts a model in another way reads its description:
compiled decoding, the exporters, sizes. A `Reader` lists what it supports, and refuses all else by
name.

A new setting of a record has a default, the value that means "as before". Readers that do not
list the setting then accept the default only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np

from pellucid import nn, ops
from pellucid.core.errors import UserError
from pellucid.models.config import StackConfig
from pellucid.models.positions import POSITIONS
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.norms import NORMS
from pellucid.ops.rotary import PLAIN, Angles

Array = np.ndarray


class UnsupportedError(UserError):
    """A model has a part that a reader of descriptions does not support."""


class Tensor(NamedTuple):
    """An array of the model by its `state_dict` name."""

    name: str
    shape: tuple[int, ...]
    settings: tuple[str | None, ...]
    """For each axis the setting that is its size; None where it is a multiple of one."""
    same_as: str | None = None
    """The name of the tensor that it shares its array with (tied weights)."""


class Linear(NamedTuple):
    """y = x Wᵀ + b; the weight is (out, in)."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Record:
    """One part of a model."""

    stack: str
    """The stack it belongs to, "encoder" or "decoder"."""


@dataclass(frozen=True, kw_only=True)
class Embedding(Record):
    """x = factor · table[id]; the embeddings of a stack are added up."""

    table: Tensor
    factor: float
    ids: Literal["tokens", "segments"] = "tokens"
    """What selects a row."""


@dataclass(frozen=True, kw_only=True)
class Positions(Record):
    """factor · position vector, added to the token embedding."""

    longest: int
    width: int
    factor: float
    kind: str = "sinusoidal"
    """A name of `models.positions.POSITIONS`."""
    table: Tensor | None = None
    angles: Angles = PLAIN
    """How far rotary positions turn."""


@dataclass(frozen=True, kw_only=True)
class Dropout(Record):
    """Dropout of the embeddings, in training. Other records carry their own."""

    p: float


@dataclass(frozen=True, kw_only=True)
class Norm(Record):
    """A normalisation of every row."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    kind: str = "layer_norm"
    of: Literal["rows", "embeddings"] = "rows"
    """Whether it is that of the embeddings, before the first block."""


@dataclass(frozen=True, kw_only=True)
class Attention(Record):
    """Multi-head attention: projections to queries, keys and values, heads, and back."""

    over: Literal["self", "memory"]
    """Whose rows become keys and values: the stack's own, or the encoder's output."""
    causal: bool
    """Whether a row attends only to itself and to rows before it."""
    heads: int
    head_width: int
    in_proj: Linear
    """q, k and v stacked: (3 E, E), or with fewer heads of keys and values, fewer rows."""
    out_proj: Linear
    scale: float
    """What q · k is multiplied by."""
    head_scale: Tensor | None = None
    """A learned factor (H,) of the queries of every head, on top of `scale`."""
    key_value_heads: int | None = None
    """Heads of keys and values, if they are fewer."""
    q_norm: Norm | None = None
    """A norm of every query, head by head."""
    k_norm: Norm | None = None
    softcap: float | None = None
    """The scores stay within (−c, c)."""
    window: int | None = None
    """How far a row sees."""
    relative_bias: Tensor | None = None
    """A table (buckets, H) of what distances add to the scores; one for the whole stack."""
    relative_longest: int = 128
    dropout: float = 0.0
    """Dropout of the attention weights, in training."""


@dataclass(frozen=True, kw_only=True)
class FeedForward(Record):
    """linear2(activation(linear1(x)))."""

    linear1: Linear
    linear2: Linear
    activation: str = "relu"
    dropout: float = 0.0
    """Dropout after the activation, in training."""


@dataclass(frozen=True, kw_only=True)
class Residual(Record):
    """A sublayer with its norm: x + f(norm(x)) if "pre", norm(x + f(x)) if "post"."""

    layer: int
    placement: Literal["pre", "post"]
    norm: Norm
    sublayer: Attention | FeedForward
    dropout: float = 0.0
    """Dropout of the sublayer's output, in training."""


@dataclass(frozen=True, kw_only=True)
class Transform(Record):
    """norm(activation(linear(x))), before the output layer of a masked language model."""

    linear: Linear
    norm: Norm
    activation: str = "gelu"


@dataclass(frozen=True, kw_only=True)
class Output(Record):
    """Logits of the vocabulary."""

    linear: Linear


@dataclass(frozen=True, kw_only=True)
class Pooler(Record):
    """tanh(linear(first row)), one vector for a sequence."""

    linear: Linear


Description = tuple[Record, ...]


# From a config to a description -------------------------------------------------------------------


class StackShape(NamedTuple):
    """Where a family keeps a stack, and which settings are its sizes."""

    name: str
    embed: str
    vocabulary: str
    layers: str
    causal: bool = False
    has_memory: bool = False


STACKS: dict[str, tuple[StackShape, ...]] = {
    "pellucid-seq2seq": (
        StackShape("encoder", "source", "source_vocab_size", "encoder_layers"),
        StackShape("decoder", "target", "target_vocab_size", "decoder_layers", True, True),
    ),
    "pellucid-causal-lm": (
        StackShape("decoder", "embed", "vocab_size", "num_hidden_layers", True),
    ),
    "pellucid-masked-lm": (StackShape("encoder", "embed", "vocab_size", "num_hidden_layers"),),
}
"""The stacks of every family, by its `model_type`."""


def describe(model: nn.Module | StackConfig) -> Description:
    """Describe a model, or the model that a config would build.

    Raises `UnsupportedError` for a model whose arrays are not those of its config's description.

    >>> from pellucid.models.config import CausalLMConfig
    >>> records = describe(CausalLMConfig(vocab_size=7, d_model=8, num_hidden_layers=1))
    >>> [type(record).__name__ for record in records]
    ['Embedding', 'Positions', 'Dropout', 'Residual', 'Residual', 'Norm', 'Output']
    >>> records[0].table.name, records[0].table.shape
    ('embed.tokens.weight', (7, 8))
    """
    if isinstance(model, StackConfig):
        return tuple(_records(model))
    config: Any = model.config  # type: ignore[attr-defined]
    records = tuple(_records(config))
    described = {tensor.name: tensor.shape for tensor in tensors(records)}
    found = {name: array.shape for name, array in model.state_dict().items()}
    if differing := sorted(dict(described.items() ^ found.items())):
        raise UnsupportedError(
            f"the model's arrays are not those that its config describes: {', '.join(differing)}; "
            "a new part needs a record in models/describe.py"
        )
    return records


def _records(config: Any) -> Iterator[Record]:
    build = _Builder(config)
    shapes = STACKS[config.model_type]
    for shape in shapes:
        yield from build.stack(shape)
    yield from build.head(shapes[-1])


class _Builder:
    """Makes the records of one config."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def stack(self, shape: StackShape) -> Iterator[Record]:
        c = self.config
        at: dict[str, Any] = {"stack": shape.name}
        yield from self._embeddings(shape)
        for i in range(getattr(c, shape.layers)):
            layer = f"{shape.name}.layers.{i}"
            parts: list[tuple[str, Attention | FeedForward]] = []
            for k in range(c.ffn_before):
                parts.append((f"before.{k}.norm", self._network(shape, f"{layer}.before.{k}")))
            parts.append(("norm1", self._attention(shape, f"{layer}.self_attn", "self")))
            if shape.has_memory:
                parts.append(("norm2", self._attention(shape, f"{layer}.multihead_attn", "memory")))
            last = "norm3" if shape.has_memory else "norm2"
            parts.append((last, self._network(shape, layer)))
            for k in range(c.ffn_after - 1):
                parts.append((f"after.{k}.norm", self._network(shape, f"{layer}.after.{k}")))
            for norm, sublayer in parts:
                yield Residual(
                    layer=i,
                    placement=c.norm,
                    norm=self._norm(shape, f"{layer}.{norm}"),
                    sublayer=sublayer,
                    dropout=c.dropout,
                    **at,
                )
        if c.final_norm:
            yield self._norm(shape, f"{shape.name}.norm")

    def head(self, shape: StackShape) -> Iterator[Record]:
        """Yield what follows the last stack."""
        c, at = self.config, {"stack": shape.name}
        masked = c.model_type == "pellucid-masked-lm"
        if masked and c.pooler:
            yield Pooler(linear=self._linear("pooler", "d_model", "d_model"), **at)
        if masked and c.head:
            yield Transform(
                linear=self._linear("head.dense", self._gated("d_model"), "d_model"),
                norm=self._norm(shape, "head.norm"),
                activation=c.activation_function,
                **at,
            )
        if not masked or c.head:
            tied = f"{shape.embed}.tokens.weight" if self._output_is_tied() else None
            linear = self._linear("output", shape.vocabulary, "d_model", bias=c.output_bias)
            yield Output(linear=linear._replace(weight=linear.weight._replace(same_as=tied)), **at)

    def _output_is_tied(self) -> bool:
        c = self.config
        if c.model_type == "pellucid-seq2seq":
            return bool(c.tie_embeddings != "none")
        return bool(c.tie_word_embeddings)

    def _embeddings(self, shape: StackShape) -> Iterator[Record]:
        c, at = self.config, {"stack": shape.name}
        tokens = self._tensor(f"{shape.embed}.tokens.weight", shape.vocabulary, "d_model")
        if shape.embed == "source" and c.tie_embeddings == "all":
            tokens = tokens._replace(same_as="target.tokens.weight")
        yield Embedding(table=tokens, factor=c.token_factor, stack=shape.name)
        table = None
        if POSITIONS[c.positions].learned:
            name = f"{shape.embed}.positions.weight"
            table = self._tensor(name, "max_position_embeddings", "d_model")
        yield Positions(
            longest=c.max_position_embeddings,
            width=c.d_model,
            factor=c.position_factor,
            kind=c.positions,
            table=table,
            angles=PLAIN if POSITIONS[c.positions].rotate is None else c.angles,
            **at,
        )
        if getattr(c, "type_vocab_size", 0):
            segments = self._tensor(f"{shape.embed}.segments.weight", "type_vocab_size", "d_model")
            yield Embedding(table=segments, factor=1.0, ids="segments", stack=shape.name)
        if c.embedding_norm:
            yield replace(self._norm(shape, f"{shape.embed}.norm"), of="embeddings")
        yield Dropout(p=_or(c.embedding_dropout, c.dropout), **at)

    def _attention(
        self, shape: StackShape, name: str, over: Literal["self", "memory"]
    ) -> Attention:
        c = self.config
        heads = self._tensor(f"{name}.head_scale", "num_attention_heads")
        relative = over == "self" and POSITIONS[c.positions].relative
        table = self._tensor(
            f"{name}.relative_bias", "relative_attention_num_buckets", "num_attention_heads"
        )
        first = f"{shape.name}.layers.0.self_attn"
        if name != first:
            table = table._replace(same_as=f"{first}.relative_bias")
        width = c.num_attention_heads * c.head_width
        out: str | int = "d_model" if width == c.d_model else width
        qkv_bias = _or(c.qkv_bias, c.linear_bias)
        rows = width + 2 * c.key_value_heads * c.head_width
        q_norm, k_norm = (
            Norm(
                stack=shape.name,
                weight=self._tensor(f"{name}.{of}_norm.weight", c.head_width),
                bias=None,
                eps=c.layer_norm_eps,
                kind="rms_norm",
            )
            for of in "qk"
        )
        return Attention(
            stack=shape.name,
            over=over,
            causal=shape.causal and over == "self",
            heads=c.num_attention_heads,
            head_width=c.head_width,
            in_proj=Linear(
                self._tensor(f"{name}.in_proj_weight", rows, "d_model"),
                self._tensor(f"{name}.in_proj_bias", rows) if qkv_bias else None,
            ),
            out_proj=self._linear(f"{name}.out_proj", "d_model", out, bias=c.linear_bias),
            scale=c.score_factor,
            head_scale=heads if c.attention_scale == "learned" else None,
            key_value_heads=c.key_value_heads
            if c.key_value_heads < c.num_attention_heads
            else None,
            q_norm=q_norm if c.qk_norm else None,
            k_norm=k_norm if c.qk_norm else None,
            softcap=c.attention_softcap,
            window=c.sliding_window if over == "self" else None,
            relative_bias=table if relative else None,
            relative_longest=c.relative_attention_max_distance if relative else 128,
            dropout=_or(c.attention_dropout, c.dropout),
        )

    def _network(self, shape: StackShape, name: str) -> FeedForward:
        c = self.config
        return FeedForward(
            stack=shape.name,
            linear1=self._linear(
                f"{name}.linear1", self._gated("ffn_dim"), "d_model", bias=c.linear_bias
            ),
            linear2=self._linear(f"{name}.linear2", "d_model", "ffn_dim", bias=c.linear_bias),
            activation=c.activation_function,
            dropout=_or(c.activation_dropout, c.dropout),
        )

    def _norm(self, shape: StackShape, name: str) -> Norm:
        c = self.config
        bias = NORMS[c.norm_type].has_bias
        return Norm(
            stack=shape.name,
            weight=self._tensor(f"{name}.weight", "d_model"),
            bias=self._tensor(f"{name}.bias", "d_model") if bias else None,
            eps=c.layer_norm_eps,
            kind=c.norm_type,
        )

    def _gated(self, axis: str) -> str | int:
        """Return what the activation takes for so many outputs: a gated one takes twice that."""
        known = ACTIVATIONS.get(self.config.activation_function)  # readers refuse an unknown one
        gates = 1 if known is None else known.gates
        width: int = getattr(self.config, axis)
        return axis if gates == 1 else gates * width

    def _linear(self, name: str, out: str | int, into: str | int, bias: bool = True) -> Linear:
        return Linear(
            self._tensor(f"{name}.weight", out, into),
            self._tensor(f"{name}.bias", out) if bias else None,
        )

    def _tensor(self, name: str, *axes: str | int) -> Tensor:
        return Tensor(
            name,
            tuple(axis if isinstance(axis, int) else getattr(self.config, axis) for axis in axes),
            tuple(None if isinstance(axis, int) else axis for axis in axes),
        )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


# Reading a description ----------------------------------------------------------------------------


def parts(records: Sequence[Record]) -> Iterator[Record]:
    """Yield every record, those inside others too."""
    for record in records:
        yield record
        inner = (getattr(record, field.name) for field in fields(record))
        yield from parts([part for part in inner if isinstance(part, Record)])


def tensors(records: Sequence[Record]) -> Iterator[Tensor]:
    """Yield every tensor, in order.

    >>> from pellucid.models.config import CausalLMConfig
    >>> config = CausalLMConfig(vocab_size=7, d_model=8, num_hidden_layers=0)
    >>> [tensor.name for tensor in tensors(describe(config))][-1]
    'output.weight'
    """
    for record in parts(records):
        for field in fields(record):
            value = getattr(record, field.name)
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, Linear):
                yield from (tensor for tensor in value if tensor is not None)


class Stack(NamedTuple):
    """The records of one stack as generation needs them."""

    tokens: Embedding
    positions: Positions
    blocks: tuple[Residual, ...]
    norm: Norm | None
    embedding_norm: Norm | None = None
    segments: Embedding | None = None

    def layers(self) -> list[list[Residual]]:
        """Return the blocks layer by layer."""
        return [list(blocks) for _, blocks in groupby(self.blocks, lambda block: block.layer)]


Supported = Mapping[type[Record], Mapping[str, Collection[Any] | None]]

_NOT_COMPUTED = ("stack", "layer", "dropout")


@dataclass(frozen=True)
class Reader:
    """Something that computes or writes a described model in evaluation mode.

    `supports` lists the records it reads and, for settings that have a default, the values it
    accepts (None: all). A setting that is not listed must have its default.
    """

    name: str
    supports: Supported

    def check(self, records: Sequence[Record]) -> None:
        """Raise `UnsupportedError` naming every record and setting that is not supported."""
        faults = dict.fromkeys(fault for record in parts(records) for fault in self._faults(record))
        if faults:
            raise UnsupportedError(f"{self.name} does not support this model: {'; '.join(faults)}")

    def stack(self, records: Sequence[Record], name: str) -> Stack | None:
        """Return the stack of this name, checked, or None where the model has none."""
        self.check(records)
        tokens: Embedding | None = None
        positions: Positions | None = None
        blocks: list[Residual] = []
        norm: Norm | None = None
        embedding_norm: Norm | None = None
        segments: Embedding | None = None
        for record in records:
            if record.stack != name:
                continue
            match record:
                case Embedding(ids="tokens") if tokens is None:
                    tokens = record
                case Embedding(ids="segments") if segments is None and not blocks:
                    segments = record
                case Positions() if positions is None:
                    positions = record
                case Residual() if norm is None:
                    blocks.append(record)
                case Norm(of="embeddings") if embedding_norm is None and not blocks:
                    embedding_norm = record
                case Norm(of="rows") if norm is None and tokens is not None and positions:
                    norm = record
                case Dropout() | Output() | Transform() | Pooler():
                    pass
                case _:
                    raise UnsupportedError(
                        f"{self.name} does not support {_label(record)} at this place of the "
                        f"{name}; it reads an embedding, positions, residual blocks and one norm"
                    )
        if tokens is None and positions is None and not blocks:
            return None
        if tokens is None or positions is None:
            raise UnsupportedError(f"{self.name} needs token embeddings and positions in {name}")
        return Stack(tokens, positions, tuple(blocks), norm, embedding_norm, segments)

    def _faults(self, record: Record) -> Iterator[str]:
        supported = self.supports.get(type(record))
        if supported is None:
            known = ", ".join(kind.__name__ for kind in self.supports)
            yield f"{_label(record)} (supported: {known})"
            return
        for field in fields(record):
            if field.name in _NOT_COMPUTED or field.default is MISSING:
                continue
            value, allowed = (
                getattr(record, field.name),
                supported.get(field.name, (field.default,)),
            )
            if allowed is not None and value not in allowed:
                known = ", ".join(map(str, allowed))
                shown = value.name if isinstance(value, Tensor) else repr(value)
                if isinstance(value, Record):
                    shown = f"a {type(value).__name__}"
                yield f"{type(record).__name__} {field.name} = {shown} (supported: {known})"


def _label(record: Record) -> str:
    """Name a record by its kind and its first tensor."""
    first = next(tensors([record]), None)
    return type(record).__name__ + ("" if first is None else f" ({first.name})")


GENERATIVE: Supported = {
    Embedding: {},
    Positions: {
        "kind": [name for name, row in POSITIONS.items() if row.learned or row.table],
        "table": None,
    },
    Dropout: {},
    Norm: {},
    Attention: {"head_scale": None},
    Residual: {},
    Output: {},
}
"""What all readers of generating models support; feed-forward networks each adds by itself."""


EVERY_ATTENTION: Mapping[str, None] = dict.fromkeys(
    (
        *("head_scale", "key_value_heads", "q_norm", "k_norm"),
        *("softcap", "window", "relative_bias", "relative_longest"),
    )
)
"""What a reader supports that computes all that attention varies."""


def array(tensor: Tensor | None, state: Mapping[str, Array]) -> Array | None:
    """Return a tensor's array, None for one that the model does not have."""
    return None if tensor is None else state[tensor.name]


def position_table(positions: Positions, state: Mapping[str, Array], dtype: Any) -> Array | None:
    """Return the position vectors (longest, E) before their factor; None where nothing is added."""
    if positions.table is not None:
        return state[positions.table.name]
    fixed = POSITIONS[positions.kind].table
    return None if fixed is None else fixed(positions.longest, positions.width).astype(dtype)


def distance_table(
    positions: Positions, attention: Attention, state: Mapping[str, Array]
) -> tuple[Array, int] | None:
    """Return what distances −reach … reach add to the scores, (H, 2 · reach + 1), and the reach.

    A distance is that of query from key; the outermost stand for all beyond. None where nothing is
    added.
    """
    added = POSITIONS[positions.kind].distance_bias
    if attention.over == "memory" or (added is None and attention.relative_bias is None):
        return None
    reach = positions.longest - 1 if added is not None else attention.relative_longest
    distance = np.arange(-reach, reach + 1)
    if added is not None:
        return added(distance[None], attention.heads)[:, 0].astype(np.float32), reach
    assert attention.relative_bias is not None
    table = state[attention.relative_bias.name]
    return table[ops.relative_buckets(distance, len(table), reach, not attention.causal)].T, reach


def projections(
    attention: Attention, state: Mapping[str, Array]
) -> list[tuple[Array, Array | None]]:
    """Return (weight, bias) of q, k and v.

    A learned scale of the heads is folded into q's, but where a norm of the queries follows, which
    would undo it.
    """
    q = attention.heads * attention.head_width
    kv = (attention.key_value_heads or attention.heads) * attention.head_width
    weights = np.split(state[attention.in_proj.weight.name], [q, q + kv])
    bias = array(attention.in_proj.bias, state)
    biases: Sequence[Array | None] = [None] * 3 if bias is None else np.split(bias, [q, q + kv])
    if attention.head_scale is not None and attention.q_norm is None:
        factors = np.repeat(state[attention.head_scale.name], attention.head_width)
        weights[0] = factors[:, None] * weights[0]
        biases = [None if biases[0] is None else factors * biases[0], *biases[1:]]
    return list(zip(weights, biases, strict=True))

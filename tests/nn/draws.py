"""Random cases: arguments, weights, inputs and masks of one class. Knows nothing of torch.

A case is data, so the same case drives the live comparison, the golden fixtures and the mutants.
Everything in `differences.TABLE` is left out here, and only that; each of its rows has a test of
its own in test_differences.py.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
Counts = dict[str, Counter[str]]


@dataclass
class Part:
    """A module to be built on either side: its class and its arguments."""

    kind: str
    build: dict[str, Any] = field(default_factory=dict)


@dataclass
class Case:
    """One call. `inputs` get gradients; an alias is an input that is the same array as another."""

    part: Part
    dtype: str
    training: bool
    inputs: dict[str, Array]
    call: dict[str, Any]
    aliases: dict[str, str] = field(default_factory=dict)
    state: dict[str, Array] = field(default_factory=dict)
    douts: list[Array] = field(default_factory=list)


class Draw:
    """Draws the arguments of one case and counts what it drew."""

    def __init__(self, kind: str, seed: int, counts: Counts | None = None) -> None:
        self.generator = np.random.default_rng([seed, zlib.crc32(kind.encode())])
        self.counts = defaultdict(Counter) if counts is None else counts
        self.dtype = self.one_of("dtype", "float64", "float32")

    def one_of(self, argument: str, *values: Any) -> Any:
        value = values[int(self.generator.integers(len(values)))]
        self.counts[argument][str(value)] += 1
        return value

    def flag(self, argument: str) -> bool:
        return bool(self.one_of(argument, False, True))

    def optional(self, into: dict[str, Any], argument: str, *values: Any) -> None:
        """Set `argument` to one of the values, or leave it out and so test its default."""
        value = self.one_of(argument, "left out", *values)
        if not isinstance(value, str) or value != "left out":
            into[argument] = value

    def maybe(self, probability: float) -> bool:
        return bool(self.generator.random() < probability)

    def array(self, *shape: int, dtype: str | None = None) -> Array:
        return self.generator.standard_normal(shape).astype(dtype or self.dtype)

    def lead(self, argument: str = "leading axes") -> tuple[int, ...]:
        """Axes in front of the last: none, one, several, now and then of length 0."""
        return tuple(self.one_of(argument, (), (1,), (3,), (2, 5), (3, 1, 2), (0,), (2, 0)))


def random_state(draw: Draw, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Weights for every parameter: matrices keep the scale of what passes, norms are not 1."""
    state = {}
    for name, shape in shapes.items():
        values = draw.array(*shape) / (shape[-1] ** 0.5 if len(shape) > 1 else 1.0)
        of_norm = "norm" in name and name.endswith("weight")
        state[name] = (1.0 + 0.3 * values if of_norm else values).astype(draw.dtype)
    return state


# The small layers


def linear(draw: Draw) -> Case:
    build = {
        "in_features": draw.one_of("in_features", 1, 2, 3, 7),
        "out_features": draw.one_of("out_features", 1, 2, 5, 11),
    }
    draw.optional(build, "bias", True, False)
    x = draw.array(*draw.lead(), build["in_features"])
    return Case(Part("Linear", build), draw.dtype, draw.flag("training"), {"input": x}, {})


def layer_norm(draw: Draw) -> Case:
    shape = draw.one_of("normalized_shape", 3, 5, 13, (7,), (3, 5), (2, 1, 5))
    build = {"normalized_shape": shape}
    draw.optional(build, "eps", 1e-5, 1e-3, 0.1)
    draw.optional(build, "elementwise_affine", True, False)
    draw.optional(build, "bias", True, False)
    x = draw.array(*draw.lead(), *np.atleast_1d(shape)) * draw.one_of("scale of input", 0.1, 1, 30)
    x = (x + draw.one_of("mean of input", 0, 5)).astype(draw.dtype)
    return Case(Part("LayerNorm", build), draw.dtype, draw.flag("training"), {"input": x}, {})


def embedding(draw: Draw) -> Case:
    rows, width = draw.one_of("num_embeddings", 2, 5, 11), draw.one_of("embedding_dim", 1, 3, 7)
    build = {"num_embeddings": rows, "embedding_dim": width}
    draw.optional(build, "padding_idx", None, 0, 1, -1)
    draw.optional(build, "norm_type", 2.0, 1.0)
    draw.optional(build, "scale_grad_by_freq", False, True)
    if not build.get("scale_grad_by_freq"):  # torch has no sparse gradient scaled by frequency
        draw.optional(build, "sparse", False, True)
    draw.optional(build, "_freeze", False, True)
    if draw.flag("_weight given"):
        build["_weight"] = draw.array(rows, width)
    lead = draw.lead()
    if build.get("sparse") and not lead:  # torch's sparse gradient fails on a single number
        lead = (1,)
    index = draw.generator.integers(0, rows, lead)
    index = index.astype(draw.one_of("input dtype", "int64", "int32"))
    return Case(Part("Embedding", build), draw.dtype, draw.flag("training"), {}, {"input": index})


def dropout(draw: Draw) -> Case:
    build: dict[str, Any] = {}
    training = draw.flag("training")
    if training:  # what p draws between 0 and 1 is a row of the table
        build["p"] = draw.one_of("p while training", 0.0, 1.0)
    else:
        draw.optional(build, "p", 0.0, 0.1, 1.0)
    draw.optional(build, "inplace", False)
    return Case(
        Part("Dropout", build), draw.dtype, training, {"input": draw.array(*draw.lead(), 5)}, {}
    )


def _activation_input(draw: Draw) -> Array:
    x = draw.array(*draw.lead(), 7) * draw.one_of("scale of input", 0.01, 1, 10)
    if draw.flag("exact zeros"):
        x[..., ::3] = 0.0
    return x.astype(draw.dtype)


def gelu(draw: Draw) -> Case:
    build: dict[str, Any] = {}
    draw.optional(build, "approximate", "none", "tanh")
    x = _activation_input(draw)
    return Case(Part("GELU", build), draw.dtype, draw.flag("training"), {"input": x}, {})


def relu(draw: Draw) -> Case:
    build: dict[str, Any] = {}
    draw.optional(build, "inplace", False)
    x = _activation_input(draw)
    return Case(Part("ReLU", build), draw.dtype, draw.flag("training"), {"input": x}, {})


def cross_entropy_loss(draw: Draw) -> Case:
    classes = draw.one_of("classes", 2, 5, 11)
    build: dict[str, Any] = {}
    draw.optional(build, "weight", None, "array")
    if build.get("weight") == "array":
        build["weight"] = np.abs(draw.array(classes)) + 0.1
    draw.optional(build, "reduction", "mean", "sum", "none")
    if "reduction" not in build:
        draw.optional(build, "size_average", None, True, False)
        draw.optional(build, "reduce", None, True, False)
    draw.optional(build, "label_smoothing", 0.0, 0.1, 1.0)
    rest = draw.one_of("axes besides C", (), (3,), (3, 2), (2, 3, 2), (0,))
    shape = (*rest[:1], classes, *rest[1:])
    if draw.one_of("target", "classes", "probabilities") == "probabilities":
        target = np.abs(draw.array(*shape))  # torch does not ask that they sum to 1
    else:
        draw.optional(build, "ignore_index", -100, 0, 1, -7)
        target = draw.generator.integers(0, classes, rest)
        ignored = draw.one_of("share of ignored targets", 0.0, 0.3, 1.0)
        ignored = draw.generator.random(rest) < ignored
        target = np.where(ignored, build.get("ignore_index", -100), target)
    x = draw.array(*shape) * draw.one_of("scale of input", 1, 5)
    return Case(
        Part("CrossEntropyLoss", build),
        draw.dtype,
        draw.flag("training"),
        {"input": x.astype(draw.dtype)},
        {"target": target},
    )


# Masks


def _anchor(draw: Draw, length: int, causal: bool) -> int:
    """A key that every mask leaves open, so that no query is dead (a row of the table)."""
    return 0 if causal or length == 0 else int(draw.generator.integers(length))


def random_mask(draw: Draw, argument: str, shape: tuple[int, ...], anchor: int | None) -> Array:
    """A mask in torch's polarity: bool (True = not allowed) or float, with −inf here and there."""
    kind = draw.one_of(f"{argument} dtype", "bool", "float")
    forbidden = draw.generator.random(shape) < draw.one_of(f"{argument} density", 0.0, 0.4, 0.9)
    if anchor is not None and shape[-1]:
        forbidden[..., anchor] = False
    if kind == "bool":
        return np.asarray(forbidden)
    return np.where(forbidden, -np.inf, draw.array(*shape)).astype(draw.dtype)


def causal_mask(draw: Draw, argument: str, length: int, source_length: int) -> Array:
    later = np.arange(source_length) > np.arange(length)[:, None]
    if draw.one_of(f"{argument} dtype", "bool", "float") == "bool":
        return later
    return np.where(later, -np.inf, 0.0).astype(draw.dtype)


def masks_of(
    draw: Draw,
    names: tuple[str, str, str],
    n: int | None,
    heads: int,
    length: int,
    source_length: int,
    *,
    weights: bool = False,
    free_keys: bool = False,
    causal_default: Any = False,
) -> dict[str, Any]:
    """attn_mask, key_padding_mask and is_causal, under their names in the class at hand.

    `is_causal` comes with a mask that says the same, because torch asks for one; with `weights` or
    a padding mask torch reads the mask alone, so there it may forbid more.
    """
    mask_name, padding_name, causal_name = names
    call: dict[str, Any] = {}
    batch = () if n is None else (n,)
    form = draw.one_of(
        mask_name, "left out", "None", "causal", "causal, told", "(L, S)", "(N·H, L, S)"
    )
    padding = draw.one_of(padding_name, "left out", "None", "array")
    if free_keys and form == "causal, told":  # causality over learnt keys: a row of the table
        form = "causal"
    causal = form.startswith("causal")
    anchor = None if free_keys and draw.maybe(0.5) else _anchor(draw, source_length, causal)
    if form == "None":
        call[mask_name] = None
    elif form == "(L, S)":
        call[mask_name] = random_mask(draw, mask_name, (length, source_length), anchor)
    elif form == "(N·H, L, S)":
        shape = ((1 if n is None else n) * heads, length, source_length)
        call[mask_name] = random_mask(draw, mask_name, shape, anchor)
    elif causal:
        call[mask_name] = causal_mask(draw, mask_name, length, source_length)
    if form == "causal, told":
        call[causal_name] = True
        if (weights or padding == "array") and draw.flag(f"{mask_name} forbids more"):
            more = random_mask(draw, mask_name, (length, source_length), anchor)
            call[mask_name] = _both(call[mask_name], more)
    elif draw.maybe(0.5):
        call[causal_name] = draw.one_of(f"{causal_name} without effect", False, causal_default)
    if padding == "None":
        call[padding_name] = None
    elif padding == "array":
        call[padding_name] = random_mask(draw, padding_name, (*batch, source_length), anchor)
    draw.counts[causal_name][str(call.get(causal_name, "left out"))] += 1
    return call


def _both(first: Array, second: Array) -> Array:
    if first.dtype == second.dtype == bool:
        return first | second
    as_float = [np.where(m, -np.inf, 0.0) if m.dtype == bool else m for m in (first, second)]
    dtype = first.dtype if first.dtype != bool else second.dtype
    return (as_float[0] + as_float[1]).astype(dtype)


# Attention


def multihead_attention(draw: Draw) -> Case:
    heads, width = draw.one_of("num_heads", 1, 2, 3), draw.one_of("head width", 1, 2, 5)
    e = heads * width
    build: dict[str, Any] = {"embed_dim": e, "num_heads": heads}
    for name in ("bias", "add_bias_kv", "add_zero_attn", "batch_first"):
        draw.optional(build, name, False, True)
    for name, other in (("kdim", 7), ("vdim", 11)):
        draw.optional(build, name, None, "embed_dim", other)
        if build.get(name) == "embed_dim":
            build[name] = e
    training = draw.flag("training")
    draw.optional(build, "dropout", *((0.0,) if training else (0.0, 0.3)))
    kdim, vdim = build.get("kdim") or e, build.get("vdim") or e
    free_keys = build.get("add_bias_kv", False) or build.get("add_zero_attn", False)
    length = draw.one_of("L", 1, 2, 5, 7, 0)
    same = draw.one_of("query, key, value", "apart", "key is value", "all one")
    aliases = {}
    source_length = draw.one_of("S", 1, 3, 5, 11, 0)
    if same == "all one" and kdim == vdim == e:
        source_length, aliases = length, {"key": "query", "value": "query"}
    elif same == "key is value" and kdim == vdim:
        aliases = {"value": "key"}
    if source_length == 0 and length > 0 and not free_keys:
        source_length = 2  # with no key at all every query is dead
    n = draw.one_of("N", None, 1, 2, 3)
    batch_first = build.get("batch_first", False)
    inputs = {
        name: draw.array(*_shape(n, steps, size, batch_first))
        for name, steps, size in (
            ("query", length, e),
            ("key", source_length, kdim),
            ("value", source_length, vdim),
        )
        if name not in aliases
    }
    call: dict[str, Any] = {}
    draw.optional(call, "need_weights", False, True)
    draw.optional(call, "average_attn_weights", False, True)
    if source_length or free_keys:  # masks over nothing: a row of the table
        call |= masks_of(
            draw,
            ("attn_mask", "key_padding_mask", "is_causal"),
            n,
            heads,
            length,
            source_length,
            weights=call.get("need_weights", True),
            free_keys=free_keys,
        )
    return Case(Part("MultiheadAttention", build), draw.dtype, training, inputs, call, aliases)


def _shape(n: int | None, length: int, width: int, batch_first: bool) -> tuple[int, ...]:
    if n is None:
        return (length, width)
    return (n, length, width) if batch_first else (length, n, width)


def scaled_dot_product_attention(draw: Draw) -> Case:
    lead = draw.one_of("leading axes", (), (3,), (2, 3), (2, 1, 3), (0, 3))
    length, source_length = draw.one_of("L", 1, 2, 5, 0), draw.one_of("S", 1, 3, 7)
    width, value_width = draw.one_of("D", 1, 2, 5), draw.one_of("Dv", 1, 2, 5)
    call: dict[str, Any] = {}
    key_lead = value_lead = lead
    if lead and draw.flag("enable_gqa"):
        call["enable_gqa"] = True
        groups = draw.one_of("query heads per key head", 1, 2, 3)
        value_groups = draw.one_of("query heads per value head", groups, 1)
        lead = (*lead[:-1], 6)
        key_lead = (*lead[:-1], 6 // groups)
        value_lead = (*lead[:-1], 6 // value_groups)
    elif draw.flag("axes broadcast") and lead:
        key_lead = tuple(1 if draw.maybe(0.5) else size for size in lead)
        value_lead = tuple(1 if draw.maybe(0.5) else size for size in lead)
    inputs = {
        "query": draw.array(*lead, length, width),
        "key": draw.array(*key_lead, source_length, width),
        "value": draw.array(*value_lead, source_length, value_width),
    }
    draw.optional(call, "dropout_p", 0.0)
    form = draw.one_of("attn_mask", "left out", "None", "causal", "(L, S)", "(1, S)", "(…, L, S)")
    negative = () if form == "causal" else (-0.5,)  # with causality a row of the table
    draw.optional(call, "scale", None, 0.3, 1.0, *negative)
    if form == "causal":
        call["is_causal"] = True
    elif form == "None":
        call["attn_mask"] = None
    elif form != "left out":
        shape = {"(L, S)": (length, source_length), "(1, S)": (1, source_length)}.get(
            form, (*lead, length, source_length)
        )
        mask = random_mask(draw, "attn_mask", shape, _anchor(draw, source_length, False))
        call["attn_mask"] = ~mask if mask.dtype == bool else mask  # here True = MAY attend
    part = Part("functional.scaled_dot_product_attention")
    return Case(part, draw.dtype, draw.flag("training"), inputs, call)


# Layers and stacks


def _layer_build(draw: Draw, copied_decoder: bool = False) -> dict[str, Any]:
    heads, width = draw.one_of("nhead", 1, 2, 3), draw.one_of("head width", 5, 7)
    build: dict[str, Any] = {"d_model": heads * width, "nhead": heads}
    build["dim_feedforward"] = draw.one_of("dim_feedforward", 3, 7, 11)
    for name in ("norm_first", "batch_first", "bias"):
        draw.optional(build, name, False, True)
    draw.optional(build, "layer_norm_eps", 1e-5, 1e-3)
    modules = () if copied_decoder else ("GELU()", "GELU(tanh)")  # torch's copies forget them
    draw.optional(build, "activation", "relu", "gelu", "functional.gelu", "pair", *modules)
    build["dropout"] = 0.0
    return build


def _training(draw: Draw, build: dict[str, Any]) -> bool:
    """Dropout is 0, or the layer is in evaluation: what is drawn is a row of the table."""
    training = draw.flag("training")
    if not training:
        build["dropout"] = draw.one_of("dropout in evaluation", 0.0, 0.1)
    return training


def encoder_layer(draw: Draw) -> Case:
    build = _layer_build(draw)
    training = _training(draw, build)
    src, call = _source(draw, build, ("src_mask", "src_key_padding_mask", "is_causal"), False)
    return Case(Part("TransformerEncoderLayer", build), draw.dtype, training, {"src": src}, call)


def _source(
    draw: Draw, build: dict[str, Any], names: tuple[str, str, str], default: Any
) -> tuple[Array, dict[str, Any]]:
    n, length = draw.one_of("N", None, 1, 2, 3), draw.one_of("S", 1, 3, 5)
    src = draw.array(*_shape(n, length, build["d_model"], build.get("batch_first", False)))
    masks = masks_of(draw, names, n, build["nhead"], length, length, causal_default=default)
    return src, masks


DECODER_MASKS = (
    ("tgt_mask", "tgt_key_padding_mask", "tgt_is_causal"),
    ("memory_mask", "memory_key_padding_mask", "memory_is_causal"),
)


def _target_and_memory(
    draw: Draw, build: dict[str, Any], default: Any
) -> tuple[Array, Array, dict[str, Any]]:
    n = draw.one_of("N", None, 1, 2, 3)
    length, source_length = draw.one_of("L", 1, 2, 5), draw.one_of("S", 1, 3, 7)
    e, heads, batch_first = build["d_model"], build["nhead"], build.get("batch_first", False)
    to_self, to_memory = DECODER_MASKS
    call = masks_of(draw, to_self, n, heads, length, length, causal_default=default)
    call |= masks_of(draw, to_memory, n, heads, length, source_length)
    tgt = draw.array(*_shape(n, length, e, batch_first))
    return tgt, draw.array(*_shape(n, source_length, e, batch_first)), call


def decoder_layer(draw: Draw) -> Case:
    build = _layer_build(draw)
    training = _training(draw, build)
    tgt, memory, call = _target_and_memory(draw, build, False)
    inputs = {"tgt": tgt, "memory": memory}
    return Case(Part("TransformerDecoderLayer", build), draw.dtype, training, inputs, call)


def _stack(draw: Draw, layer: Part, build: dict[str, Any]) -> dict[str, Any]:
    e = build["d_model"]
    stack: dict[str, Any] = {
        next(iter(("encoder_layer",) if "Encoder" in layer.kind else ("decoder_layer",))): layer,
        "num_layers": draw.one_of("num_layers", 1, 2),
    }
    norm = draw.one_of("norm", "left out", "None", "LayerNorm", "LayerNorm without bias", "Linear")
    if norm == "Linear":  # torch takes any module
        stack["norm"] = Part("Linear", {"in_features": e, "out_features": e})
    elif norm == "None":
        stack["norm"] = None
    elif norm != "left out":
        stack["norm"] = Part("LayerNorm", {"normalized_shape": e, "bias": norm == "LayerNorm"})
    return stack


def encoder(draw: Draw) -> Case:
    build = _layer_build(draw)
    training = _training(draw, build)
    stack = _stack(draw, Part("TransformerEncoderLayer", build), build)
    draw.optional(stack, "enable_nested_tensor", False, True)
    draw.optional(stack, "mask_check", False, True)
    src, call = _source(draw, build, ("mask", "src_key_padding_mask", "is_causal"), None)
    return Case(Part("TransformerEncoder", stack), draw.dtype, training, {"src": src}, call)


def decoder(draw: Draw) -> Case:
    build = _layer_build(draw, copied_decoder=True)
    training = _training(draw, build)
    stack = _stack(draw, Part("TransformerDecoderLayer", build), build)
    tgt, memory, call = _target_and_memory(draw, build, None)
    inputs = {"tgt": tgt, "memory": memory}
    return Case(Part("TransformerDecoder", stack), draw.dtype, training, inputs, call)


def transformer(draw: Draw) -> Case:
    build = _layer_build(draw, copied_decoder=True)
    training = _training(draw, build)
    e, heads, batch_first = build["d_model"], build["nhead"], build.get("batch_first", False)
    build["num_encoder_layers"] = draw.one_of("num_encoder_layers", 1, 2)
    build["num_decoder_layers"] = draw.one_of("num_decoder_layers", 1, 2)
    draw.optional(build, "custom_encoder", None, "Custom")
    draw.optional(build, "custom_decoder", None, "Custom")
    custom_encoder = build.get("custom_encoder") == "Custom"
    custom_decoder = build.get("custom_decoder") == "Custom"
    if custom_encoder:
        build["custom_encoder"] = Part("CustomEncoder", {"width": e})
    if custom_decoder:
        build["custom_decoder"] = Part("CustomDecoder", {"width": e})
    n = draw.one_of("N", None, 1, 2, 3)
    source_length, length = draw.one_of("S", 1, 3, 7), draw.one_of("T", 1, 2, 5)
    if custom_decoder:
        source_length = length
    src = draw.array(*_shape(n, source_length, e, batch_first))
    tgt = draw.array(*_shape(n, length, e, batch_first))
    call = masks_of(
        draw,
        ("src_mask", "src_key_padding_mask", "src_is_causal"),
        n, heads, source_length, source_length, causal_default=None,
    )  # fmt: skip
    to_self, to_memory = DECODER_MASKS
    call |= masks_of(draw, to_self, n, heads, length, length, causal_default=None)
    call |= masks_of(draw, to_memory, n, heads, length, source_length)
    inputs = {"src": src, "tgt": tgt}
    return Case(Part("Transformer", build), draw.dtype, training, inputs, call)


KINDS: dict[str, Callable[[Draw], Case]] = {
    "Linear": linear,
    "LayerNorm": layer_norm,
    "Embedding": embedding,
    "Dropout": dropout,
    "GELU": gelu,
    "ReLU": relu,
    "CrossEntropyLoss": cross_entropy_loss,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "MultiheadAttention": multihead_attention,
    "TransformerEncoderLayer": encoder_layer,
    "TransformerDecoderLayer": decoder_layer,
    "TransformerEncoder": encoder,
    "TransformerDecoder": decoder,
    "Transformer": transformer,
}


def draw_case(kind: str, seed: int, counts: Counts | None = None) -> Case:
    """Return case number `seed` of a class."""
    return KINDS[kind](Draw(kind, seed, counts))

"""A model that generates as a CTranslate2 model folder: float32, or int8 by its quantizer.

CTranslate2 (OpenNMT) is an engine in C++. It runs encoder-decoders with one self-attention, one
cross-attention and one feed-forward network a layer, and decoders alone. Weights keep their values;
the scales of embeddings, positions and scores are written too, a learned one inside the queries'
weights. What it cannot express is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from pellucid.core.errors import UserError, optional
from pellucid.core.files import folder_atomically
from pellucid.data.tokenizers import SPECIALS, UNK, Tokenizer
from pellucid.models.causal_lm import CausalLM
from pellucid.models.describe import (
    EVERY_ATTENTION,
    GENERATIVE,
    Attention,
    Description,
    FeedForward,
    Linear,
    Norm,
    Output,
    Positions,
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
from pellucid.models.positions import POSITIONS
from pellucid.models.seq2seq import Seq2Seq
from pellucid.ops.activations import ACTIVATIONS

Array = np.ndarray
Quantization = Literal["float32", "int8"]

RMS_NORM = {"layer_norm": False, "rms_norm": True}
"""The norms that CTranslate2 has, and what its specifications call each."""

READER = Reader(
    "CTranslate2",
    {
        **GENERATIVE,
        Positions: {"kind": POSITIONS, "table": None, "angles": None},
        Norm: {"kind": RMS_NORM, "of": None},
        Attention: {**EVERY_ATTENTION, "softcap": (None,), "window": (None,)},
        FeedForward: {"activation": [name for name, row in ACTIVATIONS.items() if row.ctranslate2]},
    },
)


def write_ctranslate2(
    model: Seq2Seq | CausalLM,
    source: Tokenizer,
    target: Tokenizer,
    folder: Path,
    quantization: Quantization = "float32",
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Write the model, and the files `beside`, as a folder that `ctranslate2.Translator` opens, or
    `ctranslate2.Generator` for a decoder alone.

    Its tokens are those of the tokenizers' files, by the same numbers. A source goes in as it is,
    without begin or end; decoding starts from the begin token.

    Raises `UserError` when ctranslate2 is not installed, and when the folder already exists or
    cannot be written; `UnsupportedError` for a model that CTranslate2 cannot express. Then nothing
    is written.
    """
    specs = optional(
        "ctranslate2",
        "writing CTranslate2 models needs its package",
        extra="export",
    ).specs
    records = describe(model)
    _check(records)
    encoder, decoder = (_checked(records, name) for name in ("encoder", "decoder"))
    if folder.exists():
        raise UserError(f"{folder}: already exists; choose another folder")
    spec = _Spec(specs, model.state_dict()).of(encoder, decoder, records)
    # Its quantizer multiplies in place.
    specs.model_spec.visit_spec(spec, _own)
    settings = model.config
    if encoder is None:
        spec.register_vocabulary(target.vocabulary)
    else:
        spec.register_source_vocabulary(source.vocabulary)
        spec.register_target_vocabulary(target.vocabulary)
        spec.config.decoder_start_token = SPECIALS[settings.bos_token_id]
    spec.config.unk_token = SPECIALS[UNK]
    spec.config.bos_token = SPECIALS[settings.bos_token_id]
    spec.config.eos_token = SPECIALS[settings.eos_token_id]
    spec.config.layer_norm_epsilon = settings.layer_norm_eps
    spec.validate()
    spec.optimize(quantization)
    with folder_atomically(folder) as made:
        spec.save(str(made))
        for name, content in beside.items():
            (made / name).write_bytes(content)


_ORDERS = [["self", "network"], ["self", "memory", "network"]]
"""The sublayers that a layer may have."""


def _checked(records: Description, name: str) -> Stack | None:
    """Return a stack that has an order of sublayers that CTranslate2 has."""
    stack = READER.stack(records, name)
    if stack is None:
        return None
    if not stack.blocks:
        raise UnsupportedError(f"CTranslate2 cannot express a stack without layers: the {name}")
    for blocks in stack.layers():
        if (order := [_kind(block) for block in blocks]) not in _ORDERS:
            raise UnsupportedError(
                f"CTranslate2 cannot express a layer of {', '.join(order)}: a layer of the {name} "
                "has one network, after attention; ffn_before must be 0 and ffn_after 1"
            )
    return stack


def _check(records: Description) -> None:
    """Raise `UnsupportedError` for what CTranslate2 has, but computes otherwise in such a model."""
    READER.check(records)
    alone = not any(record.stack == "encoder" for record in records)
    for part in parts(records):
        match part:
            case Positions(kind="alibi") if not alone:
                fault = "positions = 'alibi' but in a decoder alone"
            case Positions(kind="relative") if alone:
                fault = "positions = 'relative' in a decoder alone"
            case Attention(over="memory") if part.q_norm is not None:
                fault = "a norm of queries and keys (q_norm) in cross-attention"
            case Attention() if part.q_norm is not None and part.head_scale is not None:
                fault = "a learned scale (head_scale) behind a norm of the queries"
            case _:
                continue
        raise UnsupportedError(f"CTranslate2 cannot express {fault}")


def _kind(block: Residual) -> str:
    return block.sublayer.over if isinstance(block.sublayer, Attention) else "network"


def _own(spec: Any, name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        setattr(spec, name.rsplit("/", 1)[-1], value.copy())


class _Spec:
    """Fills CTranslate2's specification of a model with arrays."""

    def __init__(self, specs: Any, state: Mapping[str, Array]) -> None:
        self.specs, self.state = specs, state

    def of(self, encoder: Stack | None, decoder: Stack | None, records: Description) -> Any:
        """Return the specification of a model."""
        assert decoder is not None  # every model that generates has one
        made = self.specs.transformer_spec
        target = made.TransformerDecoderSpec(
            with_encoder_attention=encoder is not None,
            alibi=decoder.positions.kind == "alibi",
            **self._options(decoder),
        )
        self._stack(decoder, target)
        (output,) = (record for record in records if isinstance(record, Output))
        self._linear(target.projection, output.linear)
        if encoder is None:
            return made.TransformerDecoderModelSpec(target)
        source = made.TransformerEncoderSpec(**self._options(encoder))
        self._stack(encoder, source)
        return made.TransformerSpec(source, target)

    def _options(self, stack: Stack) -> dict[str, Any]:
        """Return what a stack's specification is built with."""
        first = stack.blocks[0]
        network = stack.blocks[-1].sublayer
        attention = first.sublayer
        assert isinstance(attention, Attention)
        assert isinstance(network, FeedForward)
        activation = ACTIVATIONS[network.activation]
        options: dict[str, Any] = {
            "num_layers": len(stack.layers()),
            "num_heads": attention.heads,
            "pre_norm": first.placement == "pre",
            "no_final_norm": stack.norm is None,
            "activation": getattr(self.specs.common_spec.Activation, str(activation.ctranslate2)),
            "ffn_glu": activation.gates == 2,
            "rms_norm": RMS_NORM[first.norm.kind],
            "layernorm_embedding": stack.embedding_norm is not None,
            "relative_attention_bias": attention.relative_bias is not None,
            "num_heads_kv": attention.key_value_heads,
            "head_dim": attention.head_width,
            "qk_norm": attention.q_norm is not None,
            "sliding_window": attention.window,
        }
        if POSITIONS[stack.positions.kind].rotate is not None:
            scaling = self.specs.attention_spec.RotaryScalingType
            angles = stack.positions.angles
            options |= {
                "rotary_dim": attention.head_width,
                "rotary_interleave": False,
                "rotary_base": angles.base,
                "rotary_scaling_type": scaling.Linear if angles.low is None else scaling.Llama3,
                "rotary_scaling_factor": angles.factor,
            }
        return options

    def _stack(self, stack: Stack, to: Any) -> None:
        embeddings = to.embeddings[0] if isinstance(to.embeddings, list) else to.embeddings
        embeddings.weight = self.state[stack.tokens.table.name]
        to.scale_embeddings = np.float32(stack.tokens.factor)
        table = position_table(stack.positions, self.state, np.float32)
        if table is not None:
            to.position_encodings.encodings = table * np.float32(stack.positions.factor)
        for name, norm in (
            ("layer_norm", stack.norm),
            ("layernorm_embedding", stack.embedding_norm),
        ):
            if norm is not None:
                self._norm(to, name, norm)
        for blocks, layer in zip(stack.layers(), to.layer, strict=True):
            for block in blocks:
                self._block(block, layer, stack)

    def _block(self, block: Residual, to: Any, stack: Stack) -> None:
        match block.sublayer:
            case Attention(over="self"):
                self._attention(to.self_attention, block.sublayer)
                self._distances(to.self_attention, block.sublayer, stack)
                self._norm(to.self_attention, "layer_norm", block.norm)
            case Attention(over="memory"):
                self._attention(to.attention, block.sublayer)
                self._norm(to.attention, "layer_norm", block.norm)
            case FeedForward():
                self._network(to.ffn, block.sublayer)
                self._norm(to.ffn, "layer_norm", block.norm)

    def _network(self, to: Any, network: FeedForward) -> None:
        gates = ACTIVATIONS[network.activation].gates
        weights = np.split(self.state[network.linear1.weight.name], gates)
        bias = array(network.linear1.bias, self.state)
        for n, name in enumerate(("linear_0", "linear_0_noact")[:gates]):
            into = getattr(to, name)
            into.weight = weights[n]
            if bias is not None:
                into.bias = np.split(bias, gates)[n]
        self._linear(to.linear_1, network.linear2)

    def _attention(self, to: Any, attention: Attention) -> None:
        """Self-attention has (q, k, v) in one product; cross-attention has q, and (k, v)."""
        each = projections(attention, self.state)
        weights = [weight for weight, _ in each]
        # some of its paths go wrong where only some products have biases
        biases = [np.zeros(len(w), np.float32) if b is None else b for w, b in each]
        spans = [slice(0, 3)] if len(to.linear) == 2 else [slice(0, 1), slice(1, 3)]
        for into, span in zip(to.linear, spans, strict=False):
            into.weight = np.concatenate(weights[span])
            into.bias = np.concatenate(biases[span])
        self._linear(to.linear[-1], attention.out_proj)
        for name, norm in (("q_norm", attention.q_norm), ("k_norm", attention.k_norm)):
            if norm is not None:
                self._norm(to, name, norm)
        to.queries_scale = np.float32(attention.scale)

    def _distances(self, to: Any, attention: Attention, stack: Stack) -> None:
        """Write the angles of rotary positions, or the learned scores of distances."""
        angles = stack.positions.angles
        if angles.low is not None and angles.high is not None and angles.original is not None:
            to.__dict__ |= {
                "rotary_scaling_factor": np.float32(angles.factor),
                "rotary_low_freq_factor": np.float32(angles.low),
                "rotary_high_freq_factor": np.float32(angles.high),
                "original_max_position_embeddings": np.int32(angles.original),
            }
        if attention.relative_bias is not None:
            to.relative_attention_bias = self.state[attention.relative_bias.name]
            to.relative_attention_max_distance = np.int32(attention.relative_longest)

    def _linear(self, to: Any, linear: Linear) -> None:
        to.weight = self.state[linear.weight.name]
        bias = array(linear.bias, self.state)
        if bias is not None:
            to.bias = bias

    def _norm(self, to: Any, name: str, norm: Norm) -> None:
        made = self.specs.common_spec.LayerNormSpec(rms_norm=RMS_NORM[norm.kind])
        made.gamma = self.state[norm.weight.name]
        if norm.bias is not None:
            made.beta = self.state[norm.bias.name]
        to.__dict__[name] = made

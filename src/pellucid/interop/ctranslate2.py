"""An encoder-decoder as a CTranslate2 model folder: float32, or int8 by its quantizer.

CTranslate2 (OpenNMT) is an engine in C++. It runs encoder-decoders with one self-attention, one
cross-attention and one feed-forward network a layer. Weights keep their values; the scales of
embeddings, positions and scores are written too, a learned one inside the queries' weights. What it
cannot express is refused by name.
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
from pellucid.models.describe import (
    GENERATIVE,
    Attention,
    Description,
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
    position_table,
    projections,
)
from pellucid.models.seq2seq import Seq2Seq
from pellucid.ops.activations import ACTIVATIONS

Array = np.ndarray
Quantization = Literal["float32", "int8"]

READER = Reader(
    "CTranslate2",
    {
        **GENERATIVE,
        FeedForward: {"activation": [name for name, row in ACTIVATIONS.items() if row.ctranslate2]},
    },
)


def write_ctranslate2(
    model: Seq2Seq,
    source: Tokenizer,
    target: Tokenizer,
    folder: Path,
    quantization: Quantization = "float32",
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Write the model, and the files `beside`, as a folder that `ctranslate2.Translator` opens.

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
    stacks = {name: _checked(records, name) for name in ("encoder", "decoder")}
    if folder.exists():
        raise UserError(f"{folder}: already exists; choose another folder")
    spec = _Spec(specs, model.state_dict()).of(stacks["encoder"], stacks["decoder"], records)
    # Its quantizer multiplies in place.
    specs.model_spec.visit_spec(spec, _own)
    spec.register_source_vocabulary(source.vocabulary)
    spec.register_target_vocabulary(target.vocabulary)
    settings = model.config
    spec.config.unk_token = SPECIALS[UNK]
    spec.config.bos_token = spec.config.decoder_start_token = SPECIALS[settings.bos_token_id]
    spec.config.eos_token = SPECIALS[settings.eos_token_id]
    spec.config.layer_norm_epsilon = settings.layer_norm_eps
    spec.validate()
    spec.optimize(quantization)
    with folder_atomically(folder) as made:
        spec.save(str(made))
        for name, content in beside.items():
            (made / name).write_bytes(content)


_ORDER = {"encoder": ["self", "network"], "decoder": ["self", "memory", "network"]}
"""The sublayers of every layer."""


def _checked(records: Description, name: str) -> Stack:
    """Return a stack that has the one order of sublayers that CTranslate2 has."""
    stack = READER.stack(records, name)
    if stack is None or not stack.blocks:
        raise UnsupportedError(f"CTranslate2 cannot express a stack without layers: the {name}")
    for blocks in stack.layers():
        if (order := [_kind(block) for block in blocks]) != _ORDER[name]:
            raise UnsupportedError(
                f"CTranslate2 cannot express a layer of {', '.join(order)}: a layer of the {name} "
                f"has {', '.join(_ORDER[name])}; ffn_before must be 0 and ffn_after 1"
            )
    return stack


def _kind(block: Residual) -> str:
    return block.sublayer.over if isinstance(block.sublayer, Attention) else "network"


def _own(spec: Any, name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        setattr(spec, name.rsplit("/", 1)[-1], value.copy())


class _Spec:
    """Fills CTranslate2's specification of a model with arrays."""

    def __init__(self, specs: Any, state: Mapping[str, Array]) -> None:
        self.specs, self.state = specs, state

    def of(self, encoder: Stack, decoder: Stack, records: Description) -> Any:
        """Return the specification of a model."""
        first, last = encoder.blocks[0], encoder.blocks[-1]
        assert isinstance(first.sublayer, Attention)
        assert isinstance(last.sublayer, FeedForward)
        activation = ACTIVATIONS[last.sublayer.activation].ctranslate2
        spec = self.specs.TransformerSpec.from_config(
            (len(encoder.layers()), len(decoder.layers())),
            first.sublayer.heads,
            pre_norm=first.placement == "pre",
            no_final_norm=encoder.norm is None,
            activation=getattr(self.specs.common_spec.Activation, str(activation)),
        )
        self._stack(encoder, spec.encoder)
        self._stack(decoder, spec.decoder)
        (output,) = (record for record in records if isinstance(record, Output))
        self._linear(spec.decoder.projection, output.linear)
        return spec

    def _stack(self, stack: Stack, to: Any) -> None:
        embeddings = to.embeddings[0] if isinstance(to.embeddings, list) else to.embeddings
        embeddings.weight = self.state[stack.tokens.table.name]
        to.scale_embeddings = np.float32(stack.tokens.factor)
        table = position_table(stack.positions, self.state, np.float32)
        assert table is not None  # the reader refuses other positions
        to.position_encodings.encodings = table * np.float32(stack.positions.factor)
        if stack.norm is not None:
            if not hasattr(to, "layer_norm"):  # post-norm with a norm at the end
                to.__dict__["layer_norm"] = self.specs.common_spec.LayerNormSpec()
            self._norm(to.layer_norm, stack.norm)
        for blocks, layer in zip(stack.layers(), to.layer, strict=True):
            for block in blocks:
                self._block(block, layer)

    def _block(self, block: Residual, to: Any) -> None:
        match block.sublayer:
            case Attention(over="self"):
                self._attention(to.self_attention, block.sublayer, block.norm)
            case Attention(over="memory"):
                self._attention(to.attention, block.sublayer, block.norm)
            case FeedForward():
                self._norm(to.ffn.layer_norm, block.norm)
                self._linear(to.ffn.linear_0, block.sublayer.linear1)
                self._linear(to.ffn.linear_1, block.sublayer.linear2)

    def _attention(self, to: Any, attention: Attention, norm: Norm) -> None:
        """Self-attention has (q, k, v) in one product; cross-attention has q, and (k, v)."""
        each = projections(attention, self.state)
        weight = np.concatenate([w for w, _ in each])
        bias = np.concatenate([b for _, b in each if b is not None])
        width = len(each[0][0])
        bounds = [0, len(weight)] if len(to.linear) == 2 else [0, width, len(weight)]
        for into, start, end in zip(to.linear, bounds[:-1], bounds[1:], strict=False):
            into.weight, into.bias = weight[start:end], bias[start:end]
        self._linear(to.linear[-1], attention.out_proj)
        self._norm(to.layer_norm, norm)
        to.queries_scale = np.float32(attention.scale)

    def _linear(self, to: Any, linear: Linear) -> None:
        to.weight = self.state[linear.weight.name]
        bias = array(linear.bias, self.state)
        if bias is not None:
            to.bias = bias

    def _norm(self, to: Any, norm: Norm) -> None:
        to.gamma, to.beta = self.state[norm.weight.name], array(norm.bias, self.state)

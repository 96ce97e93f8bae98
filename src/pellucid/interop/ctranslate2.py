"""A `Seq2Seq` as a CTranslate2 model folder, for its C++ engine: float32, or int8 by its quantizer.

CTranslate2 (OpenNMT) runs encoder-decoders with one self-attention, one cross-attention and one
feed-forward network a layer. Weights keep their values; the scales of embeddings, positions and
scores travel with them, a learned one inside the queries' weights. What it has no word for is
refused by name.
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
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn import LayerNorm, Linear, MultiheadAttention

Quantization = Literal["float32", "int8"]

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}


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

    Raises `UserError` when ctranslate2 is not installed, when the folder is there already or cannot
    be written, and for a model that CTranslate2 cannot express. Then nothing is written.
    """
    specs = optional(
        "ctranslate2",
        "writing CTranslate2 models needs its package",
        extra="export",
    ).specs
    if lacking := inexpressible(model):
        raise UserError(f"CTranslate2 cannot express this model: it has {', '.join(lacking)}")
    if folder.exists():
        raise UserError(f"{folder}: is there already; choose another folder")
    spec = _spec(model, specs)
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


def inexpressible(model: Seq2Seq) -> list[str]:
    """Return what of the model CTranslate2 has no word for.

    >>> from pellucid.models import Seq2SeqConfig
    >>> inexpressible(Seq2Seq(Seq2SeqConfig(5, 5, d_model=8, ffn_dim=8, ffn_before=1)))
    ['ffn_before = 1 (there is one feed-forward network a layer, after attention)']
    """
    config = model.config
    lacking = []
    if config.ffn_before:
        lacking.append(
            f"ffn_before = {config.ffn_before} (there is one feed-forward network a layer, after "
            "attention)"
        )
    if config.ffn_after > 1:
        lacking.append(f"ffn_after = {config.ffn_after} (one feed-forward network a layer)")
    if config.activation_function not in _ACTIVATIONS:
        lacking.append(
            f"activation_function = {config.activation_function!r} (there are "
            f"{', '.join(_ACTIVATIONS)})"
        )
    if not config.encoder_layers or not config.decoder_layers:
        lacking.append("a stack without layers")
    return lacking


def _own(spec: Any, name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        setattr(spec, name.rsplit("/", 1)[-1], value.copy())


def _spec(model: Seq2Seq, specs: Any) -> Any:
    config = model.config
    activation = getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation_function])
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_attention_heads,
        pre_norm=config.norm == "pre",
        no_final_norm=not config.final_norm,
        activation=activation,
    )
    for stack, into, table in (
        (model.encoder, spec.encoder, model.source),
        (model.decoder, spec.decoder, model.target),
    ):
        embeddings = into.embeddings[0] if isinstance(into.embeddings, list) else into.embeddings
        embeddings.weight = table.tokens.weight.data
        into.scale_embeddings = np.float32(config.token_factor)
        into.position_encodings.encodings = table.places * np.float32(config.position_factor)
        if stack.norm is not None:
            assert isinstance(stack.norm, LayerNorm)
            if not hasattr(into, "layer_norm"):  # post-norm with a norm at the end
                into.__dict__["layer_norm"] = specs.common_spec.LayerNormSpec()
            _norm(into.layer_norm, stack.norm)
        for layer, to in zip(stack.layers, into.layer, strict=True):
            _attention(to.self_attention, layer.self_attn, layer.norm1, config.score_factor)
            if into is spec.decoder:
                _attention(to.attention, layer.multihead_attn, layer.norm2, config.score_factor)
            _norm(to.ffn.layer_norm, layer.norm3 if into is spec.decoder else layer.norm2)
            _linear(to.ffn.linear_0, layer.linear1)
            _linear(to.ffn.linear_1, layer.linear2)
    _linear(spec.decoder.projection, model.output)
    return spec


def _attention(to: Any, attention: MultiheadAttention, norm: LayerNorm, factor: float) -> None:
    """Self-attention has (q, k, v) in one product; cross-attention has q, and (k, v)."""
    projections = attention.folded_projections()
    weight = np.concatenate([p.weight for p in projections])
    bias = np.concatenate([p.bias for p in projections if p.bias is not None])
    cuts = [0, len(weight)] if len(to.linear) == 2 else [0, attention.embed_dim, len(weight)]
    for into, start, end in zip(to.linear, cuts[:-1], cuts[1:], strict=False):
        into.weight, into.bias = weight[start:end], bias[start:end]
    _linear(to.linear[-1], attention.out_proj)
    _norm(to.layer_norm, norm)
    to.queries_scale = np.float32(factor)


def _linear(to: Any, linear: Linear) -> None:
    to.weight = linear.weight.data
    if linear.bias is not None:
        to.bias = linear.bias.data


def _norm(to: Any, norm: LayerNorm) -> None:
    to.gamma, to.beta = norm.arrays()

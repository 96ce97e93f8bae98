"""BART, and encoder-decoders like it: their settings and names, and ours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from pellucid.interop.families import family as base
from pellucid.models import Seq2Seq
from pellucid.models.config import PositionScheme, Seq2SeqConfig
from pellucid.models.positions import POSITIONS


def _bart_config(
    theirs: base.Foreign,
    positions: PositionScheme = "learned",
    embedding_norm: bool = True,
    pre: bool = False,
    apart: bool = False,
) -> Seq2SeqConfig:
    for name in ("attention_heads", "ffn_dim"):
        theirs.only(f"decoder_{name}", theirs.whole(f"encoder_{name}"))
    source = target = theirs.whole("vocab_size")
    tie: Literal["none", "output", "all"] = "all"
    if apart and not theirs.flag("share_encoder_decoder_embeddings", True):
        target = theirs.whole("decoder_vocab_size", source)
        tie = "output" if theirs.flag("tie_word_embeddings", True) else "none"
    else:
        for name in ("tie_word_embeddings", "share_encoder_decoder_embeddings"):
            theirs.only(name, True)
        theirs.only("decoder_vocab_size", target)
    return Seq2SeqConfig(
        source,
        target,
        d_model=theirs.whole("d_model"),
        num_attention_heads=theirs.whole("encoder_attention_heads"),
        ffn_dim=theirs.whole("encoder_ffn_dim"),
        encoder_layers=theirs.whole("encoder_layers"),
        decoder_layers=theirs.whole("decoder_layers"),
        activation_function=theirs.activation("activation_function", "gelu"),
        norm="pre" if pre else "post",
        final_norm=pre,
        embedding_norm=embedding_norm,
        positions=positions,
        max_position_embeddings=theirs.whole("max_position_embeddings", 1024),
        embedding_scale="sqrt_d_model" if theirs.flag("scale_embedding", False) else 1.0,
        dropout=theirs.number("dropout", 0.1),
        attention_dropout=theirs.number("attention_dropout", 0.0),
        activation_dropout=theirs.number("activation_dropout", 0.0),
        tie_embeddings=tie,
        pad_token_id=theirs.whole("pad_token_id", 1),
        bos_token_id=theirs.first("decoder_start_token_id", 2),
        eos_token_id=theirs.first("eos_token_id", 2),
    )


def _marian_values(config: Seq2SeqConfig) -> dict[str, Any]:
    shared = config.tie_embeddings == "all"
    return {
        **_bart_values(config, "MarianMTModel"),
        "share_encoder_decoder_embeddings": shared,
        "decoder_vocab_size": config.target_vocab_size,
        "tie_word_embeddings": config.tie_embeddings != "none",
    }


def _bart_values(config: Seq2SeqConfig, head: str) -> dict[str, Any]:
    both = ("encoder", "decoder")
    return {
        "architectures": [head],
        "vocab_size": config.source_vocab_size,
        "d_model": config.d_model,
        **{f"{stack}_attention_heads": config.num_attention_heads for stack in both},
        **{f"{stack}_ffn_dim": config.ffn_dim for stack in both},
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "activation_function": base.their_activation(config.activation_function),
        "max_position_embeddings": config.max_position_embeddings,
        "scale_embedding": config.embedding_scale == "sqrt_d_model",
        "dropout": config.dropout,
        "pad_token_id": config.pad_token_id,
        "bos_token_id": config.bos_token_id,
        "decoder_start_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "forced_eos_token_id": None,
        "tie_word_embeddings": True,
    }


def _bart_names(config: Seq2SeqConfig, theirs: base.Foreign) -> base.Table:
    shared = config.ties_source
    source, target = (
        "shared.weight" if shared else f"{stack}.embed_tokens.weight"
        for stack in ("encoder", "decoder")
    )
    table: dict[str, base.Row] = {
        "source.tokens.weight": source,
        "target.tokens.weight": target,
        "output.weight": target if config.ties_output else "lm_head.weight",
        "output.bias": base.Theirs(("final_logits_bias",), first=True),
        "decoder.layers.#.norm2.*": "decoder.layers.#.encoder_attn_layer_norm.*",
        "decoder.layers.#.norm3.*": "decoder.layers.#.final_layer_norm.*",
        "encoder.layers.#.norm2.*": "encoder.layers.#.final_layer_norm.*",
    }
    for ours, his in (("source", "encoder"), ("target", "decoder")):
        layer, positions = f"{his}.layers.#", f"{his}.embed_positions.weight"
        for mine, other in (("self_attn", "self_attn"), ("multihead_attn", "encoder_attn")):
            parts = tuple(f"{layer}.{other}.{part}_proj.*" for part in "qkv")
            table[f"{layer}.{mine}.in_proj_*"] = parts
            table[f"{layer}.{mine}.out_proj.*"] = f"{layer}.{other}.out_proj.*"
        table |= {
            f"{ours}.positions.weight": base.Theirs((positions,), skip=2),  # BART begins at 2
            f"{ours}.norm.*": f"{his}.layernorm_embedding.*",
            f"{layer}.norm1.*": f"{layer}.self_attn_layer_norm.*",
            f"{layer}.linear1.*": f"{layer}.fc1.*",
            f"{layer}.linear2.*": f"{layer}.fc2.*",
            f"{his}.norm.*": f"{his}.layer_norm.*",
        }
    return table


AXES = {
    **dict.fromkeys(("tokens.weight", "in_proj_weight", "linear1.weight", "output.weight"), 1),
    **dict.fromkeys(("out_proj.weight", "out_proj.bias", "linear2.weight", "linear2.bias"), 0),
}
"""By the end of an array's name, its axis of the model's width; norms have no other."""


def sines_first(config: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a model that computes the same with all sines of its positions before all cosines.

    Nothing depends on the order of the features that the layers pass on: all that reads or writes
    them gets the other order. A model without such a table is returned as it is.
    """
    if config.positions != "sinusoidal":
        return config, state
    width = config.d_model
    order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
    moved = {}
    for name, array in state.items():
        ends = [axis for end, axis in AXES.items() if name.endswith(end)]
        owner = name.rpartition(".")[0].rpartition(".")[2]
        # a norm of heads' width, or of one number, is refused by its setting's name
        norm = "norm" in owner and array.shape == (width,)
        axis = ends[0] if ends else 0 if norm else None
        moved[name] = array if axis is None else np.take(array, order, axis)
    return replace(config, positions="sinusoidal_halves"), moved


def _pegasus_sines(config: Seq2SeqConfig) -> dict[str, Any]:
    """Return the tables that transformers misses aloud, and then makes itself."""
    table = POSITIONS["sinusoidal_halves"].table
    assert table is not None
    sines = table(config.max_position_embeddings, config.d_model).astype(np.float32)
    return {f"{stack}.embed_positions.weight": sines.copy() for stack in ("encoder", "decoder")}


BART = {
    name: base.Family(
        model=Seq2Seq,
        prefix="model.",
        config=config,
        names=_bart_names,
        unused=("embed_tokens.weight", "embed_positions.weight", "lm_head.weight"),
        values=values,
        rewritten=sines_first,
        apart=("final_logits_bias", "lm_head.weight"),
        fixed=_pegasus_sines if name == "pegasus" else lambda _: {},
    )
    for name, config, values in (
        ("bart", _bart_config, partial(_bart_values, head="BartForConditionalGeneration")),
        (
            "marian",
            partial(_bart_config, positions="sinusoidal_halves", embedding_norm=False, apart=True),
            _marian_values,
        ),
        (
            "pegasus",
            partial(_bart_config, positions="sinusoidal_halves", embedding_norm=False, pre=True),
            partial(_bart_values, head="PegasusForConditionalGeneration"),
        ),
    )
}

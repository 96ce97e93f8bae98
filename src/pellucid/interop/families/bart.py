"""BART, and encoder-decoders like it: their settings and names, and ours."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from pellucid.interop.families.family import (
    Family,
    Foreign,
    Row,
    Table,
    Theirs,
    their_activation,
)
from pellucid.models import Seq2Seq
from pellucid.models.config import PositionScheme, Seq2SeqConfig


def _bart_config(
    theirs: Foreign,
    names: Collection[str],
    positions: PositionScheme = "learned",
    embedding_norm: bool = True,
    pre: bool = False,
) -> Seq2SeqConfig:
    for name in ("attention_heads", "ffn_dim"):
        theirs.only(f"decoder_{name}", theirs.whole(f"encoder_{name}"))
    for name in ("tie_word_embeddings", "share_encoder_decoder_embeddings"):
        theirs.only(name, True)
    vocabulary = theirs.whole("vocab_size")
    theirs.only("decoder_vocab_size", vocabulary)
    return Seq2SeqConfig(
        vocabulary,
        vocabulary,
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
        tie_embeddings="all",
        pad_token_id=theirs.whole("pad_token_id", 1),
        bos_token_id=theirs.first("decoder_start_token_id", 2),
        eos_token_id=theirs.first("eos_token_id", 2),
    )


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
        "activation_function": their_activation(config.activation_function),
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


def _bart_names(config: Seq2SeqConfig, theirs: Foreign, names: Collection[str]) -> Table:
    table: dict[str, Row] = {
        "source.tokens.weight": "shared.weight",
        "target.tokens.weight": "shared.weight",
        "output.weight": "shared.weight",
        "output.bias": Theirs(("final_logits_bias",), first=True),
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
            f"{ours}.positions.weight": Theirs((positions,), skip=2),  # BART begins at 2
            f"{ours}.norm.*": f"{his}.layernorm_embedding.*",
            f"{layer}.norm1.*": f"{layer}.self_attn_layer_norm.*",
            f"{layer}.linear1.*": f"{layer}.fc1.*",
            f"{layer}.linear2.*": f"{layer}.fc2.*",
            f"{his}.norm.*": f"{his}.layer_norm.*",
        }
    return table


BART = {
    name: Family(
        model=Seq2Seq,
        prefix="model.",
        config=config,
        names=_bart_names,
        unused=("embed_tokens.weight", "embed_positions.weight", "lm_head.weight"),
        specials=None,
        values=partial(_bart_values, head=head),
        apart=("final_logits_bias",),
    )
    for name, head, config in (
        ("bart", "BartForConditionalGeneration", _bart_config),
        (
            "marian",
            "MarianMTModel",
            partial(_bart_config, positions="sinusoidal_halves", embedding_norm=False),
        ),
        (
            "pegasus",
            "PegasusForConditionalGeneration",
            partial(_bart_config, positions="sinusoidal_halves", embedding_norm=False, pre=True),
        ),
    )
}

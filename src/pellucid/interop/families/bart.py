"""BART, and encoder-decoders like it: their settings and names, and ours."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from pellucid.interop.families.family import Family, Foreign, Theirs, stacked, weight_and_bias
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


def _bart_names(
    config: Seq2SeqConfig, theirs: Foreign, names_there: Collection[str]
) -> dict[str, Theirs]:
    shared = ("source.tokens.weight", "target.tokens.weight", "output.weight")
    names = dict.fromkeys(shared, Theirs(("shared.weight",)))
    names["output.bias"] = Theirs(("final_logits_bias",), first=True)
    for ours, his in (("source", "encoder"), ("target", "decoder")):
        table = f"{his}.embed_positions.weight"
        names[f"{ours}.positions.weight"] = Theirs((table,), skip=2)  # BART begins at 2
        names |= weight_and_bias(f"{ours}.norm", f"{his}.layernorm_embedding")
        names |= weight_and_bias(f"{his}.norm", f"{his}.layer_norm")
        for i in range(getattr(config, f"{his}_layers")):
            layer = f"{his}.layers.{i}"
            attentions = {"self_attn": "self_attn", "multihead_attn": "encoder_attn"}
            norms = ["self_attn", "encoder_attn", "final"][:: 1 if his == "decoder" else 2]
            for attention, other in list(attentions.items())[: len(norms) - 1]:
                parts = [f"{layer}.{other}.{part}_proj" for part in "qkv"]
                names |= stacked(f"{layer}.{attention}.in_proj_", parts)
                names |= weight_and_bias(
                    f"{layer}.{attention}.out_proj", f"{layer}.{other}.out_proj"
                )
            for k, norm in enumerate(norms, start=1):
                names |= weight_and_bias(f"{layer}.norm{k}", f"{layer}.{norm}_layer_norm")
            for k in (1, 2):
                names |= weight_and_bias(f"{layer}.linear{k}", f"{layer}.fc{k}")
    return names


BART = {
    name: Family(
        model=Seq2Seq,
        prefix="model.",
        config=config,
        names=_bart_names,
        unused=("embed_tokens.weight", "embed_positions.weight", "lm_head.weight"),
        specials=None,
    )
    for name, config in (
        ("bart", _bart_config),
        (
            "marian",
            partial(_bart_config, positions="sinusoidal_halves", embedding_norm=False),
        ),
        (
            "pegasus",
            partial(_bart_config, positions="sinusoidal_halves", embedding_norm=False, pre=True),
        ),
    )
}

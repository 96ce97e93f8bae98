"""BERT, and encoders that differ from it in names, head or first position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pellucid.interop.families.family import Family, Foreign, Row, Table, Theirs
from pellucid.models import MaskedLM
from pellucid.models.config import MaskedLMConfig

TABLE = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"


def _bert_config(theirs: Foreign, skipped: int = 0) -> MaskedLMConfig:
    theirs.only("position_embedding_type", "absolute")
    theirs.only("is_decoder", False)
    dropout = theirs.number("hidden_dropout_prob", 0.1)
    return MaskedLMConfig(
        vocab_size=theirs.whole("vocab_size"),
        d_model=theirs.whole("hidden_size"),
        num_attention_heads=theirs.whole("num_attention_heads"),
        num_hidden_layers=theirs.whole("num_hidden_layers"),
        ffn_dim=theirs.whole("intermediate_size"),
        max_position_embeddings=theirs.whole("max_position_embeddings", 512) - skipped,
        type_vocab_size=theirs.whole("type_vocab_size", 2),
        activation_function=theirs.activation("hidden_act", "gelu"),
        layer_norm_eps=theirs.number("layer_norm_eps", 1e-12),
        dropout=dropout,
        attention_dropout=theirs.number("attention_probs_dropout_prob", 0.1),
        activation_dropout=0.0,
        tie_word_embeddings=theirs.flag("tie_word_embeddings", True),
        output_bias=True,
        head="cls.predictions.bias" in theirs.arrays or "lm_head.bias" in theirs.arrays,
        pooler="pooler.dense.weight" in theirs.arrays,
        pad_token_id=theirs.whole("pad_token_id", 0),
        bos_token_id=theirs.first("bos_token_id", 0),
        eos_token_id=theirs.first("eos_token_id", 0),
    )


def _bert_names(theirs: Foreign, skipped: int = 0) -> dict[str, Row]:
    ours, his = "encoder.layers.#", "encoder.layer.#"
    parts = tuple(f"{his}.attention.self.{part}.*" for part in ("query", "key", "value"))
    return {
        "embed.positions.weight": Theirs((POSITIONS,), skip=skipped),
        "embed.segments.weight": "embeddings.token_type_embeddings.weight",
        f"{ours}.self_attn.in_proj_*": parts,
        f"{ours}.self_attn.out_proj.*": f"{his}.attention.output.dense.*",
        f"{ours}.linear1.*": f"{his}.intermediate.dense.*",
        f"{ours}.linear2.*": f"{his}.output.dense.*",
        f"{ours}.norm1.*": f"{his}.attention.output.LayerNorm.*",
        f"{ours}.norm2.*": f"{his}.output.LayerNorm.*",
        "pooler.*": "pooler.dense.*",
    }


def _first_position(theirs: Foreign) -> int:
    """RoBERTa counts positions from after the padding token's id."""
    return theirs.whole("pad_token_id", 1) + 1


def _roberta_config(theirs: Foreign) -> MaskedLMConfig:
    config = _bert_config(theirs, skipped=_first_position(theirs))
    return _with_gelu(config, theirs, "RoBERTa", "lm_head")


def _roberta_names(theirs: Foreign) -> dict[str, Row]:
    return _bert_names(theirs, _first_position(theirs))


def _electra_config(theirs: Foreign) -> MaskedLMConfig:
    theirs.only("embedding_size", theirs.whole("hidden_size"))
    head = "generator_predictions.dense.weight" in theirs.arrays
    config = replace(_bert_config(theirs), head=head)
    return _with_gelu(config, theirs, "ELECTRA", "generator_predictions")


def _with_gelu(config: MaskedLMConfig, theirs: Foreign, family: str, head: str) -> MaskedLMConfig:
    """Refuse a head whose activation, always GELU, is not the model's."""
    if config.head and config.activation_function != "gelu":
        raise theirs.fault(
            f"hidden_act = {theirs.values['hidden_act']!r}: {family}'s head has 'gelu' in every "
            f"file, and a model here has one activation; remove the arrays of {head} to read the "
            "model without its head"
        )
    return config


def _distilbert_config(theirs: Foreign) -> MaskedLMConfig:
    return MaskedLMConfig(
        vocab_size=theirs.whole("vocab_size"),
        d_model=theirs.whole("dim"),
        num_attention_heads=theirs.whole("n_heads"),
        num_hidden_layers=theirs.whole("n_layers"),
        ffn_dim=theirs.whole("hidden_dim"),
        max_position_embeddings=theirs.whole("max_position_embeddings", 512),
        activation_function=theirs.activation("activation", "gelu"),
        layer_norm_eps=1e-12,
        dropout=theirs.number("dropout", 0.1),
        attention_dropout=theirs.number("attention_dropout", 0.1),
        activation_dropout=0.0,
        tie_word_embeddings=theirs.flag("tie_word_embeddings", True),
        output_bias=True,
        head="vocab_projector.bias" in theirs.arrays,
        pad_token_id=theirs.maybe_whole("pad_token_id") or 0,
        bos_token_id=theirs.first("bos_token_id", 0),
        eos_token_id=theirs.first("eos_token_id", 0),
    )


def _distilbert_names(theirs: Foreign) -> dict[str, Row]:
    ours, his = "encoder.layers.#", "transformer.layer.#"
    return {
        "embed.positions.weight": POSITIONS,
        f"{ours}.self_attn.in_proj_*": tuple(f"{his}.attention.{part}_lin.*" for part in "qkv"),
        f"{ours}.self_attn.out_proj.*": f"{his}.attention.out_lin.*",
        f"{ours}.linear1.*": f"{his}.ffn.lin1.*",
        f"{ours}.linear2.*": f"{his}.ffn.lin2.*",
        f"{ours}.norm1.*": f"{his}.sa_layer_norm.*",
        f"{ours}.norm2.*": f"{his}.output_layer_norm.*",
    }


def _names(
    config: MaskedLMConfig,
    theirs: Foreign,
    stack: Callable[[Foreign], dict[str, Row]],
    head: tuple[str, str, str, str],
) -> Table:
    dense, norm, output, bias = head
    table, own = TABLE, f"{output}.bias"
    if not config.tie_word_embeddings:  # in newer files it has a bias of its own
        table, bias = f"{output}.weight", own if own in theirs.arrays else bias
    return {
        **stack(theirs),
        "embed.tokens.weight": TABLE,
        "embed.norm.*": "embeddings.LayerNorm.*",
        "head.dense.*": f"{dense}.*",
        "head.norm.*": f"{norm}.*",
        "output.weight": table,
        "output.bias": bias,
    }


_BRACKETS = (("[CLS]", "[SEP]", "[MASK]"),)
_ROWS = (
    (
        "bert", _bert_config, _bert_names,
        ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
         "cls.predictions.decoder", "cls.predictions.bias"), _BRACKETS,
        ("position_ids", "cls.seq_relationship", "cls.predictions.decoder"),
    ),
    (
        "roberta", _roberta_config, _roberta_names,
        ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
        (("<s>", "</s>", "<mask>"), *_BRACKETS), ("position_ids", "lm_head.decoder"),
    ),
    (
        "distilbert", _distilbert_config, _distilbert_names,
        ("vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"),
        _BRACKETS, ("vocab_projector.weight",),
    ),
    (
        "electra", _electra_config, _bert_names,
        ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head",
         "generator_lm_head.bias"), _BRACKETS,
        ("position_ids", "discriminator_predictions", "generator_lm_head.weight"),
    ),
)  # fmt: skip

BERT = {
    name: Family(
        model=MaskedLM,
        prefix=f"{name}.",
        config=config,
        names=partial(_names, stack=stack, head=head),
        specials=specials,
        unused=unused,
    )
    for name, config, stack, head, specials, unused in _ROWS
}

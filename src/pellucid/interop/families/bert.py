"""BERT, and encoders that differ from it in names, head or first position."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pellucid.interop.families.family import Family, Foreign, Theirs, stacked, weight_and_bias
from pellucid.models import MaskedLM
from pellucid.models.config import MaskedLMConfig


def _bert_config(theirs: Foreign, names: Collection[str], skipped: int = 0) -> MaskedLMConfig:
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
        head="cls.predictions.bias" in names or "lm_head.bias" in names,
        pooler="pooler.dense.weight" in names,
        pad_token_id=theirs.whole("pad_token_id", 0),
        bos_token_id=theirs.first("bos_token_id", 0),
        eos_token_id=theirs.first("eos_token_id", 0),
    )


def _encoder_names(config: MaskedLMConfig, skipped: int) -> dict[str, Theirs]:
    positions = "embeddings.position_embeddings.weight"
    names = {
        "embed.tokens.weight": Theirs(("embeddings.word_embeddings.weight",)),
        "embed.positions.weight": Theirs((positions,), skip=skipped),
        **weight_and_bias("embed.norm", "embeddings.LayerNorm"),
    }
    if config.type_vocab_size:
        names["embed.segments.weight"] = Theirs(("embeddings.token_type_embeddings.weight",))
    for i in range(config.num_hidden_layers):
        ours, his = f"encoder.layers.{i}", f"encoder.layer.{i}"
        parts = [f"{his}.attention.self.{part}" for part in ("query", "key", "value")]
        names |= {
            **stacked(f"{ours}.self_attn.in_proj_", parts),
            **weight_and_bias(f"{ours}.self_attn.out_proj", f"{his}.attention.output.dense"),
            **weight_and_bias(f"{ours}.linear1", f"{his}.intermediate.dense"),
            **weight_and_bias(f"{ours}.linear2", f"{his}.output.dense"),
            **weight_and_bias(f"{ours}.norm1", f"{his}.attention.output.LayerNorm"),
            **weight_and_bias(f"{ours}.norm2", f"{his}.output.LayerNorm"),
        }
    return names | weight_and_bias("pooler", "pooler.dense")


def _bert_names(
    config: MaskedLMConfig, theirs: Foreign, names_there: Collection[str]
) -> dict[str, Theirs]:
    return {
        **_encoder_names(config, 0),
        **weight_and_bias("head.dense", "cls.predictions.transform.dense"),
        **weight_and_bias("head.norm", "cls.predictions.transform.LayerNorm"),
        **_output(config, "cls.predictions", names_there),
    }


def _first_position(theirs: Foreign) -> int:
    """RoBERTa counts positions from after the padding token's id."""
    return theirs.whole("pad_token_id", 1) + 1


def _roberta_config(theirs: Foreign, names: Collection[str]) -> MaskedLMConfig:
    config = _bert_config(theirs, names, skipped=_first_position(theirs))
    if config.head and config.activation_function != "gelu":
        raise theirs.fault(
            f"hidden_act = {theirs.values['hidden_act']!r}: RoBERTa's head has 'gelu' in every "
            "file, and a model here has one activation; remove the arrays of lm_head to read the "
            "model without its head"
        )
    return config


def _roberta_names(
    config: MaskedLMConfig, theirs: Foreign, names_there: Collection[str]
) -> dict[str, Theirs]:
    return {
        **_encoder_names(config, _first_position(theirs)),
        **weight_and_bias("head.dense", "lm_head.dense"),
        **weight_and_bias("head.norm", "lm_head.layer_norm"),
        **_output(config, "lm_head", names_there),
    }


def _electra_config(theirs: Foreign, names: Collection[str]) -> MaskedLMConfig:
    theirs.only("embedding_size", theirs.whole("hidden_size"))
    head = "generator_predictions.dense.weight" in names
    config = replace(_bert_config(theirs, names), head=head)
    if head and config.activation_function != "gelu":
        raise theirs.fault(
            f"hidden_act = {theirs.values['hidden_act']!r}: ELECTRA's head has 'gelu', and a model "
            "here has one activation"
        )
    return config


def _electra_names(
    config: MaskedLMConfig, theirs: Foreign, names_there: Collection[str]
) -> dict[str, Theirs]:
    tied, table = config.tie_word_embeddings, "embeddings.word_embeddings.weight"
    return {
        **_encoder_names(config, 0),
        **weight_and_bias("head.dense", "generator_predictions.dense"),
        **weight_and_bias("head.norm", "generator_predictions.LayerNorm"),
        "output.weight": Theirs((table if tied else "generator_lm_head.weight",)),
        "output.bias": Theirs(("generator_lm_head.bias",)),
    }


def _distilbert_config(theirs: Foreign, names: Collection[str]) -> MaskedLMConfig:
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
        head="vocab_projector.bias" in names,
        pad_token_id=theirs.maybe_whole("pad_token_id") or 0,
        bos_token_id=theirs.first("bos_token_id", 0),
        eos_token_id=theirs.first("eos_token_id", 0),
    )


def _distilbert_names(
    config: MaskedLMConfig, theirs: Foreign, names_there: Collection[str]
) -> dict[str, Theirs]:
    tied, table = config.tie_word_embeddings, "embeddings.word_embeddings.weight"
    names = {
        "embed.tokens.weight": Theirs((table,)),
        "embed.positions.weight": Theirs(("embeddings.position_embeddings.weight",)),
        **weight_and_bias("embed.norm", "embeddings.LayerNorm"),
        **weight_and_bias("head.dense", "vocab_transform"),
        **weight_and_bias("head.norm", "vocab_layer_norm"),
        "output.weight": Theirs((table if tied else "vocab_projector.weight",)),
        "output.bias": Theirs(("vocab_projector.bias",)),
    }
    for i in range(config.num_hidden_layers):
        ours, his = f"encoder.layers.{i}", f"transformer.layer.{i}"
        names |= {
            **stacked(
                f"{ours}.self_attn.in_proj_", [f"{his}.attention.{part}_lin" for part in "qkv"]
            ),
            **weight_and_bias(f"{ours}.self_attn.out_proj", f"{his}.attention.out_lin"),
            **weight_and_bias(f"{ours}.linear1", f"{his}.ffn.lin1"),
            **weight_and_bias(f"{ours}.linear2", f"{his}.ffn.lin2"),
            **weight_and_bias(f"{ours}.norm1", f"{his}.sa_layer_norm"),
            **weight_and_bias(f"{ours}.norm2", f"{his}.output_layer_norm"),
        }
    return names


def _output(config: MaskedLMConfig, head: str, names_there: Collection[str]) -> dict[str, Theirs]:
    """The output layer; one that is not tied has a bias of its own in newer files."""
    table, bias = "embeddings.word_embeddings.weight", f"{head}.bias"
    if not config.tie_word_embeddings:
        table = f"{head}.decoder.weight"
        bias = f"{head}.decoder.bias" if f"{head}.decoder.bias" in names_there else bias
    return {"output.weight": Theirs((table,)), "output.bias": Theirs((bias,))}


BERT = {
    "bert": Family(
        model=MaskedLM,
        prefix="bert.",
        config=_bert_config,
        names=_bert_names,
        unused=("position_ids", "cls.seq_relationship", "cls.predictions.decoder"),
        specials=("[CLS]", "[SEP]", "[MASK]"),
    ),
    "roberta": Family(
        model=MaskedLM,
        prefix="roberta.",
        config=_roberta_config,
        names=_roberta_names,
        unused=("position_ids", "lm_head.decoder"),
        specials=("<s>", "</s>", "<mask>"),
    ),
    "distilbert": Family(
        model=MaskedLM,
        prefix="distilbert.",
        config=_distilbert_config,
        names=_distilbert_names,
        unused=("vocab_projector.weight",),
        specials=("[CLS]", "[SEP]", "[MASK]"),
    ),
    "electra": Family(
        model=MaskedLM,
        prefix="electra.",
        config=_electra_config,
        names=_electra_names,
        unused=("position_ids", "discriminator_predictions", "generator_lm_head.weight"),
        specials=("[CLS]", "[SEP]", "[MASK]"),
    ),
}

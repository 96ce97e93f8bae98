"""T5, its version 1.1 and Flan: their settings and names, and ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pellucid.interop.families import family as base
from pellucid.models import Seq2Seq
from pellucid.models.config import Seq2SeqConfig
from pellucid.nn.blocks import gates_of


def _t5_config(theirs: base.Foreign) -> Seq2SeqConfig:
    vocabulary, layers = theirs.whole("vocab_size"), theirs.whole("num_layers")
    given = theirs.text("feed_forward_proj", "relu").removeprefix("gated-")
    gated = theirs.text("feed_forward_proj", "relu").startswith("gated-")
    act = base.Foreign(
        {"dense_act_fn": "gelu_new" if gated and given == "gelu" else given}, theirs.path
    )
    choose = act.gated if gated else act.activation
    return Seq2SeqConfig(
        vocabulary,
        vocabulary,
        d_model=theirs.whole("d_model"),
        num_attention_heads=theirs.whole("num_heads"),
        head_dim=theirs.whole("d_kv"),
        ffn_dim=theirs.whole("d_ff"),
        encoder_layers=layers,
        decoder_layers=theirs.whole("num_decoder_layers", layers),
        activation_function=choose("dense_act_fn", "relu"),
        norm="pre",
        norm_type="rms_norm",
        layer_norm_eps=theirs.number("layer_norm_epsilon", 1e-6),
        linear_bias=False,
        output_bias=False,
        positions="relative",
        relative_attention_num_buckets=theirs.whole("relative_attention_num_buckets", 32),
        relative_attention_max_distance=theirs.whole("relative_attention_max_distance", 128),
        max_position_embeddings=theirs.whole("n_positions", 512),
        attention_scale="none",
        embedding_scale=1.0,
        dropout=theirs.number("dropout_rate", 0.1),
        tie_embeddings="all",
        pad_token_id=theirs.whole("pad_token_id", 0),
        bos_token_id=theirs.first("decoder_start_token_id", 0),
        eos_token_id=theirs.first("eos_token_id", 1),
    )


def _t5_values(config: Seq2SeqConfig) -> dict[str, Any]:
    plain = {gated: name for name, gated in base.GATED.items()}.get(config.activation_function)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": config.source_vocab_size,
        "d_model": config.d_model,
        "d_kv": config.head_width,
        "d_ff": config.ffn_dim,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.decoder_layers,
        "num_heads": config.num_attention_heads,
        "relative_attention_num_buckets": config.relative_attention_num_buckets,
        "relative_attention_max_distance": config.relative_attention_max_distance,
        "n_positions": config.max_position_embeddings,
        "feed_forward_proj": f"gated-{base.their_activation(plain)}"
        if plain
        else base.their_activation(config.activation_function),
        "layer_norm_epsilon": config.layer_norm_eps,
        "dropout_rate": config.dropout,
        "pad_token_id": config.pad_token_id,
        "decoder_start_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "tie_word_embeddings": True,
    }


def _scales_inside(
    config: Seq2SeqConfig, state: dict[str, Any]
) -> tuple[Seq2SeqConfig, dict[str, Any]]:
    """Return a model that computes the same, its scales of scores and tokens in its weights.

    The output layer shares the table of the tokens; the norm before it takes the scale back.
    """
    queries, factor = config.num_attention_heads * config.head_width, config.token_factor
    config = replace(config, head_dim=config.head_width)
    if config.attention_scale != "learned":
        for name in state:
            if ".in_proj_" in name:
                state[name] = state[name].copy()
                state[name][:queries] *= config.score_factor
        config = replace(config, attention_scale="none")
    if config.tie_embeddings == "all" and config.final_norm:
        for name in ("source.tokens.weight", "target.tokens.weight", "output.weight"):
            state[name] = state[name] * factor
        state["decoder.norm.weight"] = state["decoder.norm.weight"] / factor
        config = replace(config, embedding_scale=1.0)
    return config, state


def _t5_scales(theirs: base.Foreign) -> bool:
    """Whether rows are divided by √E before the output layer; older files say it by the tying."""
    return theirs.flag("scale_decoder_outputs", theirs.flag("tie_word_embeddings", True))


def _t5_names(config: Seq2SeqConfig, theirs: base.Foreign) -> base.Table:
    table: dict[str, base.Row] = {
        "source.tokens.weight": "shared.weight",
        "target.tokens.weight": "shared.weight",
        "output.weight": "shared.weight" if config.ties_output else "lm_head.weight",
    }
    gates = ("wi",) if gates_of(config.activation_function) == 1 else ("wi_0", "wi_1")
    for stack, attentions in (
        ("encoder", {"self_attn": "SelfAttention"}),
        ("decoder", {"self_attn": "SelfAttention", "multihead_attn": "EncDecAttention"}),
    ):
        ours, his = f"{stack}.layers.#", f"{stack}.block.#.layer"
        for k, (mine, other) in enumerate(attentions.items()):
            parts = tuple(f"{his}.{k}.{other}.{part}.weight" for part in "qkv")
            table[f"{ours}.{mine}.in_proj_weight"] = parts
            table[f"{ours}.{mine}.out_proj.weight"] = f"{his}.{k}.{other}.o.weight"
        for k in range(len(attentions) + 1):
            table[f"{ours}.norm{k + 1}.weight"] = f"{his}.{k}.layer_norm.weight"
        first, dense = f"{stack}.block.0.layer.0.", f"{his}.{len(attentions)}.DenseReluDense"
        # The division before the output layer is put into the norm before it.
        scale = config.d_model**-0.5 if stack == "decoder" and _t5_scales(theirs) else 1.0
        table |= {
            f"{ours}.self_attn.relative_bias": first
            + "SelfAttention.relative_attention_bias.weight",
            f"{ours}.linear1.weight": tuple(f"{dense}.{w}.weight" for w in gates),
            f"{ours}.linear2.weight": f"{dense}.wo.weight",
            f"{stack}.norm.weight": base.Theirs((f"{stack}.final_layer_norm.weight",), times=scale),
        }
    return table


T5 = {
    "t5": base.Family(
        model=Seq2Seq,
        prefix="",
        config=_t5_config,
        names=_t5_names,
        unused=("embed_tokens.weight", "lm_head.weight"),
        values=_t5_values,
        rewritten=_scales_inside,
    )
}

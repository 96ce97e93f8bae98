"""GPT-2: its settings and names, and ours."""

from __future__ import annotations

from typing import Any

from pellucid.interop.families.family import Family, Foreign, Table, Theirs, their_activation
from pellucid.models import CausalLM
from pellucid.models.config import CausalLMConfig


def _gpt2_config(theirs: Foreign) -> CausalLMConfig:
    theirs.only("scale_attn_by_inverse_layer_idx", False)
    theirs.only("add_cross_attention", False)
    theirs.only("is_causal", True)
    e = theirs.whole("n_embd")
    return CausalLMConfig(
        vocab_size=theirs.whole("vocab_size"),
        d_model=e,
        num_attention_heads=theirs.whole("n_head"),
        num_hidden_layers=theirs.whole("n_layer"),
        ffn_dim=theirs.whole("n_inner", 4 * e),
        max_position_embeddings=theirs.whole("n_positions", theirs.whole("n_ctx", 1024)),
        activation_function=theirs.activation("activation_function", "gelu_new"),
        layer_norm_eps=theirs.number("layer_norm_epsilon", 1e-5),
        dropout=theirs.number("resid_pdrop", 0.1),
        embedding_dropout=theirs.number("embd_pdrop", 0.1),
        attention_dropout=theirs.number("attn_pdrop", 0.1),
        activation_dropout=0.0,
        attention_scale="sqrt_d_k" if theirs.flag("scale_attn_weights", True) else "none",
        tie_word_embeddings=theirs.flag("tie_word_embeddings", True),
        bos_token_id=theirs.first("bos_token_id", 0),
        eos_token_id=theirs.first("eos_token_id", 0),
        pad_token_id=theirs.whole("pad_token_id", 0),
    )


def _gpt2_values(config: CausalLMConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_head": config.num_attention_heads,
        "n_layer": config.num_hidden_layers,
        "n_inner": config.ffn_dim,
        "n_positions": config.max_position_embeddings,
        "activation_function": their_activation(config.activation_function),
        "layer_norm_epsilon": config.layer_norm_eps,
        "resid_pdrop": config.dropout,
        "scale_attn_weights": config.attention_scale == "sqrt_d_k",
        "tie_word_embeddings": config.tie_word_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
    }


def _gpt2_names(config: CausalLMConfig, theirs: Foreign) -> Table:
    ours, his = "decoder.layers.#", "h.#"
    return {
        "embed.tokens.weight": "wte.weight",
        "embed.positions.weight": "wpe.weight",
        f"{ours}.self_attn.in_proj_*": Theirs((f"{his}.attn.c_attn.*",), transposed=True),
        f"{ours}.self_attn.out_proj.*": Theirs((f"{his}.attn.c_proj.*",), transposed=True),
        f"{ours}.linear1.*": Theirs((f"{his}.mlp.c_fc.*",), transposed=True),
        f"{ours}.linear2.*": Theirs((f"{his}.mlp.c_proj.*",), transposed=True),
        f"{ours}.norm1.*": f"{his}.ln_1.*",
        f"{ours}.norm2.*": f"{his}.ln_2.*",
        "decoder.norm.*": "ln_f.*",
        "output.weight": "wte.weight" if config.tie_word_embeddings else "lm_head.weight",
    }


GPT2 = {
    "gpt2": Family(
        model=CausalLM,
        prefix="transformer.",
        config=_gpt2_config,
        names=_gpt2_names,
        unused=(".attn.bias", ".attn.masked_bias", "lm_head.weight"),
        values=_gpt2_values,
        apart=("lm_head.weight",),
    )
}

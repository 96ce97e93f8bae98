"""Llama, and what is built like it: their settings and names, and ours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pellucid.interop.families.family import Family, Foreign, Table, Theirs
from pellucid.models import CausalLM
from pellucid.models.config import CausalLMConfig


def _llama_config(theirs: Foreign) -> CausalLMConfig:
    theirs.only("is_causal", True)
    theirs.only("use_bidirectional_attention", False)
    heads = theirs.whole("num_attention_heads")
    bias = theirs.flag("attention_bias", False)
    if theirs.flag("mlp_bias", False) != bias:
        raise theirs.fault("attention_bias and mlp_bias differ; a model here has one setting")
    return CausalLMConfig(
        vocab_size=theirs.whole("vocab_size"),
        d_model=theirs.whole("hidden_size"),
        num_attention_heads=heads,
        num_key_value_heads=theirs.whole("num_key_value_heads", heads),
        head_dim=theirs.maybe_whole("head_dim"),
        num_hidden_layers=theirs.whole("num_hidden_layers"),
        ffn_dim=theirs.whole("intermediate_size"),
        max_position_embeddings=theirs.whole("max_position_embeddings", 2048),
        activation_function=theirs.gated("hidden_act", "silu"),
        norm_type="rms_norm",
        layer_norm_eps=theirs.number("rms_norm_eps", 1e-6),
        linear_bias=bias,
        positions="rotary",
        dropout=0.0,
        attention_dropout=theirs.number("attention_dropout", 0.0),
        tie_word_embeddings=theirs.flag("tie_word_embeddings", False),
        bos_token_id=theirs.first("bos_token_id", 1),
        eos_token_id=theirs.first("eos_token_id", 2),
        pad_token_id=theirs.maybe_whole("pad_token_id") or 0,
        **_rotation(theirs),
    )


def _rotation(theirs: Foreign) -> dict[str, Any]:
    """Return the settings of rotary positions, from older files and newer ones."""
    theirs.only("partial_rotary_factor", 1.0)
    values = {"rope_theta": theirs.values.get("rope_theta", 10000.0)}
    for name in ("rope_scaling", "rope_parameters"):
        given = theirs.values.get(name)
        values |= given if isinstance(given, dict) else {}
    rope = Foreign(values, theirs.path)
    rope.only("partial_rotary_factor", 1.0)
    kind = rope.text("rope_type", rope.text("type", "default"))
    settings: dict[str, Any] = {"rope_theta": rope.number("rope_theta", 10000.0)}
    if kind in ("linear", "llama3"):
        settings["rope_factor"] = rope.number("factor", 1.0)
    if kind == "llama3":
        settings |= {
            "rope_low_freq_factor": rope.number("low_freq_factor", 1.0),
            "rope_high_freq_factor": rope.number("high_freq_factor", 4.0),
            "rope_original_positions": rope.whole("original_max_position_embeddings"),
        }
    if kind not in ("default", "linear", "llama3"):
        raise rope.fault(f"rope_type = {kind!r}; expected default, linear or llama3")
    return settings


def _mistral_config(theirs: Foreign) -> CausalLMConfig:
    window = theirs.maybe_whole("sliding_window")
    return replace(_llama_config(theirs), sliding_window=window)


def _qwen_config(theirs: Foreign) -> CausalLMConfig:
    config, window = _llama_config(theirs), None
    if theirs.flag("use_sliding_window", False):
        layers = config.num_hidden_layers
        full = min(theirs.whole("max_window_layers", 28), layers)
        kinds = theirs.values.get("layer_types") or [
            "full_attention" if i < full else "sliding_attention" for i in range(layers)
        ]
        if set(kinds) == {"full_attention"}:
            return config
        if set(kinds) != {"sliding_attention"}:
            raise theirs.fault("only some layers have a sliding window; here all have it or none")
        window = theirs.maybe_whole("sliding_window")
    return replace(config, sliding_window=window)


def _gemma_config(theirs: Foreign) -> CausalLMConfig:
    values = {"head_dim": 256, "tie_word_embeddings": True, **theirs.values}
    tanh = "gelu_pytorch_tanh"
    given = [theirs.values.get(name) or tanh for name in ("hidden_act", "hidden_activation")]
    # The first files say "gelu" and mean the tanh form.
    act, other = (tanh if name == "gelu" else name for name in given)
    if theirs.values.get("hidden_activation") and other != act:
        raise theirs.fault(
            f"hidden_activation = {given[1]!r} and hidden_act = {given[0]!r}, which transformers "
            "reads, name two functions; remove the wrong one or make them equal"
        )
    values["hidden_act"] = act
    return replace(_llama_config(Foreign(values, theirs.path)), embedding_scale="sqrt_d_model")


def _llama_names(config: CausalLMConfig, theirs: Foreign, plus: float = 0.0) -> Table:
    ours, his, table = "decoder.layers.#", "layers.#", "embed_tokens.weight"
    return {
        "embed.tokens.weight": table,
        f"{ours}.self_attn.in_proj_*": tuple(f"{his}.self_attn.{x}_proj.*" for x in "qkv"),
        f"{ours}.self_attn.q_norm.weight": f"{his}.self_attn.q_norm.weight",
        f"{ours}.self_attn.k_norm.weight": f"{his}.self_attn.k_norm.weight",
        f"{ours}.self_attn.out_proj.*": f"{his}.self_attn.o_proj.*",
        f"{ours}.linear1.*": (f"{his}.mlp.gate_proj.*", f"{his}.mlp.up_proj.*"),
        f"{ours}.linear2.*": f"{his}.mlp.down_proj.*",
        f"{ours}.norm1.weight": Theirs((f"{his}.input_layernorm.weight",), plus=plus),
        f"{ours}.norm2.weight": Theirs((f"{his}.post_attention_layernorm.weight",), plus=plus),
        "decoder.norm.weight": Theirs(("norm.weight",), plus=plus),
        "output.weight": table if config.tie_word_embeddings else "lm_head.weight",
    }


LLAMA = {
    name: Family(
        model=CausalLM,
        prefix="model.",
        config=config,
        names=_llama_names if name != "gemma" else partial(_llama_names, plus=1.0),
        unused=("rotary_emb.inv_freq", "lm_head.weight"),
    )
    for name, config in (
        ("llama", _llama_config),
        ("mistral", _mistral_config),
        ("qwen2", lambda theirs: replace(_qwen_config(theirs), linear_bias=False, qkv_bias=True)),
        ("qwen3", lambda theirs: replace(_qwen_config(theirs), qk_norm=True)),
        ("gemma", _gemma_config),
    )
}

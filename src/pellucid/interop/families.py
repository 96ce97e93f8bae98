"""Hugging Face's decoders and encoders: their settings and names, and ours.

A family is a record: its config.json to our settings, and our tensors' names to theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from pellucid.core.errors import UserError
from pellucid.models import CausalLM, MaskedLM, Seq2Seq
from pellucid.models.config import (
    Activation,
    CausalLMConfig,
    MaskedLMConfig,
    PositionScheme,
    Seq2SeqConfig,
    StackConfig,
)
from pellucid.models.describe import UnsupportedError, describe, tensors
from pellucid.nn.blocks import gates_of
from pellucid.ops.activations import ACTIVATIONS as OURS

ACTIVATIONS: dict[str, str] = {
    theirs: row.name for row in OURS.values() for theirs in row.huggingface
}
"""Our names of Hugging Face's activations."""


class Theirs(NamedTuple):
    """Their arrays that make one of our tensors, stacked."""

    names: tuple[str, ...]
    transposed: bool = False
    """GPT-2 keeps its matrices as (in, out), torch's Linear as (out, in)."""
    skip: int = 0
    """Rows left out at the start."""
    first: bool = False
    """Only the first row, of a bias kept as (1, V)."""
    times: float = 1.0
    """Every number is multiplied by it."""
    plus: float = 0.0
    """Added to every number: Gemma keeps a norm's weight less one."""


class Family(NamedTuple):
    """How to read one kind of checkpoint."""

    model: Callable[..., CausalLM | MaskedLM | Seq2Seq]
    """Builds our model from a config."""
    prefix: str
    """How names begin in files of a model with a head; a bare model's have no prefix."""
    config: Callable[[Foreign, Collection[str]], StackConfig]
    """From (config.json, the names in the weights) to our settings."""
    names: Callable[[Any, Foreign, Collection[str]], dict[str, Theirs]]
    """From (our settings, config.json, the names in the weights) to their arrays of every tensor of
    ours."""
    unused: tuple[str, ...]
    """Parts of names of arrays that are no parameters, or that are not read."""
    specials: tuple[str, str, str] | None
    """The texts of the begin, end and mask tokens, where config.json does not give them."""

    def sources(
        self, config: StackConfig, theirs: Foreign, names: Collection[str]
    ) -> dict[str, Theirs]:
        """Return their arrays of every tensor of the model that a config describes.

        Raises `UnsupportedError` for a tensor that the family has no name for.
        """
        found = self.names(config, theirs, names)
        ours = [tensor.name for tensor in tensors(describe(config))]
        if missing := [name for name in ours if name not in found]:
            raise UnsupportedError(f"{theirs.path}: this family has no {', '.join(missing)}")
        return found


class Foreign:
    """A config.json whose values are checked as they are read."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self.values, self.path = values, path

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number. Raises `UserError` when it is absent (without default)."""
        return cast(int, self._get(name, (int,), default))

    def number(self, name: str, default: float) -> float:
        """Return a number."""
        return float(self._get(name, (int, float), default))

    def maybe_whole(self, name: str) -> int | None:
        """Return a whole number, or None where there is none."""
        return None if self.values.get(name) is None else self.whole(name)

    def text(self, name: str, default: str) -> str:
        """Return a text."""
        return cast(str, self._get(name, (str,), default))

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        return cast(bool, self._get(name, (bool,), default))

    def first(self, name: str, default: int) -> int:
        """Return a whole number, or the first of a list of them."""
        value = self.values.get(name)
        if isinstance(value, list) and value and type(value[0]) is int:
            return value[0]
        return self.whole(name, default)

    def activation(self, name: str, default: str) -> Activation:
        """Return our name of an activation. Raises `UserError` when there is none."""
        theirs = self.text(name, default)
        if theirs not in ACTIVATIONS:
            raise self.fault(f"{name} = {theirs!r}; expected one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[theirs]

    def gated(self, name: str, default: str) -> Activation:
        """Return our name of the gated form of an activation."""
        known = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}
        plain = self.activation(name, default)
        if plain not in known:
            raise self.fault(f"{name} = {plain!r} has no gated form here: {', '.join(known)} have")
        return known[plain]

    def only(self, name: str, allowed: Any) -> None:
        """Raise `UserError` when a setting has a value that no model here has."""
        value = self.values.get(name)
        if value is not None and value != allowed:
            raise self.fault(f"{name} = {value!r} is not supported, only {allowed!r}")

    def fault(self, text: str) -> UserError:
        """Return an error that names the file."""
        return UserError(f"{self.path}: {text}")

    def _get(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise self.fault(f"{name} is missing")
        if type(value) not in kinds:
            raise self.fault(f"{name} = {value!r}; expected {kinds[-1].__name__}")
        return value


# GPT-2 --------------------------------------------------------------------------------------------


def _gpt2_config(theirs: Foreign, names: Collection[str]) -> CausalLMConfig:
    theirs.only("scale_attn_by_inverse_layer_idx", False)
    theirs.only("add_cross_attention", False)
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


def _gpt2_names(
    config: CausalLMConfig, theirs: Foreign, names_there: Collection[str]
) -> dict[str, Theirs]:
    tied = config.tie_word_embeddings
    names = {
        "embed.tokens.weight": Theirs(("wte.weight",)),
        "embed.positions.weight": Theirs(("wpe.weight",)),
        "output.weight": Theirs(("wte.weight" if tied else "lm_head.weight",)),
        **_both("decoder.norm", "ln_f"),
    }
    for i in range(config.num_hidden_layers):
        ours, his = f"decoder.layers.{i}", f"h.{i}"
        names |= {
            f"{ours}.self_attn.in_proj_weight": Theirs((f"{his}.attn.c_attn.weight",), True),
            f"{ours}.self_attn.in_proj_bias": Theirs((f"{his}.attn.c_attn.bias",)),
            **_both(f"{ours}.self_attn.out_proj", f"{his}.attn.c_proj", True),
            **_both(f"{ours}.linear1", f"{his}.mlp.c_fc", True),
            **_both(f"{ours}.linear2", f"{his}.mlp.c_proj", True),
            **_both(f"{ours}.norm1", f"{his}.ln_1"),
            **_both(f"{ours}.norm2", f"{his}.ln_2"),
        }
    return names


# Llama, and what is built like it -----------------------------------------------------------------


def _llama_config(theirs: Foreign, names: Collection[str]) -> CausalLMConfig:
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


def _mistral_config(theirs: Foreign, names: Collection[str]) -> CausalLMConfig:
    window = theirs.maybe_whole("sliding_window")
    return replace(_llama_config(theirs, names), sliding_window=window)


def _qwen_config(theirs: Foreign, names: Collection[str]) -> CausalLMConfig:
    config, window = _llama_config(theirs, names), None
    if theirs.flag("use_sliding_window", False):
        kinds = theirs.values.get("layer_types") or ["sliding_attention"]
        if set(kinds) != {"sliding_attention"}:
            raise theirs.fault("only some layers have a sliding window; here all have it or none")
        window = theirs.maybe_whole("sliding_window")
    return replace(config, sliding_window=window)


def _qwen2_config(theirs: Foreign, names: Collection[str]) -> CausalLMConfig:
    return replace(_qwen_config(theirs, names), linear_bias=False, qkv_bias=True)


def _qwen3_config(theirs: Foreign, names: Collection[str]) -> CausalLMConfig:
    return replace(_qwen_config(theirs, names), qk_norm=True)


def _gemma_config(theirs: Foreign, names: Collection[str]) -> CausalLMConfig:
    values = {"head_dim": 256, "tie_word_embeddings": True, **theirs.values}
    values["hidden_act"] = (
        theirs.values.get("hidden_activation")
        or theirs.values.get("hidden_act")
        or "gelu_pytorch_tanh"
    )
    return replace(
        _llama_config(Foreign(values, theirs.path), names), embedding_scale="sqrt_d_model"
    )


def _llama_names(
    config: CausalLMConfig, theirs: Foreign, names_there: Collection[str], plus: float = 0.0
) -> dict[str, Theirs]:
    names = {
        "embed.tokens.weight": Theirs(("embed_tokens.weight",)),
        "decoder.norm.weight": Theirs(("norm.weight",), plus=plus),
        "output.weight": Theirs(
            ("embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight",)
        ),
    }
    for i in range(config.num_hidden_layers):
        ours, his = f"decoder.layers.{i}", f"layers.{i}"
        for kind in ("weight", "bias"):
            stacked = {
                "self_attn.in_proj_": [f"self_attn.{part}_proj" for part in "qkv"],
                "self_attn.out_proj.": ["self_attn.o_proj"],
                "linear1.": ["mlp.gate_proj", "mlp.up_proj"],
                "linear2.": ["mlp.down_proj"],
            }
            for mine, parts in stacked.items():
                sources = tuple(f"{his}.{part}.{kind}" for part in parts)
                names[f"{ours}.{mine}{kind}"] = Theirs(sources)
        for mine, other in (("norm1", "input_layernorm"), ("norm2", "post_attention_layernorm")):
            names[f"{ours}.{mine}.weight"] = Theirs((f"{his}.{other}.weight",), plus=plus)
        for each in ("self_attn.q_norm.weight", "self_attn.k_norm.weight"):
            names[f"{ours}.{each}"] = Theirs((f"{his}.{each}",))
    own = {tensor.name for tensor in tensors(describe(config))}
    return {name: source for name, source in names.items() if name in own}


# BERT, and RoBERTa, which differs in its head and in where positions begin ------------------------


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
        **_both("embed.norm", "embeddings.LayerNorm"),
    }
    if config.type_vocab_size:
        names["embed.segments.weight"] = Theirs(("embeddings.token_type_embeddings.weight",))
    for i in range(config.num_hidden_layers):
        ours, his = f"encoder.layers.{i}", f"encoder.layer.{i}"
        for kind in ("weight", "bias"):
            parts = (f"{his}.attention.self.{part}.{kind}" for part in ("query", "key", "value"))
            names[f"{ours}.self_attn.in_proj_{kind}"] = Theirs(tuple(parts))
        names |= {
            **_both(f"{ours}.self_attn.out_proj", f"{his}.attention.output.dense"),
            **_both(f"{ours}.linear1", f"{his}.intermediate.dense"),
            **_both(f"{ours}.linear2", f"{his}.output.dense"),
            **_both(f"{ours}.norm1", f"{his}.attention.output.LayerNorm"),
            **_both(f"{ours}.norm2", f"{his}.output.LayerNorm"),
        }
    if config.pooler:
        names |= _both("pooler", "pooler.dense")
    return names


def _bert_names(
    config: MaskedLMConfig, theirs: Foreign, names_there: Collection[str]
) -> dict[str, Theirs]:
    names = _encoder_names(config, 0)
    if config.head:
        names |= {
            **_both("head.dense", "cls.predictions.transform.dense"),
            **_both("head.norm", "cls.predictions.transform.LayerNorm"),
            **_output(config, "cls.predictions", names_there),
        }
    return names


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
    names = _encoder_names(config, _first_position(theirs))
    if config.head:
        names |= {
            **_both("head.dense", "lm_head.dense"),
            **_both("head.norm", "lm_head.layer_norm"),
            **_output(config, "lm_head", names_there),
        }
    return names


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
    names = _encoder_names(config, 0)
    if config.head:
        tied, table = config.tie_word_embeddings, "embeddings.word_embeddings.weight"
        names |= {
            **_both("head.dense", "generator_predictions.dense"),
            **_both("head.norm", "generator_predictions.LayerNorm"),
            "output.weight": Theirs((table if tied else "generator_lm_head.weight",)),
            "output.bias": Theirs(("generator_lm_head.bias",)),
        }
    return names


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
    table = "embeddings.word_embeddings.weight"
    names = {
        "embed.tokens.weight": Theirs((table,)),
        "embed.positions.weight": Theirs(("embeddings.position_embeddings.weight",)),
        **_both("embed.norm", "embeddings.LayerNorm"),
    }
    for i in range(config.num_hidden_layers):
        ours, his = f"encoder.layers.{i}", f"transformer.layer.{i}"
        for kind in ("weight", "bias"):
            parts = (f"{his}.attention.{part}_lin.{kind}" for part in "qkv")
            names[f"{ours}.self_attn.in_proj_{kind}"] = Theirs(tuple(parts))
        names |= {
            **_both(f"{ours}.self_attn.out_proj", f"{his}.attention.out_lin"),
            **_both(f"{ours}.linear1", f"{his}.ffn.lin1"),
            **_both(f"{ours}.linear2", f"{his}.ffn.lin2"),
            **_both(f"{ours}.norm1", f"{his}.sa_layer_norm"),
            **_both(f"{ours}.norm2", f"{his}.output_layer_norm"),
        }
    if config.head:
        tied = config.tie_word_embeddings
        names |= {
            **_both("head.dense", "vocab_transform"),
            **_both("head.norm", "vocab_layer_norm"),
            "output.weight": Theirs((table if tied else "vocab_projector.weight",)),
            "output.bias": Theirs(("vocab_projector.bias",)),
        }
    return names


def _output(config: MaskedLMConfig, head: str, names_there: Collection[str]) -> dict[str, Theirs]:
    """The output layer; one that is not tied has a bias of its own in newer files."""
    table, bias = "embeddings.word_embeddings.weight", f"{head}.bias"
    if not config.tie_word_embeddings:
        table = f"{head}.decoder.weight"
        bias = f"{head}.decoder.bias" if f"{head}.decoder.bias" in names_there else bias
    return {"output.weight": Theirs((table,)), "output.bias": Theirs((bias,))}


# BART, and encoder-decoders like it ---------------------------------------------------------------


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
        names |= _both(f"{ours}.norm", f"{his}.layernorm_embedding")
        names |= _both(f"{his}.norm", f"{his}.layer_norm")
        for i in range(getattr(config, f"{his}_layers")):
            layer = f"{his}.layers.{i}"
            attentions = {"self_attn": "self_attn", "multihead_attn": "encoder_attn"}
            norms = ["self_attn", "encoder_attn", "final"][:: 1 if his == "decoder" else 2]
            for attention, other in list(attentions.items())[: len(norms) - 1]:
                for kind in ("weight", "bias"):
                    parts = (f"{layer}.{other}.{part}_proj.{kind}" for part in "qkv")
                    names[f"{layer}.{attention}.in_proj_{kind}"] = Theirs(tuple(parts))
                names |= _both(f"{layer}.{attention}.out_proj", f"{layer}.{other}.out_proj")
            for k, norm in enumerate(norms, start=1):
                names |= _both(f"{layer}.norm{k}", f"{layer}.{norm}_layer_norm")
            for k in (1, 2):
                names |= _both(f"{layer}.linear{k}", f"{layer}.fc{k}")
    own = {tensor.name for tensor in tensors(describe(config))}
    return {name: source for name, source in names.items() if name in own}


# T5 -----------------------------------------------------------------------------------------------


def _t5_config(theirs: Foreign, names: Collection[str]) -> Seq2SeqConfig:
    vocabulary, layers = theirs.whole("vocab_size"), theirs.whole("num_layers")
    given = theirs.text("feed_forward_proj", "relu").removeprefix("gated-")
    gated = theirs.text("feed_forward_proj", "relu").startswith("gated-")
    act = Foreign({"dense_act_fn": "gelu_new" if gated and given == "gelu" else given}, theirs.path)
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
        tie_embeddings="none" if not _t5_scales(theirs) and "lm_head.weight" in names else "all",
        pad_token_id=theirs.whole("pad_token_id", 0),
        bos_token_id=theirs.first("decoder_start_token_id", 0),
        eos_token_id=theirs.first("eos_token_id", 1),
    )


def _t5_scales(theirs: Foreign) -> bool:
    """Whether rows are divided by √E before the output layer; older files say it by the tying."""
    return theirs.flag("scale_decoder_outputs", theirs.flag("tie_word_embeddings", True))


def _t5_names(
    config: Seq2SeqConfig, theirs: Foreign, names_there: Collection[str]
) -> dict[str, Theirs]:
    tied = config.tie_embeddings == "all"
    shared = Theirs(("shared.weight",))
    names = {
        "source.tokens.weight": shared,
        "target.tokens.weight": shared,
        "output.weight": shared if tied else Theirs(("lm_head.weight",)),
    }
    gates = ("wi",) if gates_of(config.activation_function) == 1 else ("wi_0", "wi_1")
    for stack, attentions in (
        ("encoder", {"self_attn": "SelfAttention"}),
        ("decoder", {"self_attn": "SelfAttention", "multihead_attn": "EncDecAttention"}),
    ):
        # The division before the output layer is put into the norm before it.
        scale = config.d_model**-0.5 if stack == "decoder" and _t5_scales(theirs) else 1.0
        names[f"{stack}.norm.weight"] = Theirs((f"{stack}.final_layer_norm.weight",), times=scale)
        table = Theirs((f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",))
        for i in range(getattr(config, f"{stack}_layers")):
            ours, his = f"{stack}.layers.{i}", f"{stack}.block.{i}.layer"
            names[f"{ours}.self_attn.relative_bias"] = table
            for k, (mine, other) in enumerate(attentions.items()):
                parts = (f"{his}.{k}.{other}.{part}.weight" for part in "qkv")
                names[f"{ours}.{mine}.in_proj_weight"] = Theirs(tuple(parts))
                names[f"{ours}.{mine}.out_proj.weight"] = Theirs((f"{his}.{k}.{other}.o.weight",))
            dense = f"{his}.{len(attentions)}.DenseReluDense"
            names[f"{ours}.linear1.weight"] = Theirs(tuple(f"{dense}.{w}.weight" for w in gates))
            names[f"{ours}.linear2.weight"] = Theirs((f"{dense}.wo.weight",))
            for k in range(len(attentions) + 1):
                names[f"{ours}.norm{k + 1}.weight"] = Theirs((f"{his}.{k}.layer_norm.weight",))
    return names


def _both(ours: str, theirs: str, transposed: bool = False) -> dict[str, Theirs]:
    return {
        f"{ours}.weight": Theirs((f"{theirs}.weight",), transposed),
        f"{ours}.bias": Theirs((f"{theirs}.bias",)),
    }


FAMILIES = {
    "gpt2": Family(
        model=CausalLM,
        prefix="transformer.",
        config=_gpt2_config,
        names=_gpt2_names,
        unused=(".attn.bias", ".attn.masked_bias", "lm_head.weight"),
        specials=None,
    ),
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
    **{
        name: Family(
            model=CausalLM,
            prefix="model.",
            config=config,
            names=_llama_names if name != "gemma" else partial(_llama_names, plus=1.0),
            unused=("rotary_emb.inv_freq", "lm_head.weight"),
            specials=None,
        )
        for name, config in (
            ("llama", _llama_config),
            ("mistral", _mistral_config),
            ("qwen2", _qwen2_config),
            ("qwen3", _qwen3_config),
            ("gemma", _gemma_config),
        )
    },
    "t5": Family(
        model=Seq2Seq,
        prefix="",
        config=_t5_config,
        names=_t5_names,
        unused=("embed_tokens.weight", "lm_head.weight"),
        specials=None,
    ),
    **{
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
                partial(
                    _bart_config, positions="sinusoidal_halves", embedding_norm=False, pre=True
                ),
            ),
        )
    },
}

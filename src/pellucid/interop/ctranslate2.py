"""Write a model as a CTranslate2 folder, in float32, or in int8 by its quantizer.

CTranslate2 (OpenNMT) is an inference engine in C++. It runs encoder-decoders with one
self-attention, one cross-attention and one feed-forward network per layer, and decoders alone.
In float32 the weights keep their values; the scales of embeddings, positions and scores are written
too, a learned one as part of the weights of the queries. A token of `suppress_tokens` gets an
output bias of −1e9. A model that it cannot express is refused with an error that names the part.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from pellucid import ops
from pellucid.core.errors import UserError, optional
from pellucid.data.tokenizers import SPECIALS, UNK, Tokenizer
from pellucid.models import walk
from pellucid.models.causal_lm import CausalLM
from pellucid.models.seq2seq import Seq2Seq
from pellucid.models.stack import ModelStack, Step
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import FeedForward
from pellucid.nn.layers import Linear, Norm
from pellucid.ops import rules
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.rule import EVERYTHING
from pellucid.ops.rules.distances import Fixed
from pellucid.system.files import folder_atomically

Array = np.ndarray
Quantization = Literal["float32", "int8"]

RMS_NORM = {"layer_norm": False, "rms_norm": True}
"""Norms that CTranslate2 has; True for its RMS norm."""

NEVER = np.float32(-1e9)
"""Number added to the logit of a token that is never generated."""

READER = walk.Reader(
    "CTranslate2",
    walk.GENERATIVE,
    {
        **dict.fromkeys(("qk_norm", "relative", "angles")),
        "rule": (Fixed,),
        "rotate": (None, ops.rotary),
        "kind": RMS_NORM,
        "activation": [name for name, row in ACTIVATIONS.items() if row.ctranslate2],
    },
)
"""Checks the modules and settings of a model; `_check` refuses further combinations."""


def write_ctranslate2(
    model: Seq2Seq | CausalLM,
    source: Tokenizer,
    target: Tokenizer,
    folder: Path,
    quantization: Quantization = "float32",
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Write a folder for `ctranslate2.Translator`, or `Generator` for a decoder alone.

    beside: contents of further files, by name. The vocabulary is that of the tokenizers, with the
    same ids; of a decoder alone, that of `target`. A source is given without begin and end tokens;
    decoding starts from the begin token.

    Raises `UserError` if ctranslate2 is not installed, if the folder already exists, or if it
    cannot be written; `UnsupportedError` for a model that CTranslate2 cannot express, and for one
    with `end_token_ids`. Nothing is written then.
    """
    specs = optional(
        "ctranslate2",
        "writing CTranslate2 models needs its package",
        extra="export",
    ).specs
    stacks = READER.read(model)
    for stack in stacks.values():
        _check(stack, alone="encoder" not in stacks)
    settings = model.config
    if ends := settings.end_token_ids:
        raise walk.UnsupportedError(
            f"a CTranslate2 folder cannot hold end_token_ids = {ends}: give end_token with every "
            "call instead, and export a model without end_token_ids"
        )
    if folder.exists():
        raise UserError(f"{folder}: already exists; choose another folder")
    spec = _Spec(specs).of(stacks.get("encoder"), stacks["decoder"], model.output)
    if never := list(settings.suppress_tokens):
        last = spec.decoder.projection
        bias = model.output.bias
        last.bias = np.zeros(len(last.weight), np.float32) if bias is None else bias.learnt.copy()
        last.bias[never] = NEVER
    # Its quantizer multiplies in place.
    specs.model_spec.visit_spec(spec, _own)
    if "encoder" not in stacks:
        spec.register_vocabulary(target.vocabulary)
    else:
        spec.register_source_vocabulary(source.vocabulary)
        spec.register_target_vocabulary(target.vocabulary)
        spec.config.decoder_start_token = SPECIALS[settings.bos_token_id]
    spec.config.unk_token = SPECIALS[UNK]
    spec.config.bos_token = SPECIALS[settings.bos_token_id]
    spec.config.eos_token = SPECIALS[settings.eos_token_id]
    spec.config.layer_norm_epsilon = settings.layer_norm_eps
    spec.validate()
    spec.optimize(quantization)
    with folder_atomically(folder) as made:
        spec.save(str(made))
        for name, content in beside.items():
            (made / name).write_bytes(content)


_ORDERS = [["self", "network"], ["self", "memory", "network"]]
"""The orders of sublayers that a layer may have."""


def _check(stack: ModelStack, alone: bool) -> None:
    """Raise `UnsupportedError` for a stack that CTranslate2 lacks or computes wrongly.

    alone: whether the stack is a decoder without an encoder; some variants work only there, or only
    elsewhere.
    """
    if not stack.steps:
        raise walk.UnsupportedError(
            f"CTranslate2 cannot express a stack without layers: the {stack.name}"
        )
    for i in range(len(stack.body.layers)):
        if (order := [_kind(step) for step in stack.steps if step.layer == i]) not in _ORDERS:
            raise walk.UnsupportedError(
                f"CTranslate2 cannot express a layer of {', '.join(order)}: a layer of the "
                f"{stack.name} has one network, after attention; ffn_before must be 0 and "
                "ffn_after 1"
            )
    for attention in stack.attentions():
        c, fault = attention.config, None
        if c.rule not in (EVERYTHING, rules.alibi):
            fault = "numbers by distance other than ALiBi's"
        elif c.rule.score and not alone:
            fault = "positions = 'alibi' but in a decoder alone"
        elif c.relative is not None and alone:
            fault = "positions = 'relative' in a decoder alone"
        elif c.qk_norm is not None and stack.attentions(memory=True):
            fault = "a norm of queries and keys (q_norm) in cross-attention"
        elif c.qk_norm is not None and c.scale == "learned":
            fault = "a learned scale (head_scale) behind a norm of the queries"
        if fault is not None:
            raise walk.UnsupportedError(f"CTranslate2 cannot express {fault}")


def _kind(step: Step) -> str:
    """Return the kind of a sublayer: "self", "memory" or "network"."""
    if isinstance(step.block.body, FeedForward):
        return "network"
    return "memory" if step.block.memory else "self"


def _own(spec: Any, name: str, value: Any) -> None:
    """Replace a specification's array by a copy, because the quantizer writes to it."""
    if isinstance(value, np.ndarray):
        setattr(spec, name.rsplit("/", 1)[-1], value.copy())


class _Spec:
    """Fills CTranslate2's specification of a model with the model's arrays."""

    def __init__(self, specs: Any) -> None:
        self.specs = specs

    def of(self, encoder: ModelStack | None, decoder: ModelStack, output: Linear) -> Any:
        """Make the specification of a model; of a decoder alone if `encoder` is None."""
        made = self.specs.transformer_spec
        target = made.TransformerDecoderSpec(
            with_encoder_attention=encoder is not None,
            alibi=decoder.attentions()[0].config.rule == rules.alibi,
            **self._options(decoder),
        )
        self._stack(decoder, target)
        self._linear(target.projection, output)
        if encoder is None:
            return made.TransformerDecoderModelSpec(target)
        source = made.TransformerEncoderSpec(**self._options(encoder))
        self._stack(encoder, source)
        return made.TransformerSpec(source, target)

    def _options(self, stack: ModelStack) -> dict[str, Any]:
        """Return the arguments of a stack's CTranslate2 specification."""
        first, c = stack.steps[0], stack.attentions()[0].config
        activation = ACTIVATIONS[str(stack.networks()[0].activation)]
        options: dict[str, Any] = {
            "num_layers": len(stack.body.layers),
            "num_heads": c.num_heads,
            "pre_norm": first.norm_first,
            "no_final_norm": stack.norm is None,
            "activation": getattr(self.specs.common_spec.Activation, str(activation.ctranslate2)),
            "ffn_glu": activation.gates == 2,
            "rms_norm": RMS_NORM[first.block.norm.kind],
            "layernorm_embedding": stack.embed.norm is not None,
            "relative_attention_bias": c.relative is not None,
            "num_heads_kv": None if c.groups == c.num_heads else c.groups,
            "head_dim": c.head_width,
            "qk_norm": c.qk_norm is not None,
        }
        if c.rotate is not None:
            scaling = self.specs.attention_spec.RotaryScalingType
            options |= {
                "rotary_dim": c.head_width,
                "rotary_interleave": False,
                "rotary_base": c.angles.base,
                "rotary_scaling_type": scaling.Linear if c.angles.low is None else scaling.Llama3,
                "rotary_scaling_factor": c.angles.factor,
            }
        return options

    def _stack(self, stack: ModelStack, to: Any) -> None:
        """Fill in the embeddings, layers and norms of a stack."""
        embed, factors = stack.embed, stack.embed.config
        embeddings = to.embeddings[0] if isinstance(to.embeddings, list) else to.embeddings
        embeddings.weight = embed.tokens.weight.learnt
        to.scale_embeddings = np.float32(factors.token_factor)
        if embed.places is not None:
            places = embed.places.astype(np.float32)
            to.position_encodings.encodings = places * np.float32(factors.position_factor)
        for name, norm in (("layer_norm", stack.norm), ("layernorm_embedding", embed.norm)):
            if norm is not None:
                self._norm(to, name, norm)
        for step in stack.steps:
            layer, body = to.layer[step.layer], step.block.body
            if isinstance(body, FeedForward):
                into = layer.ffn
                self._network(into, body)
            elif step.block.memory:
                into = layer.attention
                self._attention(into, body)
            else:
                into = layer.self_attention
                self._attention(into, body)
                self._distances(into, body)
            self._norm(into, "layer_norm", step.block.norm)

    def _network(self, to: Any, network: FeedForward) -> None:
        """Fill in a feed-forward network."""
        gates = ACTIVATIONS[str(network.activation)].gates
        weights, bias = (
            np.split(network.linear1.weight.learnt, gates),
            walk.array(network.linear1.bias),
        )
        for n, name in enumerate(("linear_0", "linear_0_noact")[:gates]):
            into = getattr(to, name)
            into.weight = weights[n]
            if bias is not None:
                into.bias = np.split(bias, gates)[n]
        self._linear(to.linear_1, network.linear2)

    def _attention(self, to: Any, attention: Attention) -> None:
        """Fill in an attention layer.

        q, k, v are one product in self-attention; q, and k with v, are two in cross-attention.
        """
        each = walk.projections(attention)
        weights = [weight for weight, _ in each]
        # some of its paths go wrong where only some products have biases
        biases = [np.zeros(len(w), np.float32) if b is None else b for w, b in each]
        spans = [slice(0, 3)] if len(to.linear) == 2 else [slice(0, 1), slice(1, 3)]
        for into, span in zip(to.linear, spans, strict=False):
            into.weight = np.concatenate(weights[span])
            into.bias = np.concatenate(biases[span])
        self._linear(to.linear[-1], attention.out_proj)
        for name, norm in (("q_norm", attention.q_norm), ("k_norm", attention.k_norm)):
            if norm is not None:
                self._norm(to, name, norm)
        to.queries_scale = np.float32(walk.score_factor(attention.config))

    def _distances(self, to: Any, attention: Attention) -> None:
        """Fill in the angles of Llama 3's rotary positions, or the learned relative position bias.

        The angles of other rotary positions are arguments of the specification.
        """
        c, relative = attention.config, attention.config.relative
        if c.rotate is not None and c.angles.low is not None:  # as Llama 3
            to.__dict__ |= {
                "rotary_scaling_factor": np.float32(c.angles.factor),
                "rotary_low_freq_factor": np.float32(c.angles.low),
                "rotary_high_freq_factor": np.float32(c.angles.high),
                "original_max_position_embeddings": np.int32(c.angles.original or 0),
            }
        if relative is not None and attention.relative_bias is not None:
            to.relative_attention_bias = attention.relative_bias.learnt
            to.relative_attention_max_distance = np.int32(relative.longest)

    def _linear(self, to: Any, linear: Linear) -> None:
        to.weight = linear.weight.learnt
        if linear.bias is not None:
            to.bias = linear.bias.learnt

    def _norm(self, to: Any, name: str, norm: Norm) -> None:
        made = self.specs.common_spec.LayerNormSpec(rms_norm=RMS_NORM[norm.kind])
        made.gamma = walk.array(norm.weight)
        if norm.bias is not None:
            made.beta = norm.bias.learnt
        to.__dict__[name] = made

"""Walk through the parts of a model in the order in which they run.

Compiled decoding, the exporters and the HTML viewer read a model this way: from the types, configs
and arrays of its modules. Each of them is described by a `Reader`, which lists the modules and
settings that it supports and refuses all others with an error.

A new setting of a config gets a default that means "as before". A reader that does not list the
setting then accepts only the default.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.core.errors import UserError
from pellucid.models.causal_lm import CausalLM
from pellucid.models.classifier import Classifier
from pellucid.models.embed import Embed
from pellucid.models.layers import DecoderLayer, EncoderLayer, FurtherNetwork
from pellucid.models.masked_lm import MaskedHead, MaskedLM
from pellucid.models.seq2seq import Seq2Seq
from pellucid.models.stack import ModelStack, Step
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import FeedForward
from pellucid.nn.config import AttentionConfig
from pellucid.nn.layers import Norm
from pellucid.nn.module import Parameter
from pellucid.ops.rules.distances import Fixed
from pellucid.ops.rules.soft_cap import SoftCap
from pellucid.ops.rules.window import Window

Array = np.ndarray


class UnsupportedError(UserError):
    """A model has a part that a reader (an exporter, compiled decoding) does not support."""


def stacks_of(model: nn.Module) -> dict[str, ModelStack]:
    """Return the stacks of a model, the encoder first, after checking that nothing is overlooked.

    Raises `UnsupportedError` for a module that is not a model, for a layer with an unknown kind of
    sublayer, and for parameters that belong to no known part.

    >>> from pellucid.models import CausalLM, CausalLMConfig
    >>> model = CausalLM(CausalLMConfig(vocab_size=7, d_model=8, num_hidden_layers=1))
    >>> [type(step.block.body).__name__ for step in stacks_of(model)["decoder"].steps]
    ['Attention', 'FeedForward']
    """
    if not isinstance(model, Seq2Seq | CausalLM | MaskedLM | Classifier):
        raise UnsupportedError(f"{type(model).__name__} is not a model whose parts are known")
    found = model.stacks()
    read: list[nn.Module | None] = [
        getattr(model, name, None) for name in ("output", "head", "pooler")
    ]
    for stack in found.values():
        read += [stack.embed, stack.norm]
        read += [module for step in stack.steps for module in _read(step)]
    arrays = {id(p) for module in read if module is not None for _, p in module.all_names()}
    if unread := [name for name, p in model.all_names() if id(p) not in arrays]:
        raise UnsupportedError(
            f"no part of this model reads {', '.join(unread)}; what a layer computes is in its "
            "blocks()"
        )
    return found


def _read(step: Step) -> Iterator[nn.Module]:
    """Yield the modules of a residual step.

    Raises `UnsupportedError` for an unknown sublayer.
    """
    body = step.block.body
    yield step.block.norm
    if isinstance(body, FeedForward):
        yield from (body.linear1, body.linear2)
    elif isinstance(body, Attention):
        yield body
    else:
        raise UnsupportedError(
            f"layer {step.layer} computes {type(body).__name__}, which is not known here"
        )


# what a reader supports ---------------------------------------------------------------------------

MODULES: frozenset[type] = frozenset(
    {
        Seq2Seq, CausalLM, MaskedLM, Classifier, Embed, MaskedHead,
        nn.TransformerEncoder, nn.TransformerDecoder, EncoderLayer, DecoderLayer, FurtherNetwork,
        Attention, Norm, nn.LayerNorm, nn.Linear, nn.Embedding, nn.Dropout, nn.ModuleList,
    }
)  # fmt: skip
"""All modules that models consist of, except those of an attention function of the user's."""
GENERATIVE = MODULES - {MaskedLM, MaskedHead, Classifier}
"""The modules of models that generate."""

Values = Collection[Any] | None

SIZES: Mapping[str, Values] = dict.fromkeys(
    ("kdim", "vdim", "bias", "qkv_bias", "dropout", "scale", "key_value_heads", "head_dim")
)
EVERY_ATTENTION: Mapping[str, Values] = dict.fromkeys(("qk_norm", "relative", "angles")) | {
    "rule": (SoftCap, Window, Fixed)
}
"""The settings of a reader that supports norms of queries and keys, relative positions, ALiBi, soft
caps and windows, but no rotations, no sinks and no functions of the user's."""


@dataclass(frozen=True)
class Reader:
    """Describes code that runs or exports a model (in evaluation mode): what it supports.

    `modules` are the supported classes. `settings` has the supported values of "activation", of
    "kind" (of a norm), and of the fields of `AttentionConfig` (None: all values; for "rule", the
    classes of its parts). A field of `AttentionConfig` that is not listed must have its default,
    except those in `SIZES`, which every reader supports. No reader supports a soft cap after a bias
    by distance.
    """

    name: str
    modules: Collection[type]
    settings: Mapping[str, Values]

    def read(self, model: nn.Module) -> dict[str, ModelStack]:
        """Check that every part of a model is supported; return its stacks.

        Raises `UnsupportedError` naming every module and setting that is not supported; otherwise
        also as `stacks_of` does.
        """
        parts = model.named_modules()
        faults = [fault for name, module in parts for fault in self._faults(name, module)]
        if faults:
            listed = "; ".join(dict.fromkeys(faults))
            raise UnsupportedError(f"{self.name} does not support this model: {listed}")
        return stacks_of(model)

    def _faults(self, name: str, module: nn.Module) -> Iterator[str]:
        """Yield an error for a module, or for each of its settings, that is not supported."""
        if type(module) not in self.modules:
            yield f"{type(module).__name__} ({name})" if name else type(module).__name__
            return
        for setting, value, allowed in self._settings(module):
            if allowed is not None and value not in allowed:
                known = [str(getattr(each, "__name__", each)) for each in allowed] or ["none"]
                shown = getattr(value, "__name__", repr(value))
                yield f"{type(module).__name__} {setting} = {shown} (supported: {', '.join(known)})"

    def _settings(self, module: nn.Module) -> Iterator[tuple[str, Any, Values]]:
        """Yield (name, value, supported values) of the settings that a reader may not support.

        None as supported values means all. Each part of an attention rule is one.
        """
        if isinstance(module, Attention):
            for field in fields(AttentionConfig):
                if field.name == "rule":
                    kinds, rule = tuple(self.settings.get("rule") or ()), module.config.rule
                    for part in (*rule.allowed, *rule.score):
                        yield "rule", part, None if isinstance(part, kinds) else kinds
                    for one, other in pairwise(rule.score):
                        if isinstance(one, Fixed) and isinstance(other, SoftCap):
                            yield "rule", "a soft cap after distances", ()  # all cap first
                elif field.default is not MISSING and field.name not in SIZES:
                    value = getattr(module.config, field.name)
                    yield field.name, value, self.settings.get(field.name, (field.default,))
        if isinstance(module, Norm):
            yield "kind", module.kind, self.settings["kind"]
        if hasattr(module, "activation"):
            yield "activation", module.activation, self.settings["activation"]


# what several readers make of a module ------------------------------------------------------------


def array(parameter: Parameter | None) -> Array | None:
    """Return a parameter's full-precision array, or None for None."""
    return None if parameter is None else parameter.learnt


def score_factor(config: AttentionConfig) -> float:
    """Return the factor of q · k; 1 if it is learned, since it is then applied to the queries."""
    if isinstance(config.scale, str):
        return 1.0
    return config.head_width**-0.5 if config.scale is None else config.scale


def projections(attention: Attention) -> list[tuple[Array, Array | None]]:
    """Return (weight, bias or None) of the projections to q, k and v, a list of three.

    A learned scale of the heads is multiplied into those of q, unless the queries are normalised,
    which would undo it.
    """
    found: list[tuple[Array, Array | None]] = [tuple(each) for each in attention.projections()]
    if attention.head_scale is not None and attention.q_norm is None:
        factors = np.repeat(attention.head_scale.learnt, attention.head_width)
        weight, bias = found[0]
        found[0] = factors[:, None] * weight, None if bias is None else factors * bias
    return found

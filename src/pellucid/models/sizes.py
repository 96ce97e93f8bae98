"""How large a model is: whether arrays fit a config."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.models.config import StackConfig
from pellucid.models.positions import POSITIONS

Array = np.ndarray


def array_names(build: Callable[[Any], nn.Module], config: StackConfig) -> list[str]:
    """Return the names of the arrays of the model that a config makes.

    The model built for it has all layers, but is as narrow as can be: the sizes of a damaged config
    need not fit into memory.

    >>> from pellucid.models import CausalLM, CausalLMConfig
    >>> array_names(CausalLM, CausalLMConfig(num_hidden_layers=0))[:2]
    ['embed.tokens.weight', 'embed.positions.weight']
    """
    least = {
        **{"d_model": 2, "num_attention_heads": 1, "num_key_value_heads": None, "head_dim": None},
        **{"ffn_dim": 1, "max_position_embeddings": 2, "type_vocab_size": 1},
        **dict.fromkeys(("vocab_size", "source_vocab_size", "target_vocab_size"), 0),
    }
    narrow: dict[str, Any] = {name: n for name, n in least.items() if getattr(config, name, None)}
    return [name for name, _ in build(replace(config, **narrow)).all_names()]


SHOWN: dict[str, tuple[str, ...]] = {
    "source.tokens.weight": ("source_vocab_size", "d_model"),
    "target.tokens.weight": ("target_vocab_size", "d_model"),
    "embed.tokens.weight": ("vocab_size", "d_model"),
    "positions.weight": ("max_position_embeddings", "d_model"),
    "segments.weight": ("type_vocab_size", "d_model"),
    "layers.0.linear2.weight": ("d_model", "ffn_dim"),
    "layers.0.self_attn.head_scale": ("num_attention_heads",),
    "layers.0.self_attn.relative_bias": (
        "relative_attention_num_buckets",
        "num_attention_heads",
    ),
}
"""By the end of an array's name, the settings that are its sizes; one layer shows those of all."""


def size_faults(config: StackConfig, state: Mapping[str, Array]) -> list[str]:
    """Return what sizes of a config are not those of a state dict; nothing is built.

    A damaged config may ask for a hundred thousand layers, which would take hours to build.
    Missing or unexpected names and other shapes are left to `load_state_dict` to report.

    >>> import numpy as np
    >>> from pellucid.models.config import CausalLMConfig
    >>> table = {"embed.tokens.weight": np.zeros((11, 256))}
    >>> size_faults(CausalLMConfig(vocab_size=13, num_hidden_layers=0), table)
    ['vocab_size is 13, the weights have 11']
    """
    return [
        f"{name} is {getattr(config, name)}, the weights have {found}"
        for name, found in _sizes(config, state).items()
        if getattr(config, name) != found
    ]


def _sizes(config: StackConfig, state: Mapping[str, Array]) -> dict[str, int]:
    """Return the settings whose values the arrays show."""
    sizes: dict[str, int] = {}
    for stack, depth in config.depths.items():
        layers = f"{stack}.layers."
        sizes[depth] = _members(state, layers)
        if sizes[depth]:
            sizes["ffn_before"] = _members(state, f"{layers}0.before.")
            sizes["ffn_after"] = 1 + _members(state, f"{layers}0.after.")
    for end, settings in SHOWN.items():
        if end == "positions.weight" and not POSITIONS[config.positions].learned:
            continue
        for name, array in state.items():
            if name.endswith(end) and array.ndim == len(settings):
                sizes |= dict(zip(settings, array.shape, strict=True))
    return {name: n for name, n in sizes.items() if hasattr(config, name)}


def _members(names: Iterable[str], prefix: str) -> int:
    """Count the members of a list of modules."""
    return len({name[len(prefix) :].split(".")[0] for name in names if name.startswith(prefix)})

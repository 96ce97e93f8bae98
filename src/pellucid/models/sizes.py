"""Check that arrays read from a file fit a config, before building the model."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.models.config import StackConfig
from pellucid.models.positions import POSITIONS

Array = np.ndarray


def array_names(build: Callable[[Any], nn.Module], config: StackConfig) -> list[str]:
    """Return the names of the parameters of the model that a config describes.

    To find them it builds the model with all layers but minimal widths, because a damaged config
    may have widths that do not fit into memory. `build` is the model's class.

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
"""For arrays whose name ends so, the settings that are the sizes of their axes. The first layer
stands for all."""


def size_faults(config: StackConfig, state: Mapping[str, Array]) -> list[str]:
    """Return an error for each size in a config that differs from the arrays of a state dict.

    Sizes are the numbers of layers and feed-forward networks, and the settings in `SHOWN`. No model
    is built: a damaged config may have a hundred thousand layers, which would take hours.
    Missing or unexpected names and other shapes are reported by `load_state_dict`. Without a
    difference the list is empty.

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
    """Return the values of those settings of the config that can be read off the arrays."""
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
    """Count the members of the module list whose parameters' names begin with `prefix`."""
    return len({name[len(prefix) :].split(".")[0] for name in names if name.startswith(prefix)})

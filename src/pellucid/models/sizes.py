"""The sizes in a config beside those of a model's arrays, before a model of that config is built.

A damaged config may ask for a hundred thousand layers: they would be built, for hours, before the
arrays could say that there are three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pellucid.models.config import LanguageConfig, MaskedLMConfig, Seq2SeqConfig, StackConfig

Array = np.ndarray


def size_faults(config: StackConfig, state: Mapping[str, Array]) -> list[str]:
    """Say which sizes of a config are not those of a state dict; nothing is built.

    Names or shapes that no such model has are left for `load_state_dict` to tell.

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
    tables = {"embed.tokens.weight": "vocab_size"}
    stacks = {"decoder": "num_hidden_layers"}
    if isinstance(config, Seq2SeqConfig):
        tables = {
            "source.tokens.weight": "source_vocab_size",
            "target.tokens.weight": "target_vocab_size",
        }
        stacks = {"encoder": "encoder_layers", "decoder": "decoder_layers"}
    elif isinstance(config, MaskedLMConfig):
        tables["embed.segments.weight"] = "type_vocab_size"
        stacks = {"encoder": "num_hidden_layers"}
    sizes: dict[str, int] = {}
    for stack, setting in stacks.items():
        layers = f"{stack}.layers."
        sizes[setting] = _members(state, layers)
        if sizes[setting]:
            sizes["ffn_before"] = _members(state, f"{layers}0.before.")
            sizes["ffn_after"] = 1 + _members(state, f"{layers}0.after.")
            tables[f"{layers}0.linear1.weight"] = "ffn_dim"
    if config.positions == "learned":
        half = "embed" if isinstance(config, LanguageConfig) else "source"
        tables[f"{half}.positions.weight"] = "max_position_embeddings"
    for name, setting in tables.items():
        if name in state and state[name].ndim == 2:
            sizes[setting], sizes["d_model"] = state[name].shape
    return sizes


def _members(names: Iterable[str], prefix: str) -> int:
    """Count the members of a list of modules."""
    return len({name[len(prefix) :].split(".")[0] for name in names if name.startswith(prefix)})

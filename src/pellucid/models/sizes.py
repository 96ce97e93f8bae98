"""How large a model is, from its description: parameters, operations, and whether arrays fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.models.config import StackConfig
from pellucid.models.describe import (
    STACKS,
    Attention,
    Linear,
    Record,
    describe,
    parts,
    tensors,
)

Array = np.ndarray


def parameter_count(records: Sequence[Record]) -> int:
    """Count the parameters; tied ones count once.

    >>> from pellucid.models.config import CausalLMConfig
    >>> config = CausalLMConfig(vocab_size=7, d_model=8, num_hidden_layers=0)
    >>> parameter_count(describe(config))  # tokens, positions, final norm
    2120
    """
    return sum(math.prod(tensor.shape) for tensor in tensors(records) if tensor.same_as is None)


def forward_operations(records: Sequence[Record], lengths: Mapping[str, Sequence[int]]) -> float:
    """Count the operations of a forward pass's matrix products; a multiply-add is two.

    `lengths` are those of the sequences that each stack reads. A training step takes three times
    as many. Causal attention counts in full.

    >>> from pellucid.models.config import CausalLMConfig
    >>> config = CausalLMConfig(vocab_size=7, d_model=8, num_hidden_layers=0)
    >>> forward_operations(describe(config), {"decoder": [3, 2]})  # the output layer of five rows
    560.0
    """
    rows = {stack: sum(each) for stack, each in lengths.items()}
    products = 0
    for record in parts(records):
        if isinstance(record, Attention):
            keys_of = "encoder" if record.over == "memory" else record.stack
            width, e = record.heads * record.head_width, record.in_proj.weight.shape[1]
            keys_values = record.in_proj.weight.shape[0] - width
            products += 2 * rows[record.stack] * width * e  # q and out
            products += rows[keys_of] * keys_values * e  # k and v
            both = zip(lengths[record.stack], lengths[keys_of], strict=True)
            products += 2 * width * sum(queries * keys for queries, keys in both)
        else:
            linears = (value for value in vars(record).values() if isinstance(value, Linear))
            products += sum(rows[record.stack] * math.prod(each.weight.shape) for each in linears)
    return 2.0 * products


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


def _sizes(config: Any, state: Mapping[str, Array]) -> dict[str, int]:
    """Return the settings whose values the arrays show."""
    sizes: dict[str, int] = {}
    for stack in STACKS[config.model_type]:
        layers = f"{stack.name}.layers."
        sizes[stack.layers] = _members(state, layers)
        if sizes[stack.layers]:
            sizes["ffn_before"] = _members(state, f"{layers}0.before.")
            sizes["ffn_after"] = 1 + _members(state, f"{layers}0.after.")
    # One layer shows the widths of all.
    depths = {stack.layers: min(1, sizes[stack.layers]) for stack in STACKS[config.model_type]}
    networks = {name: sizes[name] for name in ("ffn_before", "ffn_after") if name in sizes}
    for tensor in tensors(describe(replace(config, **depths, **networks))):
        if tensor.name in state and state[tensor.name].ndim == len(tensor.shape):
            shown = zip(tensor.settings, state[tensor.name].shape, strict=True)
            sizes |= {setting: size for setting, size in shown if setting is not None}
    return sizes


def _members(names: Iterable[str], prefix: str) -> int:
    """Count the members of a list of modules."""
    return len({name[len(prefix) :].split(".")[0] for name in names if name.startswith(prefix)})

"""Models of ours as Hugging Face's: where one of its families computes the same.

Which settings a family has is decided by reading: our settings become a config.json, that is read
as any other is, and what then differs is what the family does not have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from pellucid.core.errors import UserError
from pellucid.core.files import write_folder_atomically
from pellucid.data.tokenizers import SPECIALS
from pellucid.generation import SearchConfig
from pellucid.interop.families import FAMILIES, Foreign, Theirs
from pellucid.interop.huggingface import CONFIG, GENERATION, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from pellucid.models.config import StackConfig

Array = np.ndarray


def write_as_huggingface(
    model: Any, search: SearchConfig, tokenizers: Mapping[str, bytes], folder: Path
) -> str:
    """Write a model as a folder that transformers reads, to the same logits; return its family.

    tokenizers: the files of its tokenizers, by name. Raises `UserError` naming the settings that no
    family has.
    """
    config, state = model.config, model.state_dict()
    if getattr(config, "positions", "") == "sinusoidal":  # as the families that have such a table
        config, state = sines_first(config, state)
    known = [
        name for name, family in FAMILIES.items() if family.values and family.model is type(model)
    ]
    lacking = {name: _differences(name, config, model.config) for name in known}
    for name in known:
        if not lacking[name]:
            break
    else:
        said = "; ".join(f"{name}: {', '.join(found)}" for name, found in lacking.items())
        raise UserError(
            f"transformers has no architecture that computes what this {type(model).__name__} does"
            + (f": {said}" if said else "")
        )
    family, theirs = FAMILIES[name], _theirs(name, config)
    tensors: dict[str, Array] = {}
    for ours, source in family.sources(config, theirs, ()).items():
        tensors |= _parts(np.asarray(state[ours], np.float32), source)
    named = {n if n in family.apart else family.prefix + n: x for n, x in tensors.items()}
    begin, end = config.bos_token_id, config.eos_token_id
    generation = {
        "num_beams": search.beam,
        "max_length": search.max_length,
        "bos_token_id": begin,
        "decoder_start_token_id": begin,
        "eos_token_id": end,
        "pad_token_id": config.pad_token_id,
    }
    special = dict(zip(("pad", "bos", "eos", "unk"), SPECIALS, strict=True))
    how = {f"{kind}_token": text for kind, text in special.items()}
    contents = {
        CONFIG: {**theirs.values, "dtype": "float32"},
        GENERATION: generation,
        TOKENIZER_CONFIG: {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": True,
            **how,
        },
    }
    written = {
        file: json.dumps(x, indent=2, ensure_ascii=False).encode() for file, x in contents.items()
    }
    written[WEIGHTS] = save(named, {"format": "pt"})
    write_folder_atomically(folder, {**written, TOKENIZER: tokenizers[TOKENIZER]})
    return name


def _theirs(name: str, config: StackConfig) -> Foreign:
    values = FAMILIES[name].values
    assert values is not None
    return Foreign({"model_type": name, **values(config)}, Path(CONFIG))


def _differences(name: str, config: StackConfig, own: StackConfig) -> list[str]:
    """Return the settings of ours that a family does not have, with their values in `own`."""
    theirs = _theirs(name, config)
    try:
        read = FAMILIES[name].config(theirs, ())
    except UserError as error:
        return [str(error).partition(": ")[2]]
    return [
        f"no {field.name} = {getattr(own, field.name)}"
        for field in fields(config)
        if not field.name.endswith(("dropout", "_init"))  # nothing that a trained model computes
        and getattr(config, field.name) != getattr(read, field.name)
    ]


def _parts(array: Array, source: Theirs) -> dict[str, Array]:
    """Return their arrays that make one of ours: `gathered` undone."""
    array = (array - np.float32(source.plus)) / np.float32(source.times)
    rows = np.concatenate([np.zeros((source.skip, *array.shape[1:]), np.float32), array])
    rows = rows[None] if source.first else rows
    parts = np.split(rows, len(source.names))
    return {
        name: np.ascontiguousarray(part.T if source.transposed else part)
        for name, part in zip(source.names, parts, strict=True)
    }


AXES = {
    **dict.fromkeys(("tokens.weight", "in_proj_weight", "linear1.weight", "output.weight"), 1),
    **dict.fromkeys(("out_proj.weight", "out_proj.bias", "linear2.weight", "linear2.bias"), 0),
}
"""By the end of an array's name, its axis of the model's width; norms have no other."""


def sines_first(config: Any, state: Mapping[str, Array]) -> tuple[Any, dict[str, Array]]:
    """Return a model that computes the same with all sines of its positions before all cosines.

    Nothing depends on the order of the features that the layers pass on: all that reads or writes
    them gets the other order.
    """
    width = config.d_model
    order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
    moved = {}
    for name, array in state.items():
        ends = [axis for end, axis in AXES.items() if name.endswith(end)]
        axis = (
            ends[0] if ends else 0 if "norm" in name.rpartition(".")[0].rpartition(".")[2] else None
        )
        moved[name] = array if axis is None else np.take(array, order, axis)
    return replace(config, positions="sinusoidal_halves"), moved

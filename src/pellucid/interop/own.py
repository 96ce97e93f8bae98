"""Write Pellucid models as Hugging Face's, where one of its families computes the same.

Which settings a family has is decided by reading: our settings become a config.json, that is read
as any other is, and what then differs is what the family does not have.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from pellucid.core.errors import UserError
from pellucid.data.tokenizers import BOS, SPECIALS, library
from pellucid.generation import SearchConfig
from pellucid.interop.families import FAMILIES, Foreign
from pellucid.interop.huggingface import (
    CONFIG,
    GENERATION,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
    Array,
    scattered,
)
from pellucid.models import CausalLM
from pellucid.models.config import StackConfig
from pellucid.system.files import write_folder_atomically


def write_as_huggingface(
    model: Any, search: SearchConfig, tokenizers: Mapping[str, bytes], folder: Path
) -> str:
    """Write a model as a folder that transformers reads, to the same logits; return its family.

    tokenizers: the files of its tokenizers, by name. Raises `UserError` naming the settings that no
    family has.
    """
    names = [n for n, family in FAMILIES.items() if family.written and family.model is type(model)]
    ours = {n: FAMILIES[n].rewritten(model.config, model.state_dict()) for n in names}
    lacking = {n: _differences(n, config, model.config) for n, (config, _) in ours.items()}
    name = min(lacking, key=lambda name: len(lacking[name]), default="")
    if not name or lacking[name]:
        raise UserError(
            f"transformers has no architecture that computes what this {type(model).__name__} does"
            + (f"; the nearest, {name}, has no {', '.join(lacking[name])}" if name else "")
        )
    family, (config, state) = FAMILIES[name], ours[name]
    theirs = _theirs(name, config)
    tensors: dict[str, Array] = {}
    for own, source in family.sources(config, theirs).items():
        parts = scattered(np.asarray(state[own], np.float32), source)
        for part, array in zip(source.names, parts, strict=True):
            skipped = np.zeros((source.skip, *array.shape[1:]), np.float32)
            tensors[part] = np.ascontiguousarray(np.concatenate([skipped, array]))
    tensors |= family.further(config)
    named = {n if n in family.apart else family.prefix + n: x for n, x in tensors.items()}
    begin, end = config.bos_token_id, config.eos_token_id
    generation = {
        "num_beams": search.beam,
        "max_length": search.max_length,
        "length_penalty": search.length_penalty,
        "forced_bos_token_id": search.constraints.forced_bos_token_id,
        "bos_token_id": begin,
        "decoder_start_token_id": begin,
        "eos_token_id": end,
        "pad_token_id": config.pad_token_id,
        "suppress_tokens": list(config.suppress_tokens) or None,
    }
    kinds = ("pad_token", "bos_token", "eos_token", "unk_token")
    contents = {
        CONFIG: {**theirs.values, "dtype": "float32"},
        GENERATION: generation,
        TOKENIZER_CONFIG: {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **dict(zip(kinds, SPECIALS, strict=True)),
        },
    }
    written = {
        file: json.dumps(x, indent=2, ensure_ascii=False).encode() for file, x in contents.items()
    }
    written |= {WEIGHTS: save(named, {"format": "pt"}), **tokenizers}
    if isinstance(model, CausalLM) and TOKENIZER in written:
        written[TOKENIZER] = _beginning(written[TOKENIZER])
    write_folder_atomically(folder, written)
    return name


def _beginning(tokenizer: bytes) -> bytes:
    """Return a tokenizer.json that puts the begin token in front of a text, as we do."""
    core, begin = library().Tokenizer.from_str(tokenizer.decode()), SPECIALS[BOS]
    core.post_processor = library().processors.TemplateProcessing(
        f"{begin} $A", None, [(begin, BOS)]
    )
    text: str = core.to_str(pretty=True)
    return text.encode()


def _theirs(name: str, config: StackConfig) -> Foreign:
    return Foreign({"model_type": name, **FAMILIES[name].values(config)}, Path(CONFIG))


def _differences(name: str, config: StackConfig, own: StackConfig) -> list[str]:
    """Return the settings that a family does not have, with their values in `own`."""
    try:
        read = FAMILIES[name].config(_theirs(name, config))
    except UserError as error:
        if config.activation_function == "relu":  # it is another setting that is refused
            return [str(error).removeprefix(f"{CONFIG}: ")]
        others = _differences(name, replace(config, activation_function="relu"), own)
        return [f"activation_function = {own.activation_function}", *others]
    return [
        f"{field.name} = {getattr(own, field.name)}"
        for field in fields(config)
        # nothing that a trained model computes, and what generation_config.json says
        if not field.name.endswith(("dropout", "_init", "suppress_tokens"))
        and getattr(config, field.name) != getattr(read, field.name)
    ]

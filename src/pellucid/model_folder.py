"""A trained model as a folder: what it is, its weights, its tokenizers, how it is decoded.

config.json             Hugging Face's key names where they exist
model.safetensors       torch's state_dict names; float32, float16 or int8
tokenizer.json          of the source; target_tokenizer.json beside it unless both are one
generation_config.json  how answers are looked for
README.md               the model card, with its scores
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pellucid.decoding import SearchConfig
from pellucid.errors import UsageError, UserError
from pellucid.models.config import Seq2SeqConfig
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn import StateError
from pellucid.settings import from_mapping
from pellucid.text.tokenizer import Tokenizer
from pellucid.trained import Trained
from pellucid.training.files import write_folder_atomically
from pellucid.training.storage import StorageError, Store, reduced, restored
from pellucid.training.weights import read_weights, to_safetensors

T = TypeVar("T")

FORMAT = 1
CONFIG, WEIGHTS, GENERATION = "config.json", "model.safetensors", "generation_config.json"
TOKENIZER, TARGET_TOKENIZER, CARD = "tokenizer.json", "target_tokenizer.json", "README.md"


def save_model(folder: Path, trained: Trained, card: str, store: Store = "float32") -> None:
    """Write the folder whole or not at all, its weights as `store` says.

    Raises `UserError` when it cannot be written, or a weight is too large for float16.
    """
    config = {
        "model_type": "pellucid-seq2seq",
        "format": FORMAT,
        "vocabularies": [trained.source.fingerprint, trained.target.fingerprint],
        **asdict(trained.model.config),
    }
    contents = {
        CONFIG: _json(config),
        WEIGHTS: to_safetensors(reduced(trained.model.state_dict(), store)),
        TOKENIZER: trained.source.to_json().encode(),
        GENERATION: _json(asdict(trained.search)),
        CARD: card.encode(),
    }
    if trained.target is not trained.source:
        contents[TARGET_TOKENIZER] = trained.target.to_json().encode()
    write_folder_atomically(folder, contents)


def load_model(folder: Path) -> Trained:
    """Read a model folder, or the `model` in a run folder; the model comes in eval mode.

    Raises `UserError` naming the part that is missing, damaged, or does not fit the others.
    """
    folder = find_model(folder)
    settings = _read_json(folder / CONFIG)
    if settings.pop("model_type", None) != "pellucid-seq2seq":
        raise UserError(f"{folder / CONFIG}: not a model of Pellucid's (model_type differs)")
    if (made_by := settings.pop("format", None)) != FORMAT:
        raise UserError(
            f"{folder / CONFIG}: model format {made_by}, this Pellucid reads {FORMAT}; read it "
            "with the version that wrote it"
        )
    made_with = settings.pop("vocabularies", (None, None))  # older folders do not say
    config = _from_json(Seq2SeqConfig, settings, folder / CONFIG)
    source_path, target_path = folder / TOKENIZER, folder / TARGET_TOKENIZER
    source = target = Tokenizer.load(source_path)
    if target_path.exists():
        target = Tokenizer.load(target_path)
    for path, tokenizer, entries, wanted in zip(
        (source_path, target_path if target is not source else source_path),
        (source, target),
        (config.source_vocab_size, config.target_vocab_size),
        made_with,
        strict=True,
    ):
        if tokenizer.vocab_size != entries:
            raise UserError(
                f"{path}: has {tokenizer.vocab_size} tokens, the model's {CONFIG} says {entries}; "
                "it belongs to another model"
            )
        if wanted not in (None, tokenizer.fingerprint):
            raise UserError(
                f"{path}: its tokens are not those that the model was trained with; it belongs to "
                "another model"
            )
    model = Seq2Seq(config)
    try:
        state = restored(read_weights(folder / WEIGHTS))
        model.load_state_dict(state)
    except (StateError, StorageError) as error:
        raise UserError(f"{folder / WEIGHTS}: {error}") from None
    if broken := [name for name, array in state.items() if not np.isfinite(array).all()]:
        raise UserError(f"{folder / WEIGHTS}: {broken[0]} holds values that are not finite")
    search = _from_json(SearchConfig, _read_json(folder / GENERATION), folder / GENERATION)
    return Trained(model.eval(), source, target, search)


def folder_size(folder: Path) -> str:
    """Return the size of a model folder's files, written out."""
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.1f} MB"


def find_model(folder: Path) -> Path:
    """Return the model folder meant: `folder` itself, or the one in a run folder.

    Raises `UserError` saying what is there instead.
    """
    for candidate in (folder, folder / "model"):
        if (candidate / CONFIG).is_file():
            return candidate
    if not folder.exists():
        raise UserError(f"{folder}: there is no such folder; train a model first")
    if (folder / "config.toml").exists():
        raise UserError(
            f"{folder}: this run has no model yet; finish it: pellucid train --resume {folder}"
        )
    raise UserError(f"{folder}: neither a model (no {CONFIG}) nor a run (no config.toml)")


def _from_json(kind: type[T], values: Mapping[str, Any], path: Path) -> T:
    try:
        return from_mapping(kind, values, str(path))
    except UsageError as error:  # no flag of the user's is at fault here, but the file
        raise UserError(str(error)) from None


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is damaged ({error}); copy it again") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: is damaged (not a JSON object); copy it again")
    return values

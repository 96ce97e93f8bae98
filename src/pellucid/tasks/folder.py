"""Save and load a trained model as a folder.

config.json             Hugging Face's key names where they exist
model.safetensors       torch's state_dict names; float32, float16 or int8
tokenizer.json          of the source, or of both sides
target_tokenizer.json   of the target, if the sides have different tokenizers
generation_config.json  search settings; only for models that generate text
README.md               the model card, with its scores
SHA256SUMS              digests of all but the card, checked when loading; old folders lack it
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pellucid.core.errors import UsageError, UserError, raised_as
from pellucid.core.parts import GIVE, imports
from pellucid.core.settings import from_mapping, nearest
from pellucid.data.tokenizers import Tokenizer
from pellucid.generation import SearchConfig
from pellucid.interop.huggingface import (
    TARGET_TOKENIZER,
    TOKENIZER_FILES,
    is_huggingface,
    pretrained_files,
    read_arithmetic,
    read_json,
    read_pretrained,
    read_search,
    read_tokenizers,
)
from pellucid.interop.tokenizer import SentencePieceTokenizer
from pellucid.models import CausalLM
from pellucid.models.quantize import Arithmetic, QuantizeError, WeightFormat, dequantize, quantize
from pellucid.models.sizes import size_faults
from pellucid.nn import StateError
from pellucid.system.command import command
from pellucid.system.files import (
    SUMS,
    changed_file,
    checksums,
    read_file,
    read_toml,
    write_folder_atomically,
)
from pellucid.system.weights import check_weights, read_weights, to_safetensors
from pellucid.tasks import TASKS, GenerationTask, Seq2SeqTask, Task, task_of
from pellucid.tasks.task import token_error, without_unknown

T = TypeVar("T")

FORMAT = 1
CONFIG, WEIGHTS, GENERATION = "config.json", "model.safetensors", "generation_config.json"
TOKENIZER, CARD = "tokenizer.json", "README.md"
REMEMBERED = "remembered.toml"
"""File of a run folder with the imports that the run was started with."""


def save_model(
    folder: Path, trained: Task, card: str | bytes, weights: WeightFormat = "float32"
) -> None:
    """Write a model folder, completely or not at all.

    It replaces an older folder. Sampling settings and the prefix are not saved. card: the text of
    README.md. weights: the storage format. Raises `UserError` if the folder cannot be written, a
    weight is too large for float16, the tokenizer is another program's, or the task is an ensemble.
    """
    if getattr(trained, "others", ()):
        raise UserError("an ensemble is several models: save each in a folder of its own")
    vocabularies = [_own(tokenizer).fingerprint for tokenizer in trained.tokenizers]
    config = {
        "model_type": trained.name,
        "format": FORMAT,
        "vocabularies": vocabularies,
        "metric": trained.metric,
        "columns": trained.columns,
        **asdict(trained.model.config),
    }
    if isinstance(trained, Seq2SeqTask):
        config["sentences"] = trained.sentences
    contents = {
        CONFIG: _json(config),
        WEIGHTS: to_safetensors(quantize(trained.model.state_dict(), weights)),
        **tokenizer_files(trained),
    }
    if isinstance(trained, GenerationTask):
        contents[GENERATION] = _json(asdict(trained.search))
    contents[SUMS] = checksums(contents)
    contents[CARD] = card if isinstance(card, bytes) else card.encode()
    write_folder_atomically(folder, contents)


def tokenizer_files(trained: Task) -> dict[str, bytes]:
    """Return the contents of a model's tokenizer files by name: one, or one per side.

    Raises `UserError` if a tokenizer is another program's.
    """
    made = trained.tokenizers
    files = {TOKENIZER: _own(made[0]).to_json().encode()}
    if made[-1] is not made[0]:
        files[TARGET_TOKENIZER] = _own(made[-1]).to_json().encode()
    return files


def tokenizers_in(folder: Path) -> dict[str, bytes]:
    """Read the tokenizer files of a model folder of any kind; return contents by name."""
    _, names = model_files(folder)
    return {name: read_file(folder / name) for name in names if name in TOKENIZER_FILES}


def model_files(folder: Path) -> tuple[str, list[str]]:
    """Return the Hugging Face model_type of a model folder, and the names of the model's files.

    The model_type is "" for a folder that Pellucid wrote. The card is not among the files.
    """
    settings = read_json(folder / CONFIG)
    if is_huggingface(settings):
        return settings["model_type"], pretrained_files(folder)
    ours = (CONFIG, WEIGHTS, TOKENIZER, TARGET_TOKENIZER, GENERATION, SUMS)
    return "", [name for name in ours if (folder / name).is_file()]


def load_model(folder: Path, accept_changes: bool = False) -> Task:
    """Load a model from a model folder, a run folder, or by the name of a packaged model.

    The folder may be Pellucid's or Hugging Face's. The model is in eval mode. Raises `UserError`
    naming the file that is missing, damaged, inconsistent with the others, or, unless
    `accept_changes`, changed since it was saved; changes are found only in folders of Pellucid's
    that have SHA256SUMS.
    """
    folder = find_model(folder)
    with naming_imports(folder.parent):
        return _load(folder, accept_changes)


@contextmanager
def naming_imports(run: Path) -> Iterator[None]:
    """Add to an error about an unknown part the `import`s that its run was started with.

    Those that are imported now are not named; other errors pass unchanged. run: the run folder.
    """
    try:
        yield
    except UserError as error:
        path = run / REMEMBERED
        kept = read_toml(path).get("imports", []) if path.is_file() else []
        missing = [part for part in kept if part not in imports()]
        if not missing or GIVE not in str(error):
            raise
        given = f"the run was started with {' '.join(f'`import` {part}' for part in missing)}"
        raise type(error)(str(error).replace(GIVE, given)) from None


def _load(folder: Path, accept_changes: bool) -> Task:
    settings = read_json(folder / CONFIG)
    if is_huggingface(settings):
        theirs = read_pretrained(folder)
        made = read_tokenizers(folder, theirs)
        search = read_search(folder, isinstance(theirs, CausalLM))
        read: Task = task_of(theirs).of(theirs, made, search, read_arithmetic(folder))
        if isinstance(read, Seq2SeqTask) and not isinstance(made[0], SentencePieceTokenizer):
            return replace(read, sentences=None)  # only Marian's are known to read single sentences
        return read
    model_type = settings.pop("model_type", None)
    if not isinstance(model_type, str) or model_type not in TASKS:
        if str(model_type).startswith("pellucid-"):
            raise UserError(
                f"{folder / CONFIG}: a model of the kind {model_type}, which is not known here; "
                + GIVE
            )
        raise UserError(
            f"{folder / CONFIG}: not a model of Pellucid's (model_type is {model_type!r}"
            f"{nearest(str(model_type), TASKS)}; expected one of {', '.join(TASKS)})"
        )
    task = TASKS[model_type]
    if (made_by := settings.pop("format", None)) != FORMAT:
        raise UserError(
            f"{folder / CONFIG}: model format {made_by}, this Pellucid reads {FORMAT}; read it "
            "with the version that wrote it"
        )
    made_with = settings.pop("vocabularies", None)
    read_together, metric = settings.pop("sentences", 1), settings.pop("metric", "none")
    columns = settings.pop("columns", 1)
    config: Any = _from_json(task.config_class, settings, folder / CONFIG)
    if error := token_error(config):
        raise UserError(f"{folder / CONFIG}: {error}")
    paths, tokenizers = _read_tokenizers(folder, task.tokenizer_sizes(config), made_with)
    stored = read_weights(folder / WEIGHTS)
    with raised_as(UserError, QuantizeError, where=f"{folder / WEIGHTS}"):
        state = dequantize(stored)
    arithmetic: Arithmetic = "float32"  # what the weights are to be multiplied in
    if any(array.dtype == np.int8 for array in stored.values()):
        arithmetic = "int8"
    if faults := size_faults(config, state):
        raise UserError(
            f"{folder / CONFIG}: does not fit {WEIGHTS}: {'; '.join(faults)}; one of them is "
            "damaged or of another model: copy both again"
        )
    search, files = SearchConfig(), [CONFIG, WEIGHTS, *(path.name for path in paths)]
    if task.generates:
        search = _from_json(SearchConfig, read_json(folder / GENERATION), folder / GENERATION)
        files.append(GENERATION)
        config = without_unknown(config, tokenizers[-1])
    model = task.model_class(config)
    check_weights(state, folder / WEIGHTS)
    with raised_as(UserError, StateError, where=f"{folder / WEIGHTS}"):
        model.load_state_dict(state)
    if not accept_changes:  # last: an error above says more
        _check_unchanged(folder, files)
    own: Task = task.of(model.eval(), tokenizers, search, arithmetic)
    own = replace(own, metric=metric, columns=columns)
    return replace(own, sentences=read_together) if isinstance(own, Seq2SeqTask) else own


def _read_tokenizers(
    folder: Path, sizes: list[int], made_with: Any
) -> tuple[list[Path], list[Tokenizer]]:
    """Read the tokenizer files of a model folder.

    Return their paths and the tokenizers. sizes: of the vocabularies. made_with: the fingerprints
    of their tokenizers. Raises `UserError` for a tokenizer that is missing or belongs to another
    model.
    """
    if not isinstance(made_with, list) or len(made_with) < len(sizes):
        raise UserError(f"{folder / CONFIG}: vocabularies is damaged; copy it again")
    paths = [folder / TOKENIZER]
    if len(sizes) == 2 and (folder / TARGET_TOKENIZER).exists():
        paths.append(folder / TARGET_TOKENIZER)
    elif len(sizes) == 2 and made_with[0] != made_with[-1]:
        raise UserError(
            f"{folder / TARGET_TOKENIZER}: is missing; the model was trained with a tokenizer for "
            "each side: copy it again"
        )
    made = [Tokenizer.load(path) for path in paths]
    for i, (size, wanted) in enumerate(zip(sizes, made_with, strict=False)):
        tokenizer, path = made[i % len(made)], paths[i % len(made)]
        if tokenizer.vocab_size != size:
            raise UserError(
                f"{path}: has {tokenizer.vocab_size} tokens, the model's {CONFIG} says {size}; it "
                "belongs to another model"
            )
        if wanted not in (None, tokenizer.fingerprint):
            raise UserError(
                f"{path}: its tokens are not those that the model was trained with; it belongs to "
                "another model"
            )
    return paths, made


def _own(tokenizer: Any) -> Tokenizer:
    """Check that a tokenizer is one of Pellucid's. Raises `UserError` otherwise."""
    if not isinstance(tokenizer, Tokenizer):
        raise UserError(
            "only models trained here are written as model folders; this one has another program's "
            "tokenizer"
        )
    return tokenizer


def _check_unchanged(folder: Path, names: list[str]) -> None:
    """Raise `UserError` naming a file that was changed after the model was saved."""
    if not os.path.lexists(folder / SUMS):  # an older folder; a link to nothing is damage
        return
    changed = changed_file(folder, {name: read_file(folder / name) for name in names})
    if changed is not None:
        raise UserError(
            f"{folder / changed}: was changed after the model was saved (its digest is not the one "
            f"in {SUMS}); copy the folder again, or, if the change is meant, give "
            "`accept_changes`"
        )


def folder_size(folder: Path) -> str:
    """Format the total size of a model folder's files."""
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.1f} MB"


def shipped_models() -> dict[str, Path]:
    """Return the folders of the models that come with the package, by name."""
    folders = Path(__file__).parents[1].joinpath("trained").iterdir()
    return {folder.name: folder for folder in sorted(folders) if (folder / CONFIG).is_file()}


def find_model(folder: Path) -> Path:
    """Find the model folder: `folder` itself, or the one in a run folder.

    A name without a folder may be that of a model that comes with the package. Raises `UserError`
    naming what was found instead.
    """
    for candidate in (folder, folder / "model"):
        if (candidate / CONFIG).is_file():
            return candidate
    if not folder.exists():
        if str(folder) in (shipped := shipped_models()):
            return shipped[str(folder)]
        names = [*shipped, *(each.name for each in folder.parent.glob("*/"))]
        raise UserError(
            f"{folder}: there is no such folder{nearest(folder.name, names)}; train "
            f"a model first, or use one that comes with Pellucid: {', '.join(shipped)}"
        )
    if (folder / "config.toml").exists():
        again = command("train", folder, resume=True)
        raise UserError(f"{folder}: this run has no model yet; finish it: {again}")
    raise UserError(f"{folder}: neither a model (no {CONFIG}) nor a run (no config.toml)")


def _from_json(kind: type[T], values: Mapping[str, Any], path: Path) -> T:
    """Make a config of JSON values.

    Raises `UserError` naming the file for wrong values.
    """
    with raised_as(UserError, UsageError):  # the error is in the file, not in the command
        return from_mapping(kind, values, str(path))


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()

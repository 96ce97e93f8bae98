"""Begin a run with an existing model, of Pellucid or of Hugging Face.

Its sizes, settings, weights and tokenizers are kept; a recipe gives the data and the training. Of
its own settings only those in `FREE` and its search may change. A model of Pellucid gets tokens for
characters, features and labels that are new. The run keeps a copy of the model's files, to resume
from.
"""

import hashlib
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple, cast

import numpy as np

from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import from_mapping, to_mapping
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import Tokenizer
from pellucid.system.files import checksums, folder_atomically
from pellucid.tasks import TASKS, GenerationTask, Task
from pellucid.tasks.folder import find_model, load_model, model_files
from pellucid.training.config import (
    DataConfig,
    RunConfig,
    StartConfig,
    TokenizerConfig,
    load_recipe,
    recipe_values,
)
from pellucid.training.run import START

FREE = {
    "model": (
        "dropout",
        "embedding_dropout",
        "attention_dropout",
        "activation_dropout",
        "masked_share",
        "suppress_tokens",
    ),
    "tokenizer": ("vocab_size", "dropout"),
}
"""Settings that may differ from those of the model: its tensors and answers do not depend on
them."""


SPLIT = ("corpus", "split", "train", "valid", "test", "more", "columns", "leave_out", "held_out")
"""Data settings that determine which data is held out."""

_log = logging.getLogger(__name__)


class Start(NamedTuple):
    """An existing model to begin a run with."""

    trained: Task
    config: StartConfig
    files: Mapping[str, Path]
    """Paths of the files of its folder, by name."""

    @property
    def tokenizer(self) -> TokenizerConfig:
        """The settings of its tokenizers.

        BPE-dropout is 0. For another program's tokenizer they are the defaults, with one for both
        sides.
        """
        made = self.trained.tokenizers
        source, target = made[0], made[-1]
        if not isinstance(source, Tokenizer):
            return TokenizerConfig(shared=True)
        return TokenizerConfig(
            source.kind,
            None if target.kind == source.kind else target.kind,
            max(source.vocab_size, target.vocab_size),
            shared=len(made) == 1 or source is target,
            normalise=source.normalisers,
            typed=source.reading is not None,
        )

    def task(self, config: RunConfig) -> Task:
        """Return the task to train: a copy of this model, with its vocabularies and tokenizers.

        Its search is that of the settings, and so are the model settings that `FREE` names.
        Raises `UsageError` naming a setting that contradicts the model, or for settings of another
        kind of model.
        """
        here = self.config.folder
        model = self.trained.model
        for name, own, wanted in (
            ("model", model.config, config.model),
            ("tokenizer", self.tokenizer, config.tokenizer),
        ):
            if type(own) is not type(wanted):
                raise _another_family(config.model.model_type, self)
            for setting in fields(cast(Any, own)):
                kept, given = getattr(own, setting.name), getattr(wanted, setting.name)
                foreign = name == "tokenizer" and self.config.model_type
                free = (*FREE[name], *self.trained.vocabularies)
                if given != kept and (foreign or setting.name not in free):
                    known = "" if foreign else f", {kept!r}"
                    raise UsageError(
                        f"{name}.{setting.name} = {given!r}: {here} has its own{known}, which "
                        "training keeps; leave the setting out"
                    )
        sizes = {name: getattr(model.config, name) for name in self.trained.vocabularies}
        built = type(model)(replace(config.model, **sizes))
        built.load_state_dict(model.state_dict())
        trained = replace(self.trained, model=built.eval())
        if isinstance(trained, GenerationTask):
            trained = replace(trained, search=config.search, arithmetic="float32")
        return trained

    def keep(self, folder: Path) -> None:
        """Copy the model's files into a folder, completely or not at all.

        Nothing is copied if it was loaded from that folder. Raises `UserError` if that fails.
        """
        if self.config.folder == folder:
            return
        with folder_atomically(folder) as temporary:
            for name, path in self.files.items():
                shutil.copyfile(path, temporary / name)


def open_start(folder: Path, accept_changes: bool = False) -> Start:
    """Load an existing model to train further, from a model folder or a run folder.

    Raises `UserError` for files that are missing or damaged, or, unless `accept_changes`, changed
    since the model was saved; for a model without tokenizer or without a layer that predicts
    tokens; and for a tokenizer with more tokens than the model.
    """
    folder = find_model(folder)
    trained = load_model(folder, accept_changes)
    model = trained.model
    for tokenizer, vocabulary in zip(trained.tokenizers, trained.vocabularies, strict=True):
        tokenizer.encode("")  # raises where there is none
        entries = getattr(model.config, vocabulary)
        if not isinstance(tokenizer, Tokenizer) and tokenizer.vocab_size > entries:
            raise UserError(
                f"{folder}: its tokenizer has {tokenizer.vocab_size} tokens, its model {entries}; "
                "one of them belongs to another model"
            )
    if not getattr(model.config, "head", True):
        raise UserError(
            f"{folder}: the model has no layer that predicts tokens, so it cannot be trained on; "
            "take a checkpoint with its head"
        )
    kind, names = model_files(folder)
    files = {name: folder / name for name in names}
    return Start(trained, StartConfig(folder, _digest(files), kind), files)


def new_tokens(trained: Task, pairs: Sequence[TextPair]) -> list[Tokenizer]:
    """Return a model's tokenizers with a token for each unknown character or label of pairs.

    They must be Pellucid's; those of BPE and of words stay as they are. A warning lists the new
    tokens; a long list is cut short. See `Tokenizer.with_new`.
    """
    sources = [pair.source for pair in pairs]
    targets = [text for pair in pairs for text in pair.targets]
    one = trained.source is trained.target
    sides = [("vocabulary", sources + targets)]
    if not one:
        sides = [("source's vocabulary", sources), ("target's vocabulary", targets)]
    made = []
    for before, (where, texts) in zip(trained.tokenizers, sides, strict=False):
        after = before.with_new(texts, trained.kind in ("continue", "fill"))
        if added := after.vocabulary[before.vocab_size :]:
            some = shorten(" ".join(map(repr, added)), 99, placeholder=" …")
            _log.warning(f"{len(added)} new tokens in the {where} have rows of their own: {some}")
        made.append(after)
    return made


def enlarged(trained: Task, made: Sequence[Tokenizer], seed: int) -> Task:
    """Return a task whose model has further rows for the new tokens of its tokenizers.

    made: the tokenizers, which keep the ids of the old ones. seed: of the initial values of new
    rows. The model is a new one, in eval mode. Existing rows are kept bit for bit. Entries that
    belong to no tokenizer, such as the mask, stay the last.
    """
    model, ends = trained.model, (made[0], made[-1])[-len(trained.vocabularies) :]
    sizes = [tokenizer.vocab_size for tokenizer in ends]
    sizes[-1] += trained.added_tokens
    config = replace(model.config, **dict(zip(trained.vocabularies, sizes, strict=True)))
    larger = type(model)(config, seed=seed).eval()
    state = {name: np.array(x) for name, x in larger.state_dict().items()}
    for name, old in model.state_dict().items():
        new = state[name]
        last = trained.added_tokens if len(old) < len(new) else 0
        first = len(old) - last
        new[:first], new[len(new) - last :] = old[:first], old[first:]
    larger.load_state_dict(state)
    return replace(trained, model=larger, source=made[0], target=made[-1])


def opened(config: StartConfig, run: Path | None, accept_changes: bool = False) -> Start:
    """Open the model that a run begins with; a resumed run has a copy of it.

    run: folder of the resumed run, or None. accept_changes: as in `open_start`. Raises `UserError`
    as `open_start`, and if the checksum is not that of `config`.
    """
    kept = config.folder if run is None or not (run / START).is_dir() else run / START
    start = open_start(kept, accept_changes or kept != config.folder)
    if config.sha256 not in ("", start.config.sha256):
        raise UserError(
            f"{start.config.folder}: is not the model that the run began with (start.sha256 "
            "differs); put it back, or start a new run in another folder"
        )
    return start


def warn_of_other_data(data: DataConfig, others: Iterable[Path]) -> None:
    """Warn about models that may have been trained on data that is held out now.

    others: run folders or checkpoints of those models.
    """

    def split(own: DataConfig) -> DataConfig:
        """Return data settings with those of `SPLIT` only."""
        return replace(DataConfig(), **{name: getattr(own, name) for name in SPLIT})

    for path in others:
        own = None
        with suppress(UserError):  # of settings that this version does not read
            own = load_recipe(str(path)).data if (path / "config.toml").is_file() else None
        if own is None or split(own) != split(data) or (own.train and own.sha256 != data.sha256):
            _log.warning(
                f"{path}: not known to have been trained on the same split of the same data; if it "
                "has seen some of what is held out here, the scores are too good"
            )


def folder_of(recipe: str) -> Path:
    """Return the default run folder of a recipe: runs/NAME, of a TOML file without its suffix.

    If a folder is given as recipe, it is the run folder.
    """
    return Path(recipe) if Path(recipe).is_dir() else Path("runs") / Path(recipe).stem


def settings_of(
    recipe: str, folder: Path, start: Path | None, resume: bool, accept_changes: bool = False
) -> RunConfig:
    """Return the initial settings of a run: those of the resumed run, or of the recipe.

    folder: the run folder. start: folder of an existing model to begin a new run with.
    accept_changes: open it although its files changed since it was saved. Raises `UsageError` if
    `start` is given for a resumed run, and as `load_recipe` and `load_recipe_from`.
    """
    if resume and (folder / "config.toml").is_file():
        if start is not None:
            raise UsageError(
                f"{folder}: a run that is resumed has the model that it began with: leave `start` "
                "out, or start a new run in another folder"
            )
        return load_recipe(str(folder))
    if start is None:
        return load_recipe(recipe)
    return load_recipe_from(recipe, open_start(start, accept_changes))


def changed(config: RunConfig, base: RunConfig) -> RunConfig:
    """Complete a recipe's settings after the user changed some of them; return them.

    config: with the changes. base: the recipe's own. The description is removed if the user's files
    replace the recipe's corpus, unless the user changed it too. Raises `UsageError` for a changed
    setting that would have no effect.
    """
    _refuse_idle(config.data, base.data)
    replaced = bool(config.data.train and base.data.corpus and not base.data.train)
    if replaced and config.description == base.description:  # it is the corpus's
        return replace(config, description="")
    return config


def _refuse_idle(data: DataConfig, base: DataConfig) -> None:
    """Raise `UsageError` for a changed data setting that would have no effect."""
    own, corpus = "files of your own", bool(data.corpus) and not data.train
    for name, use, idle in (
        ("split", "a corpus; files of your own replace it", bool(data.train)),
        ("columns", f"{own}; a corpus has no columns", corpus),
        ("held_out", f"{own}; a corpus has its own split", corpus),
        ("held_out", f"{own} without validation files", bool(data.valid)),
    ):
        if idle and getattr(data, name) != getattr(base, name):
            raise UsageError(f"`data.{name}` is for {use}: leave it out")


def load_recipe_from(name: str, start: Start) -> RunConfig:
    """Return the settings to train an existing model with a recipe's data and training.

    Model, tokenizers and search are those of `start`. Those that a packaged recipe names are
    ignored, except its BPE-dropout, which concerns only training. In a TOML file of the user,
    search and the settings in `FREE` replace those of `start`; other settings that contradict the
    model are an error. `max_tokens` is limited to the model's `max_position_embeddings` less 2,
    unless the user's file sets it. Raises `UsageError` for such a contradiction, and for a recipe
    of another kind of model.
    """
    values, source, own = recipe_values(name)
    model, task = start.trained.model.config, start.trained

    def table(key: str) -> Mapping[str, Any]:
        if not isinstance(found := values.get(key, {}), Mapping):
            raise UsageError(f"{source}: {key}: expected a table, got {found!r}")
        return found

    usual = task.name if own else next(iter(TASKS))
    if (wanted := table("model").get("model_type", usual)) != task.name:
        raise _another_family(wanted, start)
    held: dict[str, Any] = {"model": to_mapping(model), "tokenizer": to_mapping(start.tokenizer)}
    if all(isinstance(each, Tokenizer) and each.kind == "bpe" for each in task.tokenizers):
        held["tokenizer"]["dropout"] = table("tokenizer").get("dropout", 0.0)
    if isinstance(task, GenerationTask):
        held["search"] = to_mapping(task.search)
    merged = {key: {**kept, **(table(key) if own else {})} for key, kept in held.items()}
    data = dict(table("data"))
    if not own or "max_tokens" not in data:
        most = data.get("max_tokens", DataConfig().max_tokens)
        data["max_tokens"] = min(most, model.max_position_embeddings - 2)
    merged |= {"data": data, "start": to_mapping(start.config)}
    config = from_mapping(RunConfig, {**values, **merged}, source)
    start.task(config)  # raises where they contradict each other
    return config


def _another_family(wanted: str, start: Start) -> UsageError:
    return UsageError(
        f"the settings are for a {wanted}, and {start.config.folder} is a {start.trained.name}: "
        "take a recipe of that family, or a TOML file with [data] and [training] only"
    )


def _digest(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 of the names and contents of files."""
    sums = (checksums({name: files[name].read_bytes()}) for name in sorted(files))
    return hashlib.sha256(b"".join(sums)).hexdigest()

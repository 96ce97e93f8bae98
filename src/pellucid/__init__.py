"""Pellucid: the Transformer built from nothing in Python, every derivative by hand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from pellucid import nn, ops
    from pellucid.core.checked import checked
    from pellucid.core.dispatch import reference
    from pellucid.core.rng import Rng
    from pellucid.core.vjp import pair

    Files = str | PathLike[str] | Sequence[str | PathLike[str]]
    Data = Files | Any

__version__ = "0.3.0.dev0"
__all__ = ["Rng", "checked", "load", "nn", "ops", "pair", "reference", "train"]

_HOME = {"Rng": "rng", "checked": "checked", "pair": "vjp", "reference": "dispatch"}
"""Module in `core` of each public name."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that one op alone loads little else."""
    if name in ("nn", "ops"):
        return import_module(f"pellucid.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'pellucid' has no attribute {name!r}")
    return getattr(import_module(f"pellucid.core.{_HOME[name]}"), name)


def load(path: str | PathLike[str], *, accept_changes: bool = False) -> Any:
    """Load a trained model, or an array file of weights.

    A folder gives a task: a model in eval mode with its tokenizers. It may be a model folder or a
    run folder of Pellucid, a model folder of Hugging Face (config.json, model.safetensors,
    tokenizer.json), or the name of a model that comes with the package (`pellucid models`).
    `generate` answers a list of texts; a decoder alone continues them. `stream` yields one answer
    while it is generated, `score` returns log-probabilities of answers. A masked language model has
    `guesses` for the [MASK]s of a text, and `embed` for vectors of texts. A classifier has `labels`
    with probabilities; its `generate` returns the likeliest labels. All have `attention`. `.model`
    is the model itself.

    A .safetensors file gives its arrays by name, for `load_state_dict`; torch's names for a module
    fit the same module of `pellucid.nn`.

    A model folder whose files were changed after it was saved is refused, unless `accept_changes`.
    Raises `UserError` naming the file that is missing, damaged or does not fit the others.

    >>> load("g2p-demo").generate(["attention"])
    ['ətˈɛnʧən']
    >>> layer = nn.Linear(3, 2)  # doctest: +SKIP
    >>> layer.load_state_dict(load("linear.safetensors"))  # doctest: +SKIP
    """
    from pellucid.core.settings import path_of

    if (place := path_of(path, "load")).suffix == ".safetensors":
        from pellucid.system.weights import read_weights

        return read_weights(place)
    from pellucid.tasks.folder import load_model

    return load_model(place, accept_changes)


def train(
    recipe: str | PathLike[str],
    *,
    train: Data = (),
    valid: Data = (),
    test: Data = (),
    steps: int | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    run: str | PathLike[str] | None = None,
    start: str | PathLike[str] | None = None,
    resume: bool = False,
    accept_changes: bool = False,
    device: str = "cpu",
    precision: Any = "float32",
    listeners: Sequence[Callable[[Any], None]] = (),
    watch: Callable[[Any, Any], Callable[[Any], None]] | None = None,
    **tables: Any,
) -> Any:
    """Train as `pellucid train` does, printing its progress; return what `load` returns.

    recipe: a name of `pellucid recipes`, a TOML file of settings, or a run folder.
    train, valid, test: files of pairs or texts, one or several; or the pairs themselves, as tuples
        (three are a pair of texts, or a text and its features, and a target), mappings or a table
        of pandas, Polars or Arrow, which the run folder keeps. Default: the recipe's.
    steps, epochs, minutes: limits in place of the recipe's. The first limit that is reached ends
        training, unless the setting `patience` ends it before.
    run: the run folder; None: runs/ and the recipe's name, or a run folder given as `recipe`.
    start: begin with the model of this folder in place of a new one.
    resume: continue from the newest checkpoint of the run folder, with its settings. A folder
        without a run begins one.
    accept_changes: resume although settings have changed, to train longer for example; or begin
        with a `start` whose files have changed.
    device, precision: as the options of these names; the model that is returned is on the CPU.
    listeners: called with every event of `pellucid.training.events`.
    watch: called with the task and its data before training; returns one more listener.
    tables: further settings, by the tables of a TOML file: `model={"d_model": 64}`.

    An interrupt saves the run and raises `KeyboardInterrupt`. Raises `UserError` for what the user
    can fix: a setting, a file, a folder that already holds a run.

    >>> model = train("g2p-small", train="my.tsv", steps=500)  # doctest: +SKIP
    >>> model = train("topics-ko", train=[("a text", "its label"), …])  # doctest: +SKIP
    """
    _, *own, _ = locals()  # the names of the arguments between recipe and tables
    import hashlib
    from collections.abc import Mapping
    from pathlib import Path

    from pellucid.core.settings import from_mapping, path_of, plain
    from pellucid.data.files import COLUMNS
    from pellucid.data.given import lines_of, paths_in
    from pellucid.system.files import write_atomically
    from pellucid.training.arguments import refuse_unknown
    from pellucid.training.config import RunConfig
    from pellucid.training.events import show
    from pellucid.training.experiment import train_run
    from pellucid.training.start import changed, folder_of, settings_of

    named = str(path_of(recipe, "train: recipe"))
    folder = folder_of(named) if run is None else path_of(run, "train: run")
    begin = None if start is None else path_of(start, "train: start")
    base = settings_of(named, folder, begin, resume, accept_changes)
    files, ends = (train, valid, test), {"steps": steps, "epochs": epochs, "minutes": minutes}
    refuse_unknown(tables, base, *own)
    table = tables.get("data")
    columns = table.get("columns") if isinstance(table, Mapping) else None
    data, written = dict[str, Any](), dict[Path, str]()
    for name, given in zip(("train", "valid", "test"), files, strict=True):
        if (paths := paths_in(given)) is None:
            names, lines = lines_of(given, columns, name)
            text = "".join(f"{line}\n" for line in lines)
            digest = hashlib.sha256(text.encode()).hexdigest()
            paths = [folder / "data" / f"{name}-{digest[:12]}.jsonl"]
            written[paths[0]] = text
            if names != COLUMNS or base.data.columns:
                data["columns"] = names
        if paths:
            data[name] = paths
    training = {name: value for name, value in ends.items() if value is not None}
    config = from_mapping(RunConfig, plain({"data": data, "training": training}), "train", base)
    config = changed(from_mapping(RunConfig, plain(tables), "train", config), base)
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    outcome = train_run(
        config, folder, listeners=[show, *listeners], say=show, watch=watch, resume=resume,
        accept_changes=accept_changes, device=device, precision=precision,
    )  # fmt: skip
    if outcome.interrupted is not None:
        raise KeyboardInterrupt(f"{outcome.interrupted}: the run is saved; train(…, resume=True)")
    return outcome.trained

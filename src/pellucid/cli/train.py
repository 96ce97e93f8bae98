"""`pellucid train RECIPE`: any setting is a flag; Ctrl-C saves and says how to go on."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveTypeInfo,
    UnsupportedTypeAnnotationError,
)

from pellucid.cli.console import Output
from pellucid.cli.options import refuse_repeated
from pellucid.cli.progress import Progress
from pellucid.core.errors import UsageError
from pellucid.models.quantize import WeightFormat
from pellucid.training.config import DataConfig, RunConfig, load_recipe, recipe_names
from pellucid.training.experiment import train_run

LISTS = ("--data.train", "--data.valid", "--data.test", "--tokenizer.normalise")
INTERRUPTED = {"SIGINT": 130, "SIGTERM": 143}

OFFERED = ConstructorRegistry()
"""What the parser makes options of."""


@OFFERED.primitive_rule
def _no_choice(info: PrimitiveTypeInfo) -> UnsupportedTypeAnnotationError | None:
    """Make no option of what can be one value only: it says of which kind a model is."""
    one = get_origin(info.type) is Literal and len(get_args(info.type)) == 1
    return UnsupportedTypeAnnotationError(()) if one else None


def run(arguments: list[str]) -> int:
    """Run the verb: the recipe named first gives the settings their defaults."""
    refuse_repeated(arguments, *LISTS)
    _refuse_another_kind(arguments)
    resume = "--resume" in arguments
    rest = [word for word in arguments if word != "--resume"]
    name = rest.pop(0) if rest and not rest[0].startswith("-") else None
    if name is None and not {"-h", "--help"} & set(rest):
        raise UsageError(
            "which recipe? Say `pellucid train NAME`, with a recipe, a TOML file of your own or, "
            f"to --resume, a run folder; recipes: {', '.join(recipe_names())}"
        )
    base, folder = _start(name, rest, resume)

    def train(
        *,
        config: Annotated[RunConfig, tyro.conf.arg(name="")] = base,
        run: Path = folder,
        accept_changes: bool = False,
        store: WeightFormat = "float32",
    ) -> int:
        """Train a recipe, a TOML file of settings or, with --resume, a run that was stopped.

        With --resume, training goes on from the run folder's newest checkpoint, with the settings
        it was started with. Every setting below can also stand in a TOML file of your own, under
        the same names.

        Args:
            run: The run's folder: settings, metrics, checkpoints and the trained model.
            accept_changes: Resume although settings or data differ from those it was started with;
                the tokenizer's settings and the model's sizes never may.
            store: How the model folder keeps the weights; arithmetic is float32 all the same.
        """
        _refuse_idle(config.data, base.data)
        return _train(config, run, resume, accept_changes, store)

    # The kind of model is the recipe's: neither a word nor an option.
    with OFFERED:
        return tyro.cli(
            train,
            prog=f"pellucid train {name or 'RECIPE'} [--resume]",
            args=rest,
            config=(tyro.conf.AvoidSubcommands, tyro.conf.SuppressFixed),
        )


def run_folder(recipe: str) -> Path:
    """Return where the run of a recipe, a TOML file or a run folder is, unless said otherwise."""
    return Path(recipe) if Path(recipe).is_dir() else Path("runs") / Path(recipe).stem


def _refuse_another_kind(arguments: list[str]) -> None:
    for word in arguments:
        if word.partition("=")[0].replace("_", "-") == "--model.model-type":
            raise UsageError(
                f"{word}: the kind of model is the recipe's; take a recipe of that kind, or set "
                "model.model_type in a TOML file of your own"
            )


def _refuse_idle(data: DataConfig, base: DataConfig) -> None:
    """Refuse words that would change nothing; the recipe's own settings may be idle."""
    own, corpus = "files of your own", bool(data.corpus) and not data.train
    for name, use, idle in (
        ("split", "a corpus, and files of your own take its place", bool(data.train)),
        ("columns", f"{own}; a corpus has none to name", corpus),
        ("held_out", f"{own}; a corpus has its own split", corpus),
        ("held_out", f"{own} without validation files beside them", bool(data.valid)),
    ):
        if idle and getattr(data, name) != getattr(base, name):
            raise UsageError(f"--data.{name.replace('_', '-')} is for {use}: leave it out")


def _start(name: str | None, rest: list[str], resume: bool) -> tuple[RunConfig, Path]:
    """Return the settings to start from and the run folder."""
    if name is None:
        return RunConfig(), Path("runs/RECIPE")
    folder = run_folder(name)
    for i, word in enumerate(rest):
        option, joined, value = word.partition("=")
        if option == "--run" and (joined or rest[i + 1 :]):
            if not (value := value if joined else rest[i + 1]):
                raise UsageError("--run needs a folder, as in --run runs/mine; it is empty")
            folder = Path(value)
    if resume and (folder / "config.toml").is_file():
        return load_recipe(str(folder)), folder
    return load_recipe(name), folder


def _train(
    config: RunConfig, folder: Path, resume: bool, accept_changes: bool, store: WeightFormat
) -> int:
    console = Output()
    with Progress(console, folder.resolve().name) as progress:
        result = train_run(
            config,
            folder,
            resume=resume,
            accept_changes=accept_changes,
            weights=store,
            listeners=[progress],
            say=progress.say,
        )
    if result.interrupted is not None:
        return INTERRUPTED.get(result.interrupted, 1)
    named = shlex.quote(str(folder))
    console.print(f"use it:    pellucid generate {named}", markup=False, soft_wrap=True)
    console.print(f"score it:  pellucid evaluate {named}", markup=False, soft_wrap=True)
    return 0

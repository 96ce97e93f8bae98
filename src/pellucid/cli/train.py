"""`pellucid train RECIPE`: any setting is an option; Ctrl-C saves the run to be resumed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from pellucid.cli.console import Output, Progress
from pellucid.cli.language import tr
from pellucid.cli.options import asks_help, parse, split_name, value_of
from pellucid.core.errors import UsageError
from pellucid.models.quantize import WeightFormat
from pellucid.training.config import DataConfig, RunConfig, load_recipe, recipe_names
from pellucid.training.experiment import train_run

LISTS = ("--data.train", "--data.valid", "--data.test", "--tokenizer.normalise")
INTERRUPTED = {"SIGINT": 130, "SIGTERM": 143}


def run(arguments: list[str]) -> int:
    """Run the command: the recipe named first gives the settings their defaults."""
    _refuse_another_family(arguments)
    resumed = "--resume" in arguments
    name, rest = split_name([word for word in arguments if word != "--resume"])
    if name is None and not asks_help(rest):
        raise UsageError(
            "which recipe? Use `pellucid train NAME`, with a recipe, a TOML file of your own or, "
            f"with --resume, a run folder; recipes: {', '.join(recipe_names())}"
        )
    base, folder = _start(name, rest, resumed)

    def train(
        *,
        config: Annotated[RunConfig, tyro.conf.arg(name="")] = base,
        resume: bool = resumed,
        run: Path = folder,
        accept_changes: bool = False,
        weights: WeightFormat = "float32",
    ) -> int:
        """Train a recipe or a TOML file of settings, or resume a run that was stopped.

        Every setting below can also be in a TOML file of your own, under the same name.

        Args:
            resume: Continue from the newest checkpoint of the run folder, with its settings.
            run: The run folder: settings, metrics, checkpoints and the trained model.
            accept_changes: Resume although settings or data have changed; the tokenizer's settings
                and the model's sizes cannot.
            weights: How the model folder stores the weights; arithmetic is float32 in any case.
        """
        _refuse_idle(config.data, base.data)
        return _train(config, run, resume, accept_changes, weights)

    return parse(
        train,
        f"train {name or 'RECIPE'}",
        rest,
        lists=LISTS,
    )


def run_folder(recipe: str, arguments: Sequence[str]) -> Path:
    """Return the folder that --run gives; else one named after the recipe, or that run itself."""
    if (typed := value_of(arguments, "--run")) is None:
        return Path(recipe) if Path(recipe).is_dir() else Path("runs") / Path(recipe).stem
    if not typed:
        raise UsageError("--run needs a folder, as in --run runs/mine; it is empty")
    return Path(typed)


def _refuse_another_family(arguments: list[str]) -> None:
    for word in arguments:
        if word.partition("=")[0].replace("_", "-") == "--model.model-type":
            raise UsageError(
                f"{word}: the recipe sets the model family; use a recipe of that family, or set "
                "model.model_type in a TOML file of your own"
            )


def _refuse_idle(data: DataConfig, base: DataConfig) -> None:
    """Refuse options that would have no effect; the recipe's own settings may have none."""
    own, corpus = "files of your own", bool(data.corpus) and not data.train
    for name, use, idle in (
        ("split", "a corpus; files of your own replace it", bool(data.train)),
        ("columns", f"{own}; a corpus has no columns", corpus),
        ("held_out", f"{own}; a corpus has its own split", corpus),
        ("held_out", f"{own} without validation files", bool(data.valid)),
    ):
        if idle and getattr(data, name) != getattr(base, name):
            raise UsageError(f"--data.{name.replace('_', '-')} is for {use}: leave it out")


def _start(name: str | None, rest: list[str], resume: bool) -> tuple[RunConfig, Path]:
    """Return the settings to start from and the run folder."""
    if name is None:
        return RunConfig(), Path("runs/RECIPE")
    folder = run_folder(name, rest)
    if resume and (folder / "config.toml").is_file():
        return load_recipe(str(folder)), folder
    return load_recipe(name), folder


def _train(
    config: RunConfig, folder: Path, resume: bool, accept_changes: bool, weights: WeightFormat
) -> int:
    console = Output()
    with Progress(console, folder.resolve().name) as progress:
        result = train_run(
            config,
            folder,
            resume=resume,
            accept_changes=accept_changes,
            weights=weights,
            listeners=[progress],
            say=progress.say,
        )
    if result.interrupted is not None:
        return INTERRUPTED.get(result.interrupted, 1)
    named = shlex.quote(str(folder))
    for what, command in ((tr("use it:   "), "generate"), (tr("score it: "), "evaluate")):
        console.print(f"{what} pellucid {command} {named}", markup=False, soft_wrap=True)
    return 0

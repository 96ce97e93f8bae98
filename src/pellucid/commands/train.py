"""`pellucid train RECIPE`: any setting is a flag; Ctrl-C saves and says how to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from pellucid.commands.progress import Progress
from pellucid.config import RunConfig, load_recipe, recipe_names
from pellucid.errors import UsageError
from pellucid.experiment import train_run

INTERRUPTED = {"SIGINT": 130, "SIGTERM": 143}


def run(arguments: list[str]) -> int:
    """Run the verb: the recipe named first gives the flags their defaults."""
    resume = "--resume" in arguments
    rest = [word for word in arguments if word != "--resume"]
    named = rest and not rest[0].startswith("-")
    name = rest.pop(0) if named else ""
    if not named and not {"-h", "--help"} & set(rest):
        raise UsageError(
            "which recipe? Say `pellucid train NAME`, a TOML file of your own or, with --resume, a "
            f"run folder; recipes: {', '.join(recipe_names())}"
        )
    place = Path(name) if Path(name).is_dir() and named else Path("runs") / Path(name).stem

    def train(
        config: Annotated[RunConfig, tyro.conf.arg(name="")],
        run: Path = place,
    ) -> int:
        """Train a recipe, a TOML file of settings, or (with --resume) go on with a run.

        pellucid train RECIPE|FILE.toml|RUN [--resume] [--SETTING VALUE ...]

        --resume goes on from the newest checkpoint of the run folder, with the settings it was
        started with.

        Args:
            run: The run's folder: settings, metrics, checkpoints and the trained model.
        """
        return _train(config, run, resume)

    folder = _option(rest, "--run", place)
    base = load_recipe(str(folder)) if resume and (folder / "config.toml").is_file() else None
    if base is None:
        base = load_recipe(name) if named else RunConfig()
    return tyro.cli(
        train,
        prog=f"pellucid train {name or 'RECIPE'}",
        args=[*rest],
        default=base,
    )


def _train(config: RunConfig, folder: Path, resume: bool) -> int:
    console = Console(highlight=False)
    with Progress(console, folder.name) as progress:
        result = train_run(config, folder, resume=resume, listeners=[progress], say=console.print)
    if result.interrupted is not None:
        return INTERRUPTED.get(result.interrupted, 1)
    console.print(f"Use it:      pellucid generate {folder}", markup=False)
    console.print(f"Score it:    pellucid evaluate {folder}", markup=False)
    return 0

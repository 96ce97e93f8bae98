"""`pellucid train RECIPE`: train.

Every setting is an option, and Ctrl-C saves the run.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from pellucid.apps.cli.console import Output, Progress
from pellucid.apps.cli.language import tr
from pellucid.apps.cli.options import Flat, accepts_changes, named, parse, value_of
from pellucid.apps.view.film import filming, frames
from pellucid.core.errors import UsageError
from pellucid.kernels.choices import Choices
from pellucid.kernels.device import CPU, Precision
from pellucid.models.quantize import WeightFormat
from pellucid.system.command import command
from pellucid.training.config import RunConfig, recipe_names
from pellucid.training.events import Event, Listener, Stepped
from pellucid.training.experiment import Outcome, train_run
from pellucid.training.start import changed, folder_of, settings_of

INTERRUPTED = {"SIGINT": 130, "SIGTERM": 143}


def run(arguments: list[str]) -> int:
    """Run `pellucid train` with its arguments; return the exit code.

    The recipe, its first argument, gives the defaults of the settings.
    """
    _refuse_another_family(arguments)
    resumed = "--resume" in arguments
    name, rest = named(
        [word for word in arguments if word != "--resume"],
        "which recipe? Use `pellucid train NAME`, with a recipe, a TOML file of your own or, "
        f"with --resume, a run folder; recipes: {', '.join(recipe_names())}",
    )
    base, folder = _start(name, rest, resumed)
    begin = base.start
    base = replace(base, start=None)  # --from is its option

    def train(
        *,
        config: Flat[RunConfig] = base,
        start: Annotated[Path | None, tyro.conf.arg(name="from")] = None,  # was read above
        resume: bool = resumed,
        run: Path = folder,
        accept_changes: bool = False,
        weights: WeightFormat | None = None,
        device: str = CPU,
        precision: Precision = "float32",
        explain_kernels: bool = False,
        film: str | None = None,
        film_answer: str | None = None,
    ) -> int:
        """Train a recipe or a TOML file of settings, or resume a run that was stopped.

        Every setting below can also be in a TOML file of your own, under the same name.

        Args:
            start: Begin with the model of this folder, a run's or Hugging Face's, in place of a
                new one. Its sizes, settings and tokenizers are kept; the recipe gives data and
                training. Hugging Face's is written again as transformers reads it.
            resume: Continue from the newest checkpoint of the run folder, with its settings.
            run: The run folder: settings, metrics, checkpoints and the trained model.
            accept_changes: Resume although settings or data have changed; the tokenizer's settings
                and the model's sizes cannot.
            weights: How the model folder stores the weights; the run itself computes in float32.
                Unset: float32, or what the resumed run began with.
            device: Where to compute: cpu; with PyTorch cuda, cuda:1, or torch:DEVICE. A run may be
                resumed on another one.
            precision: Of matrix products: float32; bfloat16, which is faster on processors with
                AVX512-BF16 and on GPUs (the weights that are learnt stay float32); tf32 on a GPU
                (their inputs are rounded).
            explain_kernels: After the first step list which kernel computed each op, or why none
                did.
            film: Keep the attention of this text at 20 to 40 steps: `pellucid view` then shows the
                run learning. A resumed run goes on with its film.
            film_answer: Its answer; unset: that of the data.
        """
        config = replace(changed(config, base), start=begin)
        how: dict[str, Any] = {
            "resume": resume,
            "accept_changes": accept_changes,
            "weights": weights,
            "device": device,
            "precision": precision,
            "watch": filming(run, film, film_answer, resume=resume),
        }
        with Choices() if explain_kernels else nullcontext() as choices:
            return _train(config, run, choices, how)

    return parse(train, f"train {name or 'RECIPE'}", rest)


def show_run(
    config: RunConfig, folder: Path, listeners: Iterable[Listener] = (), **how: Any
) -> Outcome:
    """Train as `train_run` does, and show the progress."""
    with Progress(Output(), folder.resolve().name) as progress:
        every: list[Listener] = [progress, *listeners]
        return train_run(config, folder, listeners=every, say=progress.say, **how)


def _refuse_another_family(arguments: list[str]) -> None:
    """Raise `UsageError` for an option that would change the kind of model."""
    for word in arguments:
        if word.partition("=")[0].replace("_", "-") == "--model.model-type":
            raise UsageError(
                f"{word}: the recipe sets the model family; use a recipe of that family, or set "
                "model.model_type in a TOML file of your own"
            )


def _start(name: str | None, rest: list[str], resume: bool) -> tuple[RunConfig, Path]:
    """Return the initial settings and the run folder, before the options are parsed."""
    if name is None:
        return RunConfig(), Path("runs/RECIPE")
    run = value_of(rest, "--run")
    if run == "":
        raise UsageError("--run needs a folder, as in --run runs/mine; it is empty")
    folder = Path(run) if run else folder_of(name)
    begin = value_of(rest, "--from")
    start = None if begin is None else Path(begin)
    return settings_of(name, folder, start, resume, accepts_changes(rest)), folder


def _train(config: RunConfig, folder: Path, choices: Choices | None, how: Mapping[str, Any]) -> int:
    """Train and show the progress; return the exit code.

    how: further arguments of `train_run`. choices: records kernels, to be printed after one step.
    """
    console = Output()

    def explain(event: Event) -> None:
        nonlocal choices
        if choices is not None and isinstance(event, Stepped):
            console.say(str(choices))
            choices = None

    result = show_run(config, folder, [explain], **how)
    if result.interrupted is not None:
        return INTERRUPTED.get(result.interrupted, 1)
    uses = [(tr("use it:   "), "generate"), (tr("score it: "), "evaluate")]
    if frames(folder):
        uses.append((tr("watch it: "), "view --open"))
    for what, words in uses:
        console.say(f"{what} {command(*words.split(), folder)}")
    return 0

"""`pellucid train RECIPE`: any setting is an option; Ctrl-C saves the run to be resumed.

`--workers` starts several processes through torchrun, each of which is this command again; torchrun
itself may start them, on several machines. The first worker reads the options; the others do as it.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
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
from pellucid.core.settings import from_mapping, to_mapping
from pellucid.kernels.choices import Choices
from pellucid.kernels.device import CPU, Precision
from pellucid.models.quantize import WeightFormat
from pellucid.system.command import command
from pellucid.training.config import PARTS, RunConfig, recipe_names
from pellucid.training.events import Event, Listener, Stepped
from pellucid.training.experiment import Outcome, train_run
from pellucid.training.launch import RESTARTS, launch
from pellucid.training.start import changed, folder_of, settings_of
from pellucid.training.torch_workers import TIMEOUT, check_alike, join, started_as_worker
from pellucid.training.workers import Workers

_log = logging.getLogger(__name__)

INTERRUPTED = {"SIGINT": 130, "SIGTERM": 143}


def run(arguments: list[str]) -> int:
    """Run the command: the recipe named first gives the settings their defaults."""
    if not started_as_worker():
        return _run(arguments, Workers())
    with join(_timeout(arguments)) as workers:
        others = check_alike(workers, arguments)
        if workers.rank:
            logging.disable(logging.WARNING)  # the first worker gives them
            return _follow(workers)
        if others:
            _log.warning(
                "the workers' machines differ (%s): results agree to rounding, not bit for bit",
                "; ".join(others),
            )
        return _run(arguments, workers)


def _run(arguments: list[str], joined: Workers) -> int:
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
        workers: int = 1,
        restarts: int = RESTARTS,
        timeout: float = TIMEOUT,
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
            workers: Train in this many processes, which share this machine's cores. The result
                depends on training.parts, not on their number. Needs PyTorch.
            restarts: How often workers of which one died are started again, from the newest
                checkpoint.
            timeout: Seconds that workers wait for one that does not answer, before all end.
            explain_kernels: After the first step list which kernel computed each op, or why none
                did.
            film: Keep the attention of this text at 20 to 40 steps: `pellucid view` then shows the
                run learning. A resumed run goes on with its film.
            film_answer: Its answer; unset: that of the data.
        """
        config = replace(changed(config, base), start=begin)
        parts = config.training.parts or PARTS
        if device != CPU and (workers > 1 or joined.size > 1):
            raise UsageError(
                "--workers train on the CPU; leave --device out, or train in one process"
            )
        for option, value, least in (("workers", workers, 1), ("restarts", restarts, 0)):
            if value < least:
                raise UsageError(f"--{option} must be at least {least}, got {value}")
        if not 0 < timeout < math.inf:
            raise UsageError(f"--timeout must be above 0 and finite, got {timeout}")
        if workers > 1 and started_as_worker():
            raise UsageError("--workers starts workers, and torchrun has done so: leave it out")
        if workers > parts:
            raise UsageError(
                f"--workers {workers} is more than the {parts} parts of a step; set "
                f"--training.parts to {workers} or more"
            )
        if workers > 1:
            return launch(arguments, workers, restarts)
        # Whoever replaces workers goes on with the run that they began.
        going_on = resume or (joined.begun and (run / "config.toml").exists())
        how: dict[str, Any] = {"resume": going_on, "accept_changes": accept_changes}
        how["weights"] = weights
        joined.broadcast_json((to_mapping(config), str(run), how))
        how |= {"device": device, "precision": precision, "workers": joined}
        how["watch"] = filming(run, film, film_answer, resume=going_on)
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


def run_folder(recipe: str, arguments: Sequence[str]) -> Path:
    """Return the folder that --run gives; else one named after the recipe, or that run itself."""
    if (typed := value_of(arguments, "--run")) is None:
        return folder_of(recipe)
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


def _start(name: str | None, rest: list[str], resume: bool) -> tuple[RunConfig, Path]:
    """Return the settings to start from and the run folder."""
    if name is None:
        return RunConfig(), Path("runs/RECIPE")
    folder = run_folder(name, rest)
    begin = value_of(rest, "--from")
    start = None if begin is None else Path(begin)
    return settings_of(name, folder, start, resume, accepts_changes(rest)), folder


def _timeout(arguments: Sequence[str]) -> float:
    try:
        return float(value_of(arguments, "--timeout") or TIMEOUT)
    except ValueError:
        return TIMEOUT  # the option's own error comes with the others


def _follow(workers: Workers) -> int:
    """Train as the first worker says, which prints and writes everything."""
    settings, folder, how = workers.broadcast_json(None)
    config = from_mapping(RunConfig, settings, "the first worker's settings")
    result = train_run(config, Path(folder), workers=workers, **how)
    return INTERRUPTED.get(result.interrupted or "", 0)


def _train(config: RunConfig, folder: Path, choices: Choices | None, how: Mapping[str, Any]) -> int:
    """Train, showing the progress; `how` holds the further arguments of `train_run`."""
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

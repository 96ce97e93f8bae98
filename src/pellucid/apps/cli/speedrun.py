"""`pellucid speedrun`: measure the time to reach a quality, over random seeds."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import tr
from pellucid.core.errors import UsageError, UserError, optional
from pellucid.kernels.backend.machine import environment
from pellucid.tasks import task_of
from pellucid.tasks.metrics import METRICS
from pellucid.training.config import load_recipe
from pellucid.training.experiment import Prepared, make_tokenizers, read_material, score


class Bar(NamedTuple):
    """A quality to reach on the validation pairs.

    recipe: that of the record. score: the name of the score, `at` its value to reach. side: "less"
    if a lower score is better, else "greater". shown: the format of a score.
    """

    recipe: str
    score: str
    at: float
    side: Literal["less", "greater"]
    shown: str


BARS = {
    "g2p": Bar("speedrun-g2p", "per", 0.105, "less", "PER {:.2%}"),
    "multi30k": Bar("speedrun-multi30k", "bleu_lower", 36.5, "greater", "BLEU {:.2f}"),
}
CHILD = "import sys; from pellucid.apps.cli.speedrun import timed; timed(*sys.argv[1:])"


def speedrun(
    task: Literal["g2p", "multi30k"],
    /,
    *,
    seeds: int = 8,
    recipe: str = "",
    results: Path = Path("speedrun.jsonl"),
) -> int:
    """Repeat the record: the seconds from an empty cache to a quality, over random seeds.

    g2p: a phoneme error rate of at most 10.5 % on the validation words of the demo's lexicon.
    multi30k: a lower-cased BLEU of at least 36.5, German to English, on Multi30k's validation
    pairs. The clock runs from the start of a process to the trained model, reading the data and
    compiling the kernels included; scoring is outside. The record counts if the mean over the
    seeds reaches the bar with p < 0.01 (one-sided t-test). Needs SciPy and an otherwise idle
    machine.

    Args:
        task: What is learnt.
        seeds: How many random seeds, from 0.
        recipe: Try this recipe or TOML file, not the record's.
        results: A line of JSON for each run is added to this file.
    """
    if seeds < 2:
        raise UsageError(f"--seeds must be at least 2, since a record is a mean; got {seeds}")
    stats = optional("scipy.stats", "the test of the mean needs SciPy", extra="lab")
    bar = BARS[task]
    name, found = recipe or bar.recipe, []
    # A download, and an error in the recipe, come before the clock.
    config = load_recipe(name)
    metric = METRICS.get(config.evaluation.metric)
    if metric is None or bar.score not in metric.scores:
        raise UsageError(
            f"--recipe {name}: expected an evaluation.metric that has {bar.score}, got "
            f"{config.evaluation.metric}"
        )
    read_material(config)
    for seed in range(seeds):
        run = _run(name, seed)
        found.append(run)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        reached = bar.shown.format(run["scores"][bar.score])
        line = tr("seed {}: {:.1f} s, {} steps, {}")
        Output().say(line.format(seed, run["seconds"], run["steps"], reached))
    scores, seconds = [run["scores"][bar.score] for run in found], [run["seconds"] for run in found]
    p = float(stats.ttest_1samp(scores, bar.at, alternative=bar.side).pvalue)
    line = tr("mean of {} seeds: {:.1f} s, {} (to reach: {}; p = {:.2g})")
    shown = (bar.shown.format(score) for score in (mean(scores), bar.at))
    Output().say(line.format(seeds, mean(seconds), *shown, p))
    return 0 if p < 0.01 else 1


def _run(recipe: str, seed: int) -> dict[str, Any]:
    """Train and score in a new process with empty caches."""
    with TemporaryDirectory() as folder:
        caches = {"NUMBA_CACHE_DIR": folder, "PYTHONPYCACHEPREFIX": folder}
        done = subprocess.run(
            [sys.executable, "-c", CHILD, recipe, str(seed), str(time.time())],
            env={**os.environ, **caches},
            stdout=subprocess.PIPE,
            text=True,
        )
    if done.returncode:
        raise UserError(f"the run of seed {seed} failed; its message is above")
    run: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return run


def timed(recipe: str, seed: str, began: str) -> None:
    """Train with a random seed.

    Print the seconds since `began` and the scores as JSON.
    """
    config = load_recipe(recipe)
    config = replace(config, seed=int(seed), training=replace(config.training, seed=int(seed)))
    pairs = read_material(config)
    made = make_tokenizers(config, pairs)
    task = task_of(config.model).build(config.model, made, config.search, config.seed)
    # No validation while the clock runs: the last weights count, or their moving average.
    prepared = Prepared.of(config, replace(pairs, valid=(), test=()), task)
    result = prepared.trainer(None, ()).fit()
    seconds, processor = time.time() - float(began), time.process_time()
    scores = score(task, pairs.valid, config)
    run = {
        "recipe": recipe,
        "seed": config.seed,
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "steps": result.step,
        "scores": dict(scores.measured.values) if scores.measured else {},
        **scores.as_json(),
        "environment": environment(),
    }
    print(json.dumps(run))

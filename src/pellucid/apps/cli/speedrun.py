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
from typing import Any, Literal

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import tr
from pellucid.core.errors import UsageError, UserError, optional
from pellucid.kernels.backend.machine import environment
from pellucid.tasks import task_of
from pellucid.training.config import load_recipe
from pellucid.training.experiment import Prepared, make_tokenizers, read_material, score

BARS = {"g2p": ("speedrun-g2p", 0.105)}
"""For each task, the recipe of the record and the validation PER to reach."""
CHILD = "import sys; from pellucid.apps.cli.speedrun import timed; timed(*sys.argv[1:])"


def speedrun(
    task: Literal["g2p"],
    /,
    *,
    seeds: int = 8,
    recipe: str = "",
    results: Path = Path("speedrun.jsonl"),
) -> int:
    """Repeat the record: the seconds from an empty cache to a quality, over random seeds.

    g2p: a phoneme error rate of at most 10.5 % on the validation words of the demo's lexicon. The
    clock runs from the start of a process to the trained model, reading the data and compiling the
    kernels included; scoring is outside. The record counts if the mean over the seeds is at or
    below the bar with p < 0.01 (one-sided t-test). Needs SciPy and an otherwise idle machine.

    Args:
        task: What is learnt.
        seeds: How many random seeds, from 0.
        recipe: Try this recipe or TOML file, not the record's.
        results: A line of JSON for each run is added to this file.
    """
    if seeds < 2:
        raise UsageError(f"--seeds must be at least 2, since a record is a mean; got {seeds}")
    stats = optional("scipy.stats", "the test of the mean needs SciPy", extra="lab")
    own, bar = BARS[task]
    name, found = recipe or own, []
    read_material(
        load_recipe(name)
    )  # a download, and an error in the recipe, come before the clock
    for seed in range(seeds):
        run = _run(name, seed)
        found.append(run)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        line = tr("seed {seed}: {seconds:.1f} s, {steps} steps, PER {per:.2%}")
        Output().say(line.format(**run))
    per, seconds = ([run[key] for run in found] for key in ("per", "seconds"))
    p = float(stats.ttest_1samp(per, bar, alternative="less").pvalue)
    line = tr("mean of {} seeds: {:.1f} s, PER {:.2%} (at most {:.1%}: p = {:.2g})")
    Output().say(line.format(seeds, mean(seconds), mean(per), bar, p))
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
    run = {
        "recipe": recipe,
        "seed": config.seed,
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "steps": result.step,
        **score(task, pairs.valid, config).as_json(),
        "environment": environment(),
    }
    print(json.dumps(run))

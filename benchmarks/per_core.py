"""Useful tokens a second of processor time: four recipes as they are.

    PELLUCID_THREADS=1 python -m benchmarks.per_core

Source tokens and tokens to be predicted count. The steps are those of the recipe's first epochs,
without the ones that compile. Work beside it moves processor time less than time on the wall, but
does move it: the caches are shared.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.machine import machine, quartiles, report
from benchmarks.useful_tokens import forever
from threadpoolctl import threadpool_limits

from pellucid.kernels.backend.threads import available
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step
from pellucid.tasks import task_of
from pellucid.training.config import load_recipe
from pellucid.training.experiment import Prepared, make_tokenizers, read_material

RECIPES = ("chatbot-ko", "multi30k-de-en-small", "speedrun-g2p", "inflect")
WARM = 5


def rates(recipe: str, seconds: float, rounds: int) -> list[float]:
    """Return useful tokens a second of processor time, in each of several rounds."""
    config = load_recipe(recipe)
    pairs = read_material(config)
    made = make_tokenizers(config, pairs)
    task = task_of(config.model).build(config.model, made, config.search, config.seed)
    model = task.model.train()
    optimizer = ModelOptimizer(model.named_parameters(), config.training.optimizer)
    stream, step, found = forever(Prepared.of(config, pairs, task).batches()), 0, []
    for number in range(-1, rounds):
        began, tokens = time.process_time(), 0
        while (spent := time.process_time() - began) < seconds and (number >= 0 or step < WARM):
            step += 1
            batch = next(stream)
            train_step(model, optimizer, batch, config.training, step=step, lr=1e-4)
            tokens += batch.useful_tokens
        if number >= 0:
            found.append(tokens / spent)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round, processor time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    where = machine()
    with threadpool_limits(available()):
        found = {name: rates(name, options.seconds, options.rounds) for name in options.recipes}
    result = {
        "benchmark": "per_core",
        "useful_tokens_per_processor_second": {k: quartiles(v, 0) for k, v in found.items()},
        **where,
        "threads": available(),
    }
    report(result, options.keep)


if __name__ == "__main__":
    main()

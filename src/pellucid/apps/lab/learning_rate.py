"""The range test of learning rates: it rises from step to step, and the loss says what it does."""

import math
from itertools import chain, count
from typing import NamedTuple

from pellucid.core.errors import UsageError
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import DivergedError, train_step
from pellucid.tasks import task_of
from pellucid.training.config import RunConfig
from pellucid.training.experiment import Prepared, make_tokenizers, read_material

FORGETS = 0.9
"""Decay of the running mean of the losses, which smooths out single batches."""
EXPLODED = 4.0
"""Times the lowest loss at which the test ends."""


class RangeTest(NamedTuple):
    """The loss at each learning rate."""

    rates: list[float]
    losses: list[float]
    """Nats per token: means over the last ten or so steps."""

    @property
    def lowest(self) -> float:
        """The rate with the lowest loss: above it training becomes worse."""
        return self.rates[self.losses.index(min(self.losses))]


def range_test(
    config: RunConfig, low: float = 1e-6, high: float = 1.0, steps: int = 100
) -> RangeTest:
    """Train a new model for some steps, with rates that rise by one factor from low to high.

    Nothing is written. The test ends early where the loss explodes. Raises `UsageError` for wrong
    rates, less than 10 steps and a model to begin with, and `DivergedError` where the first step
    diverges.
    Source: Smith 2017, 3.3; the mean and the end are fastai's.
    """
    if not 0 < low < high < math.inf or steps < 10:
        raise UsageError(
            f"expected 0 < low < high and at least 10 steps; got {low:g}, {high:g} and {steps}"
        )
    if config.start is not None:
        raise UsageError("the range test begins with a new model; leave out [start]")
    pairs = read_material(config)
    made = make_tokenizers(config, pairs)
    task = task_of(config.model).build(config.model, made, config.search, config.seed)
    batches = Prepared.of(config, pairs, task).batches()
    optimizer = ModelOptimizer(task.model.named_parameters(), config.training.optimizer)
    task.model.train()
    rates, losses, mean = list[float](), list[float](), 0.0
    endless = chain.from_iterable(map(batches.epoch, count()))
    for step, batch in zip(range(1, steps + 1), endless, strict=False):
        rate = low * (high / low) ** ((step - 1) / (steps - 1))
        try:
            tally, _ = train_step(task.model, optimizer, batch, config.training, step=step, lr=rate)
        except DivergedError:
            if not rates:
                raise
            break
        mean = FORGETS * mean + (1 - FORGETS) * tally.nats / max(tally.target_tokens, 1)
        rates.append(rate)
        losses.append(mean / (1 - FORGETS**step))
        if losses[-1] > EXPLODED * min(losses):
            break
    return RangeTest(rates, losses)

"""The training loop's state, which a checkpoint keeps as JSON, and how far along it is.

`epochs` counts passes over the data with their fraction, `seconds` training so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pellucid.training.config import TrainingConfig


@dataclass
class Tally:
    """Sums over several steps, added in the order of the steps."""

    nats: float = 0.0
    target_tokens: int = 0
    sentences: int = 0
    useful_tokens: int = 0
    steps: int = 0
    clipped: int = 0
    seconds: float = 0.0

    @property
    def loss(self) -> float:
        """Nats per target token."""
        return self.nats / max(self.target_tokens, 1)

    @property
    def loss_per_sentence(self) -> float:
        """Nats per target sentence, as article 003 prints it."""
        return self.nats / max(self.sentences, 1)

    def add(self, other: Tally) -> None:
        """Add the sums of `other`."""
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))


@dataclass
class TrainerState:
    """The loop's whole state; `batch` is the index of the next batch in `epoch`.

    >>> TrainerState.from_json(TrainerState(step=3).as_json()).step
    3
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    useful_tokens: int = 0
    first_loss: float | None = None
    running_loss: float | None = None
    window: Tally = field(default_factory=Tally)
    """Since the last record of the training loss."""
    pass_: Tally = field(default_factory=Tally)
    """Since the epoch began."""
    best_score: float | None = None
    best_step: int | None = None
    not_improved: int = 0
    """Validations in a row without a new best."""
    checkpoints: list[int] = field(default_factory=list)
    """Steps of the checkpoints due by the settings and kept, oldest first."""
    stopped: str | None = None
    """Why training is over."""

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON can hold it; floats survive exactly."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainerState:
        """Rebuild a state."""
        tallies = {name: Tally(**values[name]) for name in ("window", "pass_")}
        return cls(**{**values, **tallies})


def _budget(
    config: TrainingConfig, step: int, epochs: float, seconds: float
) -> list[tuple[float, float]]:
    """Return each limit that is set, with how much of it is used."""
    minutes = None if config.minutes is None else 60 * config.minutes
    limits = ((config.steps, step), (config.epochs, epochs), (minutes, seconds))
    return [(limit, used) for limit, used in limits if limit is not None]


def share_used(config: TrainingConfig, *, step: int, epochs: float, seconds: float) -> float:
    """Return the share of the budget that is used, 0 to 1, by the limit that is nearest.

    >>> share_used(TrainingConfig(steps=100, epochs=4), step=10, epochs=2.0, seconds=0.0)
    0.5
    """
    used = [used / limit for limit, used in _budget(config, step, epochs, seconds)]
    return min(max(used), 1.0)


def total_steps(config: TrainingConfig, *, step: int, epochs: float, seconds: float) -> float:
    """Return how many steps there will be: set, or projected from the share used so far.

    `epochs` and `seconds` are those at the end of `step`. A projection from seconds depends on the
    clock.

    >>> total_steps(TrainingConfig(epochs=4), step=10, epochs=0.5, seconds=0.0)
    80.0
    """
    budget = _budget(config, step, epochs, max(seconds, 1e-9))
    return min(step * limit / used for limit, used in budget)


def reason_to_stop(config: TrainingConfig, *, step: int, epoch: int, seconds: float) -> str | None:
    """Return which limit is reached, or None; `epoch` counts the passes completed.

    A resumed run may be past a limit that was lowered.

    >>> reason_to_stop(TrainingConfig(steps=100), step=100, epoch=0, seconds=0.0)
    '100 steps'
    >>> reason_to_stop(TrainingConfig(steps=100), step=101, epoch=0, seconds=0.0)
    'already past 100 steps'
    """
    for limit, at, unit in ((config.steps, step, "steps"), (config.epochs, epoch, "epochs")):
        if limit is not None and at >= limit:
            return f"{'already past ' if at > limit else ''}{limit} {unit}"
    if config.minutes is not None and seconds >= 60 * config.minutes:
        return f"{config.minutes:g} minutes"
    return None

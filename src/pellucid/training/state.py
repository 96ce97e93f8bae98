"""The training loop's state, which a checkpoint keeps as JSON, and how far along it is.

`epochs` counts passes over the data with their fraction, `seconds` training so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pellucid.core.errors import UsageError
from pellucid.core.settings import check_ranges, flat, from_mapping
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
    """The loop's whole state; `batch` is the index of the next batch in `epoch`."""

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
    checkpoints: tuple[int, ...] = ()
    """Steps of the checkpoints due by the settings and kept, oldest first."""
    stopped: str | None = None
    """Why training is over."""


@dataclass(frozen=True)
class SavedState:
    """What state.json holds besides the format and the step."""

    trainer: TrainerState
    metrics_lines: int
    environment: dict[str, str]
    judged_by: dict[str, str] = field(default_factory=dict)
    """What held-out scores depend on besides the weights."""
    metrics_sha256: str | None = None
    """The digest of the metrics' lines; 0.1.0 wrote none."""


def read_state(values: Mapping[str, Any], source: str) -> SavedState:
    """Return a state that was written as JSON; `source` names the file in errors.

    Raises `UsageError` for a key that is missing or unknown, and a value of another type or out of
    its range.
    """
    saved = from_mapping(SavedState, values, source)
    state, tallies = saved.trainer, (saved.trainer.window, saved.trainer.pass_)
    if absent := flat({"trainer": asdict(state)}).keys() - flat(values).keys():
        raise UsageError(f"{source}: {min(absent)} is missing")
    until_now, count = f"[0, {state.step}]", state.pass_.steps
    finite = dict.fromkeys(("first_loss", "running_loss", "best_score"), "(-inf, inf)")
    counts = {f.name: "[0, inf)" for f in fields(Tally)} | {"nats": "(-inf, inf)"}
    try:
        check_ranges(saved, metrics_lines="[0, 1e15)")
        check_ranges(state, seconds="[0, inf)", useful_tokens="[0, inf)")
        check_ranges(state, epoch=until_now, not_improved=until_now, best_step=until_now, **finite)
        check_ranges(state, batch=f"[{count}, {count}]")
        for tally in tallies:
            check_ranges(tally, **counts)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    if not all(0 < step <= state.step for step in state.checkpoints):
        raise UsageError(f"{source}: checkpoints must be steps from 1 to {state.step}")
    return saved


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

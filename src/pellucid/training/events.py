"""The events that the trainer sends to its listeners: callables that take an event.

Records without the fields in `TIME_FIELDS` are the same, bit for bit, in a run and its repetition.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pellucid.system.language import Text, chosen_language

TIME_FIELDS = frozenset({"seconds", "seconds_left", "tokens_per_second"})


@dataclass(frozen=True)
class Event:
    """Steps taken and epochs completed, with fractions."""

    step: int
    epoch: float


@dataclass(frozen=True)
class Started(Event):
    """Training begins (step 0) or is resumed."""

    parameters: int
    steps: int | None
    epochs: int | None
    minutes: float | None


@dataclass(frozen=True)
class Stepped(Event):
    """One step was taken. `share`: of the budget used, 0 to 1."""

    loss: float
    share: float
    seconds_left: float | None


@dataclass(frozen=True)
class Trained(Event):
    """The mean over the steps since the last such record; losses in nats, with dropout on."""

    loss: float
    """Per target token."""
    loss_per_sentence: float
    learning_rate: float
    gradient_norm: float
    """Norm of the last step's gradient, before clipping."""
    clipped: float
    """Share of the steps whose gradient was shortened."""
    tokens: int
    """Useful tokens, source and target without padding, since training began."""
    tokens_per_second: float
    seconds: float
    """Seconds of training since it began, resumed parts included."""
    seconds_left: float | None


@dataclass(frozen=True)
class EpochEnded(Event):
    """The running mean over one epoch, with dropout on and the weights changing meanwhile."""

    loss: float
    loss_per_sentence: float
    seconds: float


@dataclass(frozen=True)
class Validated(Event):
    """The held-out score: nats per target token without dropout or smoothing, and other metrics."""

    loss: float | None
    best: bool
    seconds: float
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved(Event):
    """A checkpoint is in place."""

    path: Path


@dataclass(frozen=True)
class Interrupted(Event):
    """A signal came; the step was finished and saved. `resume` is the command that resumes."""

    signal: str
    resume: str


@dataclass(frozen=True)
class Ended(Event):
    """Training is over."""

    reason: str
    seconds: float
    best_step: int | None = None
    best_score: float | None = None


@dataclass(frozen=True)
class Chosen(Event):
    """The weights that the model gets: best, last, the average of several checkpoints, or ema."""

    weights: str
    steps: tuple[int, ...]
    loss: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


Listener = Callable[[Event], None]
RECORDED = (Trained, EpochEnded, Validated, Ended, Chosen)


def as_record(event: Event) -> dict[str, Any]:
    """Return the event as JSON can hold it, its name first.

    >>> as_record(EpochEnded(5, 1.0, 2.5, 9.0, 0.5))["event"]
    'epoch_ended'
    """
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(event).__name__)
    return {"event": name.lstrip("_"), **asdict(event)}


def show(news: Event | Text | str) -> None:
    """Print what training says, a recorded event as a line of all that it has but times."""
    if isinstance(news, Event):
        if not isinstance(news, RECORDED):
            return
        record = as_record(news)
        shown = [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in record.items()
            if value not in (None, {}) and name not in TIME_FIELDS | {"event"}
        ]
        news = f"{record['event']}: {', '.join(shown)}"
    print(news.to(chosen_language()) if isinstance(news, Text) else news)  # noqa: T201  (its job)

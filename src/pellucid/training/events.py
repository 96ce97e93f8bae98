"""Events of training.

A listener is a function that the trainer calls with each event. Events without their `TIME_FIELDS`
are equal, bit for bit, in a run and its repetition, unless the run is limited in minutes.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pellucid.system.language import Text, chosen_language

TIME_FIELDS = frozenset({"seconds", "seconds_left", "tokens_per_second"})
"""Fields of events that depend on the clock."""


@dataclass(frozen=True)
class Event:
    """Base class of events: steps taken, and epochs completed with their fraction."""

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
    """A step was taken; `share` is the used share of the training budget, 0 to 1."""

    loss: float
    share: float
    seconds_left: float | None


@dataclass(frozen=True)
class Trained(Event):
    """A record of training. Losses are means since the last one, in nats.

    They are with dropout on and with label smoothing, if it is set.
    """

    loss: float
    """Mean loss per target token."""
    loss_per_sentence: float
    learning_rate: float
    """That of the last step."""
    gradient_norm: float
    """Norm of the last step's gradient, before clipping."""
    clipped: float
    """Share of steps whose gradient was clipped."""
    tokens: int
    """Source and target tokens without padding since training began."""
    tokens_per_second: float
    seconds: float
    """Seconds of training since it began, resumed parts included."""
    seconds_left: float | None


@dataclass(frozen=True)
class EpochEnded(Event):
    """Mean losses over one epoch, while the weights were changing, as in `Trained`."""

    loss: float
    loss_per_sentence: float
    seconds: float
    """Seconds of training since it began, not of this epoch."""


@dataclass(frozen=True)
class Validated(Event):
    """Held-out scores: loss in nats per target token without dropout or smoothing; metrics."""

    loss: float | None
    best: bool
    seconds: float
    """Seconds that this validation took."""
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved(Event):
    """A checkpoint was written."""

    path: Path


@dataclass(frozen=True)
class Interrupted(Event):
    """A signal came, or the output of a listener is no longer read (SIGPIPE).

    The step was finished and saved. `resume` is the command that resumes.
    """

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
    """The weights that the trained model gets: best, last, average of several, or ema."""

    weights: str
    steps: tuple[int, ...]
    loss: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


Listener = Callable[[Event], None]
RECORDED = (Trained, EpochEnded, Validated, Ended, Chosen)


def as_record(event: Event) -> dict[str, Any]:
    """Convert an event to a dict; its name is the field `event`.

    Events of the types `RECORDED` become JSON values; `Saved` keeps its path.

    >>> as_record(EpochEnded(5, 1.0, 2.5, 9.0, 0.5))["event"]
    'epoch_ended'
    """
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(event).__name__)
    return {"event": name.lstrip("_"), **asdict(event)}


def show(news: Event | Text | str) -> None:
    """Print a text, or an event of a type in `RECORDED`, without fields that depend on the clock.

    Fields that are None or empty are left out. Other events are not printed.
    """
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

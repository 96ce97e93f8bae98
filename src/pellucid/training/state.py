"""Where training stands, beside weights and optimiser: all of it goes into a checkpoint as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


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
        """Nats per target sentence, as seed 003 prints."""
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
    """Steps of the checkpoints that the settings asked for and that are kept, oldest first."""
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

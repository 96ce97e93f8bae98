"""What can be set about training: data, before any flag is made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from pellucid.core.errors import UsageError
from pellucid.evaluation.metrics import HIGHER_IS_BETTER, SCORES
from pellucid.training.optimizers import OptimizerConfig
from pellucid.training.schedules import ScheduleConfig


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. Of steps, epochs and minutes give at least one; the first ends it."""

    steps: int | None = None
    """Stop after this many steps."""
    epochs: int | None = None
    """Stop after this many passes over the data."""
    minutes: float | None = None
    """Stop after this much time, validation included. Such a run ends where the clock says, and a
    decaying schedule follows the clock too: it can be resumed, but not repeated bit for bit."""
    seed: int = 0
    """Seed of dropout."""
    accumulate: int = 1
    """Work each batch through in this many parts: less memory, the same result to rounding."""
    loss_normalisation: Literal["token", "sentence", "sum"] = "token"
    """What a step's summed loss is divided by: its target tokens, its sentences, or nothing."""
    label_smoothing: float = 0.0
    """Share of the target's probability that is spread over the whole vocabulary."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    log_every: int = 50
    """Steps between records of the training loss."""
    validate_every: int = 1
    """How often the held-out set is scored and a checkpoint is written."""
    validate_unit: Literal["epochs", "steps"] = "epochs"
    """What validate_every counts."""
    checkpoint_every: int | None = None
    """Steps between further checkpoints; unset for those at validations only."""
    monitor: str = "loss"
    """The held-out score that decides what is best: loss, or a metric's name."""
    higher_is_better: bool = False
    """Whether a higher score is a better one, where the score's name does not say it."""
    patience: int | None = None
    """Stop after this many validations in a row without a new best."""
    keep: int = 3
    """Checkpoints kept, beside the best."""
    use: Literal["best", "last", "average"] = "best"
    """Which weights the trained model gets. Without a held-out set, best means last."""
    average: int = 5
    """How many of the last checkpoints `use = "average"` takes the mean of."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        for name in ("steps", "epochs", "minutes", "checkpoint_every", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be above 0 or unset, got {value}")
        for name in ("accumulate", "log_every", "validate_every", "keep", "average"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")
        for name, known in (
            ("loss_normalisation", ("token", "sentence", "sum")),
            ("validate_unit", ("epochs", "steps")),
            ("use", ("best", "last", "average")),
        ):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}"
                )

    def check(self, offered: Collection[str] | None) -> None:
        """Raise `UsageError` when no end is named, or the best is judged by what cannot judge it.

        offered: the names of the held-out scores that there will be; None: nothing is held out.
        """
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise UsageError("say when training ends: set steps, epochs or minutes")
        if offered is not None and self.monitor not in offered:
            giving = [metric for metric, scores in SCORES.items() if self.monitor in scores]
            raise UsageError(
                f"monitor = {self.monitor!r} is not a held-out score; there is "
                f"{', '.join(offered) or 'none'}"
                + "".join(f" (evaluation.metric = {metric!r} gives it)" for metric in giving)
            )
        if self.higher_is_better and not self.higher_wins:
            raise UsageError(
                f"higher_is_better = true contradicts monitor = {self.monitor!r}, of which the "
                "lower is the better; leave it out"
            )

    @property
    def higher_wins(self) -> bool:
        """Whether the best score is the highest: the monitor's name says it, or else a setting."""
        return HIGHER_IS_BETTER.get(self.monitor, self.higher_is_better)

    @property
    def checkpoints_kept(self) -> int:
        """How many of the last checkpoints stay on the disk."""
        return max(self.keep, self.average) if self.use == "average" else self.keep

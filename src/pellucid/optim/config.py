"""The settings of an optimizer, of a schedule and of a step; the command line shows their docs."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pellucid.core.errors import UsageError
from pellucid.core.settings import Name, check_ranges
from pellucid.optim import OPTIMIZERS
from pellucid.optim.schedules import SCHEDULES

BETAS = (0.9, 0.999)
# The allowed names are those of the registries.
if TYPE_CHECKING:
    OptimizerName = str
    ScheduleName = str
else:

    class OptimizerName(Name):
        registry = OPTIMIZERS

    class ScheduleName(Name):
        registry = SCHEDULES


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer, with torch's names and defaults, and the limit of the gradient norm."""

    name: OptimizerName = "adam"
    """adam (weight decay is added to the gradient), adamw (it shrinks the weights directly) or muon
    (layers' matrices along their orthogonalised momentum, all else by adamw)."""
    betas: tuple[float, float] = None  # type: ignore[assignment]
    """How slowly the running means of the gradient and of its square forget; unset: 0.9 and
    0.999."""
    momentum: float | None = None
    """μ of muon, or of an optimizer of your own; unset: 0.95 for muon. Adam does not read it."""
    eps: float = 1e-8
    """Added to the root of the mean square."""
    weight_decay: float | None = None
    """λ; unset: the optimizer's own, 0 for adam, 0.01 for adamw, 0.1 for muon."""
    clip: float = 1.0
    """Largest global gradient norm; inf for no limit."""

    def __post_init__(self) -> None:
        """Fill in `betas`; raise `UsageError` for a value out of range."""
        check_ranges(
            self, momentum="[0, 1)", eps="(0, inf]", weight_decay="[0, inf]", clip="(0, inf]"
        )
        if self.betas is None:  # written out, as in every run's settings
            object.__setattr__(self, "betas", OPTIMIZERS[self.name].settings.get("betas", BETAS))
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"betas must be two numbers in [0, 1), got {self.betas}")

    def settings(self) -> dict[str, Any]:
        """Return the settings of this optimizer and its `others`; its defaults for those of None.

        >>> OptimizerConfig("adamw").settings()["weight_decay"]
        0.01
        """
        own = OPTIMIZERS[self.name]
        defaults = {**(own.others.settings if own.others else {}), **own.settings}
        given = {name: getattr(self, name) for name in defaults}
        return {name: defaults[name] if x is None else x for name, x in given.items()}


@dataclass(frozen=True)
class ScheduleConfig:
    """The learning rate at each step."""

    name: ScheduleName = "constant"
    """constant, inverse_sqrt, paper (section 5.3, from width and warm-up), linear or cosine."""
    lr: float = 5e-4
    """The highest learning rate; `paper` does not read it: width and warm-up set its rate."""
    warmup: int = 0
    """Steps over which the rate rises from 0; the paper takes 4000."""
    end: float = 0.0
    """Share of lr that linear and cosine end at."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        check_ranges(self, lr="(0, inf)", warmup="[0, inf]", end="[0, 1]")
        if self.warmup < (least := SCHEDULES[self.name].least_warmup):
            raise UsageError(
                f"the {self.name} schedule needs a warmup of at least {least} step; the paper's "
                f"is 4000"
            )

    def at(self, step: int, *, total: float, d_model: int = 512) -> float:
        """Return the learning rate of a step, of `total` steps.

        Steps count from 1. Of the schedules here only `paper` uses `d_model`, only linear and
        cosine `total`.

        >>> ScheduleConfig("linear", lr=1.0).at(3, total=4)
        0.5
        """
        schedule = SCHEDULES[self.name]
        given = {"lr": self.lr, "warmup": self.warmup, "end": self.end}
        given |= {"total": total, "d_model": d_model}
        return schedule.rate(step, **{name: given[name] for name in schedule.reads})


@dataclass(frozen=True)
class StepConfig:
    """Settings of one step of training."""

    seed: int = 0
    """Random seed of dropout."""
    accumulate: int = 1
    """Process each batch in this many parts: less memory, the same result to rounding."""
    loss_normalisation: Literal["token", "sentence", "sum"] = "token"
    """Divisor of a step's summed loss: its target tokens, its sentences, or nothing."""
    label_smoothing: float = 0.0
    """Share of the target's probability that is spread over the whole vocabulary."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        check_ranges(self, seed="[0, inf]", accumulate="[1, inf]", label_smoothing="[0, 1)")

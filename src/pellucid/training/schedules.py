"""Learning rates: pure functions of the step, which is counted from 1.

Decays reach their end one step *after* the last, so no step is spent at a rate of zero. A budget in
minutes or epochs has no number of steps, so the trainer passes the projected one (steps so far /
share of the budget used); under minutes it depends on the clock, and so do the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from pellucid.core.errors import UsageError


def warmup_factor(step: int, warmup: int) -> float:
    """Return the rise from 0 to 1 over `warmup` steps.

    >>> [warmup_factor(s, 4) for s in (1, 2, 4, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return min(1.0, step / warmup) if warmup > 0 else 1.0


def constant(step: int, *, lr: float, warmup: int = 0) -> float:
    """Return lr, after a linear warm-up.

    >>> constant(3, lr=0.5)
    0.5
    """
    return lr * warmup_factor(step, warmup)


def paper(step: int, *, d_model: int, warmup: int) -> float:
    """Return d_model^−½ · min(step^−½, step · warmup^−1.5). Source: Vaswani et al. 2017, 5.3.

    >>> f"{paper(4000, d_model=512, warmup=4000):.2e}"
    '6.99e-04'
    """
    return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def inverse_sqrt(step: int, *, lr: float, warmup: int) -> float:
    """Return the paper's curve by its peak: lr · min(step / w, √(w / step)), w = max(warmup, 1).

    >>> inverse_sqrt(5, lr=1.0, warmup=10), inverse_sqrt(40, lr=1.0, warmup=10)
    (0.5, 0.5)
    """
    peak = max(warmup, 1)
    return lr * min(step / peak, math.sqrt(peak / step))


def _decayed(step: int, warmup: int, total: float) -> float:
    """Share of the decay that is behind at this step: 0 at the peak, 1 one step after the last."""
    peak = max(warmup, 1)
    return min(max((step - peak) / max(total - peak + 1, 1.0), 0.0), 1.0)


def linear(step: int, *, lr: float, total: float, warmup: int = 0, end: float = 0.0) -> float:
    """Return lr falling in a straight line to lr · end, after a linear warm-up.

    >>> [linear(s, lr=1.0, total=4) for s in (1, 2, 3, 4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    done = _decayed(step, warmup, total)
    return lr * warmup_factor(step, warmup) * (end + (1 - end) * (1 - done))


def cosine(step: int, *, lr: float, total: float, warmup: int = 0, end: float = 0.0) -> float:
    """Return lr falling along half a cosine to lr · end, after a linear warm-up.

    Source: Loshchilov & Hutter 2017, without restarts.

    >>> [round(cosine(s, lr=1.0, total=4), 3) for s in (1, 3)]
    [1.0, 0.5]
    """
    done = _decayed(step, warmup, total)
    return lr * warmup_factor(step, warmup) * (end + (1 - end) * (1 + math.cos(math.pi * done)) / 2)


ScheduleName = Literal["constant", "inverse_sqrt", "paper", "linear", "cosine"]
NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)


@dataclass(frozen=True)
class ScheduleConfig:
    """Which learning rate at which step."""

    name: ScheduleName = "constant"
    """constant, inverse_sqrt, paper (section 5.3, from width and warm-up), linear or cosine."""
    lr: float = 5e-4
    """The highest learning rate; `paper` has no use for it: width and warm-up set its rate."""
    warmup: int = 0
    """Steps over which the rate rises from 0; the paper takes 4000."""
    end: float = 0.0
    """Share of lr that linear and cosine end at."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        if self.name not in NAMES:
            raise UsageError(f"schedule must be one of {', '.join(NAMES)}; got {self.name!r}")
        if not 0 < self.lr < math.inf:
            raise UsageError(f"lr must be above 0 and finite, got {self.lr}")
        if self.warmup < 0:
            raise UsageError(f"warmup must be at least 0, got {self.warmup}")
        if self.warmup == 0 and self.name == "paper":
            raise UsageError(
                "the paper's schedule needs a warmup of at least 1 step (it took 4000)"
            )
        if not 0 <= self.end <= 1:
            raise UsageError(f"end must be a share from 0 to 1, got {self.end}")

    def at(self, step: int, *, total: float, d_model: int = 512) -> float:
        """Return the learning rate of this step of `total`; `d_model` matters to `paper` only.

        >>> ScheduleConfig("linear", lr=1.0).at(3, total=4)
        0.5
        """
        match self.name:
            case "constant":
                return constant(step, lr=self.lr, warmup=self.warmup)
            case "inverse_sqrt":
                return inverse_sqrt(step, lr=self.lr, warmup=self.warmup)
            case "paper":
                return paper(step, d_model=d_model, warmup=self.warmup)
            case "linear":
                return linear(step, lr=self.lr, total=total, warmup=self.warmup, end=self.end)
            case "cosine":
                return cosine(step, lr=self.lr, total=total, warmup=self.warmup, end=self.end)

"""Learning rate schedules: pure functions of the step (counted from 1), and their registry.

A decay reaches its end one step *after* the last, so that no step has a rate of zero. If training
is limited in minutes or epochs, the total number of steps is not known. The trainer then passes an
estimate, steps so far / share of the budget used. With minutes it depends on the clock, and so do
the resulting weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import signature

from pellucid.core.parts import Registry


def warmup_factor(step: int, warmup: int) -> float:
    """Return the factor of a linear warm-up: it rises from 0 to 1 over `warmup` steps.

    >>> [warmup_factor(s, 4) for s in (1, 2, 4, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return min(1.0, step / warmup) if warmup > 0 else 1.0


def constant(step: int, *, lr: float, warmup: int = 0) -> float:
    """Return a constant rate lr after a linear warm-up.

    >>> constant(3, lr=0.5)
    0.5
    """
    return lr * warmup_factor(step, warmup)


def paper(step: int, *, d_model: int, warmup: int) -> float:
    """Return the paper's rate, d_model^−½ · min(step^−½, step · warmup^−1.5).

    `warmup` is at least 1. Source: Vaswani et al. 2017, 5.3.

    >>> f"{paper(4000, d_model=512, warmup=4000):.2e}"
    '6.99e-04'
    """
    return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def inverse_sqrt(step: int, *, lr: float, warmup: int) -> float:
    """Return the paper's curve with the peak lr: lr · min(step / w, √(w / step)).

    w is max(warmup, 1).

    >>> inverse_sqrt(5, lr=1.0, warmup=10), inverse_sqrt(40, lr=1.0, warmup=10)
    (0.5, 0.5)
    """
    peak = max(warmup, 1)
    return lr * min(step / peak, math.sqrt(peak / step))


def _decayed(step: int, warmup: int, total: float) -> float:
    """Return the fraction of the decay that is done: 0 at the peak, 1 one step after the last."""
    peak = max(warmup, 1)
    return min(max((step - peak) / max(total - peak + 1, 1.0), 0.0), 1.0)


def linear(step: int, *, lr: float, total: float, warmup: int = 0, end: float = 0.0) -> float:
    """Return a rate that falls linearly from lr to lr · end, after a linear warm-up.

    It reaches lr · end at step max(total, warmup) + 1.

    >>> [linear(s, lr=1.0, total=4) for s in (1, 2, 3, 4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    done = _decayed(step, warmup, total)
    return lr * warmup_factor(step, warmup) * (end + (1 - end) * (1 - done))


def cosine(step: int, *, lr: float, total: float, warmup: int = 0, end: float = 0.0) -> float:
    """Return a rate that falls along half a cosine from lr to lr · end, after a linear warm-up.

    It reaches lr · end at step max(total, warmup) + 1.
    Source: Loshchilov & Hutter 2017, without restarts.

    >>> [round(cosine(s, lr=1.0, total=4), 3) for s in (1, 3)]
    [1.0, 0.5]
    """
    done = _decayed(step, warmup, total)
    return lr * warmup_factor(step, warmup) * (end + (1 - end) * (1 + math.cos(math.pi * done)) / 2)


@dataclass(frozen=True)
class Schedule:
    """Describes a learning rate schedule. Add a new one to `SCHEDULES`."""

    name: str
    about: str
    rate: Callable[..., float]
    """The function rate(step, *, …); its keyword arguments are `reads`."""
    least_warmup: int = 0
    """The smallest warm-up that the function accepts."""

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The arguments of `rate`, some of: lr, warmup, end, total (number of steps), d_model."""
        return tuple(signature(self.rate).parameters)[1:]


SCHEDULES: Registry[Schedule] = Registry(
    (schedule.name, schedule)
    for schedule in (
        Schedule("constant", "lr", constant),
        Schedule("inverse_sqrt", "lr / √step after the peak", inverse_sqrt),
        Schedule("paper", "section 5.3, from width and warm-up alone", paper, least_warmup=1),
        Schedule("linear", "a straight line to lr · end", linear),
        Schedule("cosine", "half a cosine to lr · end", cosine),
    )
)

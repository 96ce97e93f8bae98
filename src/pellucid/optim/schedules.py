"""Learning rates: pure functions of the step, which is counted from 1, and their registry.

Decays reach their end one step *after* the last, so no step is spent at a rate of zero. A budget in
minutes or epochs has no number of steps, so the trainer passes the projected one (steps so far /
share of the budget used); under minutes it depends on the clock, and so do the weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import signature

from pellucid.core.parts import Registry


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
    """Return the share of the decay that is done: 0 at the peak, 1 one step after the last."""
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


@dataclass(frozen=True)
class Schedule:
    """A learning rate as a function of the step. A new schedule is a function and its row."""

    name: str
    about: str
    rate: Callable[..., float]
    """rate(step, …); its arguments are some of `reads`."""
    least_warmup: int = 0

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Arguments of `rate`: `ScheduleConfig`'s lr, warmup and end, total (steps), d_model."""
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

"""What an answer may not say: rules that change the log-probabilities before a token is chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.core.errors import UsageError

Array = np.ndarray


@dataclass(frozen=True)
class Constraints:
    """Rules for every answer."""

    repetition_penalty: float = 1.0
    """A token said before has its log-probability multiplied by this; 1 changes nothing."""
    no_repeat_ngram: int = 0
    """No run of this many tokens is said twice; 0 allows it."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        if not 1.0 <= self.repetition_penalty < math.inf:
            p = self.repetition_penalty
            raise UsageError(f"repetition_penalty must be at least 1 and finite, got {p}")
        if self.no_repeat_ngram < 0:
            raise UsageError(f"no_repeat_ngram must be at least 0, got {self.no_repeat_ngram}")

    @property
    def active(self) -> bool:
        """Whether any rule does anything."""
        return self.repetition_penalty != 1.0 or self.no_repeat_ngram > 0


def constrain(
    log_p: Array, said: Sequence[int], rules: Constraints, prefix: Sequence[int], eos: int
) -> Array:
    """Return the log-probabilities (V,) that the rules leave to the token after `said`.

    Inside `prefix` only its own token is left. The repetition penalty is Keskar et al. 2019's
    (CTRL, 4.1) on log-probabilities, which are never positive. The end token is always free.

    >>> constrain(np.log([0.5, 0.25, 0.25]), [0], Constraints(no_repeat_ngram=1), [], 2)
    array([       -inf, -1.38629436, -1.38629436])
    """
    place = len(said)
    if place < len(prefix):
        forced = np.full_like(log_p, -np.inf)
        forced[prefix[place]] = log_p[prefix[place]]
        return forced
    if not rules.active:
        return log_p
    log_p = log_p.copy()
    seen = [token for token in set(said) if token != eos]
    if rules.repetition_penalty != 1.0:
        with np.errstate(over="ignore"):  # -inf is what a penalty that large means
            log_p[seen] *= rules.repetition_penalty
    n = rules.no_repeat_ngram
    if n:
        last = tuple(said[place - n + 1 :]) if n > 1 else ()
        runs = (tuple(said[i : i + n]) for i in range(place - n + 1))
        log_p[[run[-1] for run in runs if run[:-1] == last]] = -np.inf
    return log_p

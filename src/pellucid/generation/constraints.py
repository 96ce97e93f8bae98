"""Constraints of answers: they change the log-probabilities before a token is chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.core.errors import UsageError

Array = np.ndarray


@dataclass(frozen=True)
class Constraints:
    """Constraints of every answer."""

    repetition_penalty: float = 1.0
    """A token generated before has its log-probability multiplied by this; 1 changes nothing."""
    no_repeat_ngram: int = 0
    """No sequence of this many tokens is generated twice; 0 allows it."""
    forced_bos_token_id: int | None = None
    """Every answer begins with this token, at no cost; BART has one. None: with any."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        if not 1.0 <= self.repetition_penalty < math.inf:
            p = self.repetition_penalty
            raise UsageError(f"repetition_penalty must be at least 1 and finite, got {p}")
        if self.no_repeat_ngram < 0:
            raise UsageError(f"no_repeat_ngram must be at least 0, got {self.no_repeat_ngram}")
        if self.forced_bos_token_id is not None and self.forced_bos_token_id < 0:
            forced = self.forced_bos_token_id
            raise UsageError(f"forced_bos_token_id must be at least 0, got {forced}")

    @property
    def active(self) -> bool:
        """Whether any constraint does anything."""
        forced = self.forced_bos_token_id is not None
        return forced or self.repetition_penalty != 1.0 or self.no_repeat_ngram > 0

    def forced(self, entries: int) -> int | None:
        """Return the forced token. Raises `UsageError` for one beyond a vocabulary's entries."""
        if self.forced_bos_token_id is not None and self.forced_bos_token_id >= entries:
            raise UsageError(
                f"forced_bos_token_id must be a token of the vocabulary, below {entries}, got "
                f"{self.forced_bos_token_id}"
            )
        return self.forced_bos_token_id


def constrain(
    log_p: Array,
    generated: Sequence[int],
    constraints: Constraints,
    prefix: Sequence[int],
    eos: int,
) -> Array:
    """Return the log-probabilities (V,) of the token after `generated`, under the constraints.

    Inside `prefix` only its own token is left, and a forced first token has probability 1. The
    repetition penalty is Keskar et al. 2019's (CTRL, 4.1) on log-probabilities, which are never
    positive. The end token is always free.

    >>> constrain(np.log([0.5, 0.25, 0.25]), [0], Constraints(no_repeat_ngram=1), [], 2)
    array([       -inf, -1.38629436, -1.38629436])
    """
    place = len(generated)
    if place < len(prefix):
        forced = np.full_like(log_p, -np.inf)
        forced[prefix[place]] = log_p[prefix[place]]
        return forced
    if not constraints.active:
        return log_p
    forced_first = constraints.forced(len(log_p)) if place == 0 else None
    if forced_first is not None:
        forced = np.full_like(log_p, -np.inf)
        forced[forced_first] = 0.0
        return forced
    log_p = log_p.copy()
    seen = [token for token in set(generated) if token != eos]
    if constraints.repetition_penalty != 1.0:
        with np.errstate(over="ignore"):  # -inf is what a penalty that large means
            log_p[seen] *= constraints.repetition_penalty
    n = constraints.no_repeat_ngram
    if n:
        last = tuple(generated[place - n + 1 :]) if n > 1 else ()
        runs = (tuple(generated[i : i + n]) for i in range(place - n + 1))
        log_p[[run[-1] for run in runs if run[:-1] == last]] = -np.inf
    return log_p

"""Constraints of answers: they change the log-probabilities before a token is chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.models.decoding import Array, Constraints


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

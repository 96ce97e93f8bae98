"""Ensembles: several models that generate together, by the mean of their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.core.array import to_host
from pellucid.core.batch import Packed
from pellucid.models.decoding import Array, Decodes


def mean_probability(log_p: Sequence[Array]) -> Array:
    """Return the log of the mean probability, log (1/K Σₖ exp log pₖ), of K arrays of one shape.

    A token that every model excludes (−inf) stays −inf.

    >>> mean_probability([np.log([0.5, 0.5]), np.log([0.1, 0.9])]).round(3)
    array([-1.204, -0.357])
    """
    most: Array = np.maximum.reduce(log_p)
    floor = np.where(np.isneginf(most), 0, most)
    with np.errstate(divide="ignore"):  # log 0 = −∞ for a token that every model excludes
        mean: Array = np.log(sum(np.exp(each - floor) for each in log_p) / len(log_p))
    return mean + floor


@dataclass(frozen=True)
class EnsembleState:
    """The decoding state of an ensemble: those of its models."""

    states: tuple[Any, ...]

    def select(self, rows: Array) -> EnsembleState:
        """Return the state of the hypotheses `rows`, in that order; indices may repeat."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))


class Ensemble:
    """Models with the same vocabulary that generate together: p(token) = 1/K Σₖ pₖ(token).

    The config (begin, end and padding tokens) is that of the first model. `search` and `sample` do
    not compile the models of an ensemble; compile them before (`compile_model`). Source: Hansen and
    Salamon 1990; for translation Sutskever et al. 2014, 3.6.
    """

    def __init__(self, models: Sequence[Decodes]) -> None:
        self.models, self.config = tuple(models), models[0].config

    def room(self, source: Packed) -> Array:
        """Return the maximum number of tokens of the answer to each source, (N,).

        It is that of the model with the least room.
        """
        rooms: Array = np.minimum.reduce([model.room(source) for model in self.models])
        return rooms

    def start(self, source: Packed) -> EnsembleState:
        """Return the state before the first token, with one hypothesis per source."""
        return EnsembleState(tuple(model.start(source) for model in self.models))

    def step(self, state: EnsembleState, tokens: Array) -> tuple[Array, EnsembleState]:
        """Feed a token to every hypothesis: tokens (rows,).

        Returns the next token's log-probabilities, NumPy (rows, V), and the new state.
        """
        steps = [
            model.step(each, tokens) for model, each in zip(self.models, state.states, strict=True)
        ]
        after = EnsembleState(tuple(each for _, each in steps))
        return mean_probability([to_host(log_p) for log_p, _ in steps]), after

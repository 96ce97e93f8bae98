"""The record of one optimizer: its page, what it remembers, its defaults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pellucid.core.array import Array, namespace


@dataclass(frozen=True)
class Optimizer:
    """How parameters are stepped. A new optimizer is one file with such a record, and its row in
    `OPTIMIZERS`; a kernel is a separate file.
    """

    name: str
    about: str
    """A short description for tables, with its source."""
    states: tuple[str, ...]
    """Names of the arrays that it remembers of each parameter; a checkpoint has STATE.PARAMETER."""
    step: Callable[..., tuple[Array, tuple[Array, ...]]]
    """The page, a pure function: step(θ, gradient, states, step=, lr=, …settings, …options) ->
    (θ, states) after step `step`, counted from 1. A kernel of its name steps all parameters."""
    settings: Mapping[str, Any]
    """The settings that the page reads of `OptimizerConfig`, with this optimizer's defaults."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the page, which make one page several optimizers."""

    def initial(self, theta: Array) -> tuple[Array, ...]:
        """Return the states before the first step: zeros."""
        return tuple(namespace(theta).zeros_like(theta) for _ in self.states)

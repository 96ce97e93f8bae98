"""The record of one optimizer: its page, what it remembers, its defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pellucid.core.array import Array, namespace

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Optimizer:
    """How parameters are stepped. A new optimizer is one file with such a record, and its row in
    `OPTIMIZERS`; a kernel is a separate file.
    """

    name: str
    about: str
    """What it is, in a few words for tables, with its source."""
    states: tuple[str, ...]
    """Names of the arrays that it remembers of each parameter; a checkpoint has STATE.PARAMETER."""
    step: Callable[..., tuple[Array, tuple[Array, ...]]]
    """The page, a pure function: step(θ, gradient, states, step=, lr=, …settings, …options) ->
    (θ, states) after step `step`, counted from 1. A kernel of its name steps all parameters."""
    settings: Mapping[str, Any]
    """The settings that the page reads of `OptimizerConfig`, with this optimizer's defaults."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the page, which make one page several optimizers."""
    shapes: Callable[[Shape], tuple[Shape, ...]] | None = None
    """The shapes of a parameter's states, by its own; None: each has the parameter's."""
    apart: bool = False
    """Whether matrices that a parameter holds one above the other are stepped one by one."""
    takes: Callable[[str, Shape], bool] | None = None
    """Which parameters it is for, by name and shape; None: all."""
    others: Optimizer | None = None
    """What steps the parameters that it does not take."""

    def of(self, name: str, shape: Shape) -> Optimizer:
        """Return what steps a parameter: this optimizer, or `others`."""
        if self.takes is None or self.others is None or self.takes(name, shape):
            return self
        return self.others

    @property
    def defaults(self) -> dict[str, Any]:
        """All settings that are read, with this optimizer's defaults."""
        return {**(self.others.settings if self.others else {}), **self.settings}

    @property
    def remembered(self) -> tuple[str, ...]:
        """All names of states, those of `others` included."""
        return tuple(dict.fromkeys((*self.states, *(self.others.states if self.others else ()))))

    def initial(self, theta: Array) -> tuple[Array, ...]:
        """Return the states before the first step: zeros."""
        xp = namespace(theta)
        if self.shapes is None:
            return tuple(xp.zeros_like(theta) for _ in self.states)
        return tuple(
            xp.zeros(shape, dtype=theta.dtype, device=theta.device)
            for shape in self.shapes(tuple(theta.shape))
        )

"""The record that describes an optimizer: its update function, its states and its defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pellucid.core.array import Array, namespace


@dataclass(frozen=True)
class Optimizer:
    """Describes an optimizer. To add one, write a file that adds such a record to `OPTIMIZERS`.

    A fused kernel for it is optional: a file in `kernels` with the name of the function `step`.
    """

    name: str
    about: str
    """A short description for tables, with its source."""
    states: tuple[str, ...]
    """The names of the arrays kept for each parameter; checkpoints have them as STATE.PARAMETER."""
    step: Callable[..., tuple[Array, tuple[Array, ...]]]
    """The update of one parameter, a pure function: step(θ, gradient, states, step=, lr=,
    …settings, …options) -> (θ, states) after step `step`, counted from 1. A kernel with the
    function's name updates all parameters of one dtype."""
    settings: Mapping[str, Any]
    """The settings of `OptimizerConfig` that `step` takes, with this optimizer's defaults."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fixed arguments of `step`, so that several optimizers can share one function."""
    takes: Callable[[str, tuple[int, ...]], bool] = lambda name, shape: True
    """Whether it steps the parameter with this name and shape."""
    apart: bool = False
    """Whether it steps each of the matrices that a parameter holds (`Parameter.packed`) by itself;
    otherwise a parameter is stepped as a whole."""
    others: Optimizer | None = None
    """The optimizer of the parameters that it does not take; settings of the same name are this
    one's."""

    def of(self, name: str, shape: tuple[int, ...]) -> Optimizer:
        """Return the optimizer that steps this parameter: itself, or `others`."""
        return self if self.takes(name, shape) or self.others is None else self.others

    def initial(self, theta: Array) -> tuple[Array, ...]:
        """Return the states of a parameter before the first step: zeros."""
        return tuple(namespace(theta).zeros_like(theta) for _ in self.states)

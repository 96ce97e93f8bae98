"""Rows of the table: an op or a layer, the arrays that have gradients, and other arguments."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import signature
from types import FunctionType, MethodType
from typing import Any, ClassVar

import numpy as np

from pellucid import ops
from pellucid.check.gradient import Array, Forward, enrolled, gradient_check
from pellucid.check.result import Result
from pellucid.core.checked import checked
from pellucid.core.vjp import Pair, pair_of
from pellucid.nn.module import Module
from pellucid.ops.rules.function import Function


@dataclass(frozen=True)
class OpCase:
    """A function of `ops`: `arrays` have gradients, `fixed` (integers, masks, options) do not."""

    kind: ClassVar[str] = "op"
    op: str
    note: str
    arrays: dict[str, Array]
    fixed: dict[str, Any]
    of: Pair | None = None
    """The forward and backward; None: those of `ops` by this name."""

    @property
    def name(self) -> str:
        """The op, and what is special about the row."""
        return f"{self.op} ({self.note})" if self.note else self.op

    @property
    def pair(self) -> Pair:
        """The plain forward and backward; a rule that is a function is made of its arrays."""
        f, f_backward = self.of or pair_of(getattr(ops, self.op))
        return Pair(lambda *args, **arguments: f(*args, **ruled(arguments)), f_backward)

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The arrays, in the order of their gradients."""
        return tuple(self.arrays.values())

    def forward(self, *inputs: Array) -> tuple[Any, Callable[..., Any]]:
        """Call the op by its argument names."""
        f, f_backward = self.pair
        y, saved = f(**dict(zip(self.arrays, inputs, strict=True)), **self.fixed)
        return y, lambda dy: f_backward(dy, saved)

    def errors(self) -> dict[str, float]:
        """Return the errors of `gradient_check`."""
        return gradient_check(self.forward, self.inputs)

    def enrolled(self) -> tuple[Forward, dict[str, Array]]:
        """Return a function of all arrays that have a gradient, and these arrays by name."""
        return enrolled(self.forward, self.inputs)


def ruled(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return an op's arguments, a rule made of the arrays that its function names.

    >>> ruled({"q": 1, "table": 2, "rule": lambda table: table + 1})
    {'q': 1, 'rule': 3}
    """
    made = arguments.get("rule")
    if not isinstance(made, FunctionType | Function):
        return arguments
    names = made.learnt if isinstance(made, Function) else signature(made).parameters
    rest = {name: value for name, value in arguments.items() if name not in names}
    return rest | {"rule": made(*(arguments[name] for name in names))}


@dataclass(frozen=True)
class LayerCase:
    """A layer: `build(dtype)` makes it, `arrays` and its parameters have gradients.

    The parameters are moved off their initial values, so that no norm weight is 1 and no bias 0.
    """

    kind: ClassVar[str] = "layer"
    layer: str
    note: str
    build: Callable[[Any], Module]
    arrays: tuple[Array, ...]
    fixed: dict[str, Any]
    call: Callable[..., Any] = lambda layer, *arrays, **fixed: layer.forward(*arrays, **fixed)

    @property
    def name(self) -> str:
        """The layer, and what is special about the row."""
        return f"{self.layer} ({self.note})" if self.note else self.layer

    def built(self, dtype: Any = np.float64) -> Module:
        """Return the layer in `dtype`, its parameters moved."""
        layer = self.build(dtype)
        generator = np.random.default_rng(7)
        for parameter in layer.parameters():
            moved = parameter.data + 0.1 * generator.standard_normal(parameter.shape)
            parameter.data = moved.astype(dtype)
        return layer

    def errors(self) -> dict[str, float]:
        """Return the errors of `gradient_check`: the arrays, then the parameters."""
        called = MethodType(self.call, self.built())  # bound to the layer, so it has parameters
        return gradient_check(called, self.arrays, **self.fixed)

    def enrolled(self) -> tuple[Forward, dict[str, Array]]:
        """Return a function of all arrays that have a gradient, and these arrays by name."""
        return enrolled(MethodType(self.call, self.built()), self.arrays, **self.fixed)


Case = OpCase | LayerCase
"""A row: its `name` (no two of a `kind` are the same), and `errors()`, those of its gradients."""


def cases() -> list[Case]:
    """Return the table: the ops, then the layers."""
    from pellucid.check.layer_cases import layer_cases  # which are made of these
    from pellucid.check.op_cases import op_cases

    return [*op_cases(), *layer_cases()]


def run_checks(table: Iterable[Case]) -> Iterator[Result]:
    """Check the gradients of cases of the table, one after another."""
    for case in table:
        with checked():
            errors = case.errors().values()
        yield Result(case.kind, case.name, len(errors), max(errors))

"""The rows of the table: an op or a layer, its arrays with gradients, and its other arguments."""

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
    """A call of an op: `arrays` have gradients, `fixed` (integers, masks, options) do not.

    Both are by the name of the argument. `note` distinguishes the rows of one op.
    """

    kind: ClassVar[str] = "op"
    op: str
    note: str
    arrays: dict[str, Array]
    fixed: dict[str, Any]
    of: Pair | None = None
    """The forward and backward; None: those of the function `op` in `ops`."""

    @property
    def name(self) -> str:
        """The op's name, followed by the note in parentheses if there is one."""
        return f"{self.op} ({self.note})" if self.note else self.op

    @property
    def pair(self) -> Pair:
        """The op's forward, its rule built from the arrays if need be (`ruled`), and backward."""
        f, f_backward = self.of or pair_of(getattr(ops, self.op))
        return Pair(lambda *args, **arguments: f(*args, **ruled(arguments)), f_backward)

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The arrays, in the order of their gradients."""
        return tuple(self.arrays.values())

    def forward(self, *inputs: Array) -> tuple[Any, Callable[..., Any]]:
        """Call the op with these arrays; return (y, backward)."""
        f, f_backward = self.pair
        y, saved = f(**dict(zip(self.arrays, inputs, strict=True)), **self.fixed)
        return y, lambda dy: f_backward(dy, saved)

    def errors(self) -> dict[str, float]:
        """Return the error of each gradient by name ("input 0", …), as `gradient_check` does."""
        return gradient_check(self.forward, self.inputs)

    def enrolled(self) -> tuple[Forward, dict[str, Array]]:
        """Return a function of all arrays that have a gradient, and these arrays.

        Their names are "input 0" and so on; see `gradient.enrolled`.
        """
        return enrolled(self.forward, self.inputs)


def ruled(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace an argument `rule` that is a function by the rule it makes from other arguments.

    The arguments that it takes, which are parameters of the rule, are removed. Without such a
    function the arguments are returned unchanged.

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
    """A call of a layer: `build(dtype)` makes it; `arrays` and its parameters have gradients.

    Noise is added to the initial parameters, so that no norm weight is 1 and no bias 0. `fixed` are
    arguments without gradients; `call` runs the layer, by default its `forward`.
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
        """The name of the layer, with the note that distinguishes the row in parentheses."""
        return f"{self.layer} ({self.note})" if self.note else self.layer

    def built(self, dtype: Any = np.float64) -> Module:
        """Build the layer in `dtype`, with noise added to its parameters."""
        layer = self.build(dtype)
        generator = np.random.default_rng(7)
        for parameter in layer.parameters():
            moved = parameter.data + 0.1 * generator.standard_normal(parameter.shape)
            parameter.data = moved.astype(dtype)
        return layer

    def errors(self) -> dict[str, float]:
        """Return the error of each gradient, arrays first, as `gradient_check` does."""
        called = MethodType(self.call, self.built())  # bound to the layer, so it has parameters
        return gradient_check(called, self.arrays, **self.fixed)

    def enrolled(self) -> tuple[Forward, dict[str, Array]]:
        """Return a function of all arrays that have a gradient, and these arrays by name.

        See `gradient.enrolled`.
        """
        return enrolled(MethodType(self.call, self.built()), self.arrays, **self.fixed)


Case = OpCase | LayerCase
"""A row of the table. Names are unique among the rows of one `kind`."""


def cases() -> list[Case]:
    """Return the table of all derivatives: the ops, then the layers."""
    from pellucid.check.layer_cases import layer_cases  # here, since that module imports this one
    from pellucid.check.op_cases import op_cases

    return [*op_cases(), *layer_cases()]


def run_checks(table: Iterable[Case]) -> Iterator[Result]:
    """Check the gradients of rows of the table; yield a result with the largest error of each."""
    for case in table:
        with checked():
            errors = case.errors().values()
        yield Result(case.kind, case.name, len(errors), max(errors))

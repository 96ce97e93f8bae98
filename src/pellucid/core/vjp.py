"""An op with its VJP (vector-Jacobian product), calls of ops, and observers of these calls.

A file of `ops` holds `f(x, …) -> (y, saved)` and, right under it, `f_backward(dy, saved) -> dx, …`.
`core.dispatch` runs a call, by a kernel or by this reference op.
"""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

T = TypeVar("T")
Backward = Callable[..., Any]
Result = tuple[Any, Backward]
"""y and backward, where backward(dy) gives the inputs' gradients."""


class Pair(NamedTuple):
    """A function f(x, …) -> (y, saved) and its VJP, f_backward(dy, saved) -> inputs' gradients."""

    forward: Callable[..., tuple[Any, Any]]
    backward: Callable[..., Any]


def pair(f: Callable[..., tuple[Any, Any]], f_backward: Callable[..., Any]) -> Pair:
    """Combine f(x) -> (y, saved) and f_backward(dy, saved) -> dx, for use as an `activation`.

    >>> import numpy as np
    >>> square = pair(lambda x: (x * x, x), lambda dy, x: 2 * x * dy)
    >>> y, saved = square.forward(np.array([3.0]))
    >>> square.backward(np.ones(1), saved)
    array([6.])
    """
    return Pair(f, f_backward)


def pair_of(f: Callable[..., tuple[Any, Any]]) -> Pair:
    """Return an op f together with f_backward, the function of that name in the same module."""
    return Pair(f, getattr(sys.modules[f.__module__], f"{f.__name__}_backward"))


class Declined(NamedTuple):
    """The answer of a kernel to a call that it does not take.

    The reference op then runs. `reason` says why.
    """

    reason: str


class Call:
    """One call of an op: its arguments by name (`call.x`, `call.weight`), and what computed it.

    An observer may read `op` (the function), `path` (the full name of the calling layer), `kernel`
    (the module of the kernel that took the call, None for the reference op) and `declined` (the
    reason why no kernel took it). An observer that sets `keep` before the call runs forces the
    reference op, and finds its saved values in `saved`.

    >>> from pellucid import ops
    >>> call = Call(ops.linear, (np.ones((2, 3)), np.ones((5, 3))), {})
    >>> call.weight.shape, call.bias
    ((5, 3), None)
    """

    __slots__ = ("__dict__", "declined", "keep", "kernel", "op", "path", "saved")

    def __init__(
        self,
        op: Callable[..., tuple[Any, Any]],
        args: tuple[Any, ...],
        options: dict[str, Any],
        path: str = "",
    ) -> None:
        names, defaults = _signature(op)
        arguments = self.__dict__
        arguments.update(zip(names, args, strict=False))
        arguments.update(options)
        fits = len(arguments) == len(args) + len(options)
        if len(arguments) < len(names):
            for name, default in defaults.items():
                arguments.setdefault(name, default)
        if not fits or len(arguments) != len(names):
            op(*args, **options)  # Python's own TypeError
        self.op, self.path = op, path
        self.kernel: str | None = None
        self.declined = ""
        self.keep = False
        self.saved: Any = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, including defaults."""
        return self.__dict__

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.op.__name__} has no argument {name}")


@cache
def _signature(op: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of an op's arguments, and the default values by name."""
    parameters = inspect.signature(op).parameters
    defaults = {p.name: p.default for p in parameters.values() if p.default is not p.empty}
    return tuple(parameters), defaults


Run = Callable[[Call], Result]
Observer = Callable[[Call, Run], Result]
"""observer(call, run) returns run(call); it may look at the result or wrap the backward."""
_observers: ContextVar[tuple[Observer, ...]] = ContextVar("pellucid_observers", default=())
_prefix: ContextVar[str] = ContextVar("pellucid_prefix", default="")


@contextmanager
def assigned(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable another value in a `with`."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def observing(observer: Observer) -> AbstractContextManager[None]:
    """Pass every call of an op inside this block, in this thread, through an observer.

    A backward that the observer has wrapped stays wrapped after the block.

    >>> from pellucid import nn
    >>> def log(call, run):
    ...     y, backward = run(call)
    ...     print(call.op.__name__, call.kernel or "reference")
    ...     return y, backward
    >>> with observing(log):
    ...     y = nn.Linear(3, 2)(np.ones((5, 3)))
    linear reference
    """
    return assigned(_observers, (*_observers.get(), observer))


def unobserved() -> AbstractContextManager[None]:
    """Hide the calls inside this block, and their backwards, from all observers."""
    return assigned(_observers, ())


class Observing(ABC):
    """Base class of observers that are used as `with Observer() as observer:`."""

    @abstractmethod
    def __call__(self, call: Call, run: Run) -> Result:
        """Run one call with `run(call)` and return its result."""

    def __enter__(self) -> Self:
        self._blocks = [*getattr(self, "_blocks", []), observing(self)]
        self._blocks[-1].__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks.pop().__exit__(None, None, None)


def inside(name: str) -> AbstractContextManager[None]:
    """Prefix a part's name to the paths of the calls inside this block."""
    return assigned(_prefix, joined(_prefix.get(), name))


def joined(*names: str) -> str:
    """Join the names of nested parts to a path, skipping empty names.

    >>> joined("encoder", "layers.0", "")
    'encoder.layers.0'
    """
    return ".".join(filter(None, names))


def observed(call: Call, run: Run) -> Result:
    """Run a call through the observers of this thread, if there are any."""
    observers = _observers.get()
    if observers:
        call.path = joined(_prefix.get(), call.path)
        for observer in reversed(observers):
            run = _around(observer, run)
    return run(call)


def _around(observer: Observer, run: Run) -> Run:
    """Wrap `run` so that the observer sees the call."""
    return lambda call: observer(call, run)


def composite(x: Any) -> tuple[Any, Any]:
    """Stand for a part that is made of several ops, such as a residual step; never called.

    Observers recognise such a part by `call.op is composite`. Calling this raises `TypeError`.
    """
    raise TypeError("a composite part has no op of its own")


def part(f: Callable[..., Result], x: Any, *more: Any, path: str) -> Result:
    """Run f(x, …) -> (y, backward), a part made of several ops, and show it to observers.

    Observers see it as a call of `composite` with x as its only argument.
    """
    if not _observers.get():
        return f(x, *more)
    return observed(Call(composite, (x,), {}, path), lambda call: f(x, *more))


def no_backward(*gradients: Any) -> Any:
    """Raise `TypeError`: the backward of an optimizer's step, which has no derivative."""
    raise TypeError("an optimizer's step has no derivative")


def check_gradient(dy: Any, shape: tuple[int, ...], of: str = "the output") -> None:
    """Raise `ValueError` unless a gradient has the shape of the array it belongs to.

    Another shape could broadcast, or be reshaped, and silently give a wrong result. `of` names
    that array in the message.
    """
    if getattr(dy, "shape", None) != shape and np.shape(dy) != shape:
        raise ValueError(f"a gradient has the shape of {of}: expected {shape}, got {np.shape(dy)}")

"""An op and its VJP (vector-Jacobian product), and `dispatch`, which runs the fastest pair.

A page of `ops` holds `f(x, …) -> (y, saved)` and, right under it, `f_backward(dy, saved) -> dx, …`.
A kernel family (`kernels`, for NumPy float32) may replace both halves of a pair, never its meaning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pellucid.core.array import locked
from pellucid.core.checked import checking, watched

Backward = Callable[..., Any]
Run = Callable[[], tuple[Any, Backward]]
"""A planned call: runs once and returns (y, backward)."""


class Pair(NamedTuple):
    """f(x, …) -> (y, saved) and f_backward(dy, saved) -> the gradients of the inputs."""

    forward: Callable[..., tuple[Any, Any]]
    backward: Callable[..., Any]


def pair(f: Callable[..., tuple[Any, Any]], f_backward: Callable[..., Any]) -> Pair:
    """Join a function of your own to its derivative, to be used as an `activation`.

    >>> import numpy as np
    >>> square = pair(lambda x: (x * x, x), lambda dy, x: 2 * x * dy)
    >>> y, saved = square.forward(np.array([3.0]))
    >>> square.backward(np.ones(1), saved)
    array([6.])
    """
    return Pair(f, f_backward)


def pair_of(f: Callable[..., tuple[Any, Any]]) -> Pair:
    """Return an ops function with the backward that is under it on the same page."""
    return Pair(f, getattr(sys.modules[f.__module__], f"{f.__name__}_backward"))


Planner = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Run | None]
_planners: list[Planner] = []


def register_kernels(planner: Planner) -> Planner:
    """Let a kernel family plan the calls of `dispatch`; it returns None for what it declines."""
    _planners.append(planner)
    return planner


def dispatch(f: Callable[..., tuple[Any, Any]], *args: Any, **options: Any) -> tuple[Any, Backward]:
    """Run an ops function; return (y, backward), where backward(dy) gives the inputs' gradients.

    A y that backward reads again is read-only. The first kernel family whose plan is not None runs;
    otherwise the page of `ops` itself.

    >>> from pellucid import ops
    >>> y, backward = dispatch(ops.relu, np.array([-1.0, 2.0]))
    >>> backward(np.ones(2))
    array([0., 1.])
    """
    if checking():
        y, backward = _run(f, args, options)
        return y, watched(f, args, options, backward)
    return _run(f, args, options)


def _run(
    f: Callable[..., tuple[Any, Any]], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, Backward]:
    for plan in _planners:
        run = plan(f, args, options)
        if run is not None:
            return run()
    forward, f_backward = pair_of(f)
    y, saved = forward(*args, **options)
    y = locked(y) if _is_among(saved, y, getattr(y, "base", None)) else y
    return y, lambda *gradients: f_backward(gradients[0], saved, *gradients[1:])


def _is_among(saved: Any, y: Any, base: Any) -> bool:
    """Whether y, or the array that it is a view of, was saved."""
    if isinstance(saved, tuple):
        return any(_is_among(part, y, base) for part in saved)
    return saved is not None and (saved is y or saved is base)


def check_gradient(dy: Any, shape: tuple[int, ...], of: str = "the output") -> None:
    """Raise `ValueError` unless a gradient has the shape of what it is the gradient of.

    Another shape could broadcast, or be reshaped, and silently give a wrong answer.
    """
    if getattr(dy, "shape", None) != shape and np.shape(dy) != shape:
        raise ValueError(f"a gradient has the shape of {of}: expected {shape}, got {np.shape(dy)}")

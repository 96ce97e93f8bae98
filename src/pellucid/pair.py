"""A forward function and its backward, together, and what goes into the way back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


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
    """Return an ops function with the backward that stands under it on the same page."""
    return Pair(f, getattr(sys.modules[f.__module__], f"{f.__name__}_backward"))


def check_gradient(dy: Any, shape: tuple[int, ...], of: str = "the output") -> None:
    """Raise `ValueError` unless a gradient has the shape of what it is the gradient of.

    Another shape may broadcast, or be reshaped, into an answer that is wrong without a word.
    """
    if np.shape(dy) != shape:
        raise ValueError(f"a gradient has the shape of {of}: expected {shape}, got {np.shape(dy)}")

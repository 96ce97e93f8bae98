"""A checking mode: nothing that a forward read may change before its backward has run.

A backward uses arrays that its forward was given. Writing into one of them in between, as an
optimizer step does, makes the gradient silently wrong. Inside `checked()` each forward takes a
digest of its arrays and each backward compares.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pellucid.core.array import Array, to_host

_names: ContextVar[Mapping[int, str] | None] = ContextVar("pellucid_checked", default=None)


class ChangedError(RuntimeError):
    """An array was changed between a forward and its backward."""


class _Seen(NamedTuple):
    """An array as a forward read it."""

    array: Array
    name: str
    digest: bytes


@contextmanager
def checked(module: Any = None) -> Iterator[None]:
    """Check that no array changes between a forward and its backward, both inside this block.

    Every array that goes into an op counts, whether or not the backward reads it. With `module`, a
    parameter is named as in its `state_dict`. It costs one digest of each array, forward and
    backward; outside the block nothing.

    The backward raises `ChangedError` (a `RuntimeError`) naming the array.

    >>> from pellucid import nn
    >>> layer, x = nn.Linear(3, 2), np.ones((5, 3), np.float32)
    >>> with checked(layer):  # doctest: +ELLIPSIS
    ...     y, backward = layer.forward(x)
    ...     layer.weight.data += 1
    ...     backward(y)
    Traceback (most recent call last):
    pellucid.core.checked.ChangedError: weight (the weight of linear) was changed between...
    """
    state = {} if module is None else module.state_dict()
    token = _names.set({id(array): name for name, array in state.items()})
    try:
        yield
    finally:
        _names.reset(token)


def checking() -> bool:
    """Return whether this is inside a `checked()` block."""
    return _names.get() is not None


def watched(
    f: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any], backward: Any
) -> Callable[..., Any]:
    """Return the backward of an op's call, which first compares the arrays of the call."""
    seen = list(_seen(f, args, options))

    def compared(*gradients: Any, **named: Any) -> Any:
        for array, name, digest in seen:
            if _digest(array) != digest:
                raise ChangedError(
                    f"{name} was changed between forward and backward, so the gradient would be "
                    "wrong; change it after the backward, or give forward a copy"
                )
        return backward(*gradients, **named)

    return compared


def _seen(
    f: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]
) -> Iterator[_Seen]:
    names = _names.get() or {}
    for argument, value in [*zip(_arguments(f), args, strict=False), *options.items()]:
        if value is None or not hasattr(value, "dtype") or not hasattr(value, "shape"):
            continue
        known = names.get(id(value)) or names.get(id(getattr(value, "base", None)))
        place = f"the {argument} of {f.__name__}"
        yield _Seen(value, f"{known} ({place})" if known else place, _digest(value))


@cache
def _arguments(f: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(f).parameters)


def _digest(array: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(to_host(array)).data, digest_size=16).digest()

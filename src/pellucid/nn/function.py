"""What every function of torch's names shares: its way back, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec

import numpy as np

from pellucid import kernels
from pellucid.core.rng import Rng
from pellucid.core.vjp import check_gradient
from pellucid.nn.differences import rule
from pellucid.nn.module import Array, Forward, locked, refuse_half, single_use, unlocked

P = ParamSpec("P")


def apply_pair(f: Callable[..., tuple[Any, Any]], *inputs: Any, **options: Any) -> Forward:
    """Run the best pair for an ops function; the way back keeps what it saved."""
    y, _, backward = _run(f, *inputs, **options)
    return y, backward


def hand_out(f: Callable[..., tuple[Any, Any]], *inputs: Any, **options: Any) -> Forward:
    """Run a pair whose way back may read the output again; the output is then read-only."""
    y, saved, backward = _run(f, *inputs, **options)
    return (locked(y) if _is_among(saved, y, y.base) else y), backward


def _run(f: Callable[..., tuple[Any, Any]], *inputs: Any, **options: Any) -> Any:
    for x in inputs[:2]:  # where the numbers are: the array, or the table that it looks up
        if isinstance(x, np.ndarray):
            refuse_half(x.dtype)
    forward, f_backward = kernels.best(f, *inputs, **options)
    y, saved = forward(*inputs, **options)
    shape = y.shape

    @single_use
    def backward(dy: Array) -> Any:
        check_gradient(dy, shape)
        return f_backward(dy, saved)

    return y, saved, backward


def _is_among(saved: Any, y: Any, base: Any) -> bool:
    """Whether y, or the array that it is a view of, was saved."""
    if isinstance(saved, tuple):
        return any(_is_among(part, y, base) for part in saved)
    return saved is not None and (saved is y or saved is base)


def active_dropout(p: float, training: bool, rng: Rng | None, what: str = "dropout") -> float:
    """Return the probability in force: 0 in evaluation. Raises `ValueError` without an rng."""
    if not training or p == 0.0:
        return 0.0
    if rng is None:
        raise ValueError(
            f"{what} of {p} while training needs randomness: pass rng=pellucid.Rng(seed) to "
            f"forward, or call .eval(). {rule('randomness')}"
        )
    return p


def check_probability(p: float, what: str = "dropout") -> None:
    """Raise `ValueError` unless 0 ≤ p ≤ 1."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{what} must be a probability between 0 and 1, got {p}")


def check_numbers(x: Array, what: str) -> None:
    """Raise `TypeError` unless x holds float32 or float64."""
    refuse_half(x.dtype)
    if x.dtype.kind != "f":
        raise TypeError(
            f"{what} must be float32 or float64, got {x.dtype}; convert it with .astype(np.float32)"
        )


def refuse_inplace(inplace: bool) -> None:
    """Raise `ValueError` for torch's `inplace=True`."""
    if inplace:
        raise ValueError(f"inplace=True: leave it out. {rule('inplace')}")


class Function(Generic[P]):
    """A function with its way back: `f(x)` is the output, `f.forward(x)` (output, backward)."""

    __name__: str

    def __init__(self, forward: Callable[P, Forward]) -> None:
        self.forward = forward
        update_wrapper(self, forward)

    def __call__(self, *inputs: P.args, **options: P.kwargs) -> Any:
        return unlocked(self.forward(*inputs, **options)[0])

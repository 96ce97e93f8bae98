"""Calls of ops with checked arguments, for the functions and layers with torch's names."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec

from pellucid.core.array import LARGEST, Array, namespace, unlocked
from pellucid.core.dispatch import dispatch
from pellucid.core.rng import Rng
from pellucid.core.vjp import check_gradient
from pellucid.nn.differences import rule
from pellucid.nn.module import Forward, refuse_dtype, single_use

P = ParamSpec("P")


def apply(f: Callable[..., tuple[Any, Any]], *inputs: Any, **options: Any) -> Forward:
    """Run an op with checks; return (y, backward).

    Raises `TypeError` if one of the first two inputs has a dtype that `refuse_dtype` refuses. The
    backward checks the shape of its gradient and can be called once.
    """
    namespace(inputs[0])  # raises TypeError for anything but an array
    for x in inputs[:2]:  # the input, and the weight or table
        if hasattr(x, "dtype"):
            refuse_dtype(x.dtype)
    y, inner = dispatch(f, *inputs, **options)
    shape = y.shape

    @single_use
    def backward(dy: Array) -> Any:
        check_gradient(dy, shape)
        return inner(dy)

    return y, backward


def active_dropout(p: float, training: bool, rng: Rng | None, what: str = "dropout") -> float:
    """Return the dropout probability to apply: p in training, 0 in evaluation.

    Raises `ValueError` if it is not 0 and there is no rng. `what` names the dropout in the error.
    """
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


def check_eps(eps: float) -> None:
    """Raise `ValueError` if the epsilon of a norm is negative or NaN."""
    if not eps >= 0.0:
        raise ValueError(f"eps must be at least 0, got {eps}; its root would be NaN")


def check_finite(value: float, what: str) -> None:
    """Raise `ValueError` unless |value| ≤ 2⁶³, so that its square is finite in float32."""
    if not abs(value) <= LARGEST:
        raise ValueError(f"{what} must be a number of at most {LARGEST:.2g}, got {value}")


def check_numbers(x: Array, what: str) -> None:
    """Raise `TypeError` unless x is float32, float64 or bfloat16."""
    refuse_dtype(x.dtype)
    if not namespace(x).isdtype(x.dtype, "real floating"):
        raise TypeError(
            f"{what} must be float32 or float64, got {x.dtype}; convert it with .astype(np.float32)"
        )


def refuse_inplace(inplace: bool) -> None:
    """Raise `ValueError` for torch's `inplace=True`, which is not supported."""
    if inplace:
        raise ValueError(f"inplace=True: leave it out, {rule('inplace')}")


class Function(Generic[P]):
    """A function with a backward: `f(x)` returns the output, `f.forward(x)` (output, backward)."""

    __name__: str

    def __init__(self, forward: Callable[P, Forward]) -> None:
        self.forward = forward
        update_wrapper(self, forward)

    def __reduce__(self) -> str:
        return self.__name__  # pickle stores a reference by name

    def __call__(self, *inputs: P.args, **options: P.kwargs) -> Any:
        return unlocked(self.forward(*inputs, **options)[0])

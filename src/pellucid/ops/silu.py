"""SiLU (sigmoid linear unit), also called swish: x times the logistic function of x."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace

_TAIL = 1000.0  # beyond it exp(−|x|) is exactly 0, in float64 too


class Saved(NamedTuple):
    x: Array


def silu(x: Annotated[Array, "…"]) -> tuple[Annotated[Array, "…"], Saved]:
    """Return x σ(x), σ the logistic function; shape and dtype of a float `x`.

    +inf gives +inf; −inf gives −0, the limit. Source: Elfwing et al. 2017.

    >>> import numpy as np
    >>> silu(np.array([0.0, 50.0]))[0]
    array([ 0., 50.])
    """
    xp = namespace(x)
    return xp.maximum(x, xp.full_like(x, -_TAIL)) * _sigmoid(x), Saved(x)


def silu_backward(dy: Annotated[Array, "…"], saved: Saved) -> Annotated[Array, "…"]:
    """Return dx = dy σ(x) (1 + x (1 − σ(x)))."""
    (x,) = saved
    z = namespace(dy, x).clip(x, -_TAIL, _TAIL)
    s = _sigmoid(z)
    return dy * s * (1.0 + z * (1.0 - s))


def _sigmoid(x: Array) -> Array:
    xp = namespace(x)
    e = xp.exp(-xp.abs(x))  # at most 1, so that neither tail overflows
    return xp.where(x < 0, e, xp.ones_like(e)) / (1.0 + e)

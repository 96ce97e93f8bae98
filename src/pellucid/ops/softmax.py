"""Softmax and its logarithm over the last axis."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace


class Saved(NamedTuple):
    p: Array


def _shifted(x: Array) -> Array:
    """Subtract the row maximum, so that exp cannot overflow; a row of −inf stays unchanged."""
    xp = namespace(x)
    if x.shape[-1] == 0:  # no maximum, and nothing to shift
        return x
    top = xp.max(x, axis=-1, keepdims=True)
    return x - xp.where(top == -float("inf"), xp.zeros_like(top), top)


def softmax(x: Annotated[Array, "… S"]) -> tuple[Annotated[Array, "… S"], Saved]:
    """Return p_j = exp(x_j) / Σ_k exp(x_k) over the last axis; shape and dtype of a float `x`.

    −inf gives exactly 0. A row of only −inf gives a row of zeros (PyTorch: NaN), because a query
    without keys then gets zero output. A row with +inf or NaN gives NaN.

    >>> import numpy as np
    >>> softmax(np.array([0.0, 0.0, -np.inf]))[0]
    array([0.5, 0.5, 0. ])
    """
    xp = namespace(x)
    e = xp.exp(_shifted(x))
    total = xp.sum(e, axis=-1, keepdims=True)
    p = e / xp.where(total == 0, xp.ones_like(total), total)
    return p, Saved(p)


def softmax_backward(dp: Annotated[Array, "… S"], saved: Saved) -> Annotated[Array, "… S"]:
    """Return dx = p ⊙ (dp − Σ_k dp_k p_k).

    This is the product with the Jacobian diag(p) − p pᵀ, without building that matrix.
    """
    (p,) = saved
    xp = namespace(dp, p)
    return p * (dp - xp.sum(dp * p, axis=-1, keepdims=True))


class LogSaved(NamedTuple):
    log_p: Array


def log_softmax(x: Annotated[Array, "… V"]) -> tuple[Annotated[Array, "… V"], LogSaved]:
    """Return log p_j = x_j − log Σ_k exp(x_k) over the last axis; shape and dtype of a float `x`.

    −inf stays −inf, also in a row of only −inf.

    >>> import numpy as np
    >>> bool(np.isclose(log_softmax(np.array([1000.0, 1000.0]))[0][0], -np.log(2)))
    True
    """
    xp = namespace(x)
    z = _shifted(x)
    total = xp.sum(xp.exp(z), axis=-1, keepdims=True)
    log_p = z - xp.log(xp.where(total == 0, xp.ones_like(total), total))
    return log_p, LogSaved(log_p)


def log_softmax_backward(dy: Annotated[Array, "… V"], saved: LogSaved) -> Annotated[Array, "… V"]:
    """Return dx = dy − p Σ_k dy_k."""
    (log_p,) = saved
    xp = namespace(dy, log_p)
    return dy - xp.exp(log_p) * xp.sum(dy, axis=-1, keepdims=True)

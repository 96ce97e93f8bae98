"""ReLU (rectified linear unit)."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace


class Saved(NamedTuple):
    x: Array


def relu(x: Annotated[Array, "…"]) -> tuple[Annotated[Array, "…"], Saved]:
    """Return max(0, x); shape and dtype of `x`. NaN stays NaN.

    The derivative at the kink, x = 0, is 0, as in PyTorch. Source: Nair & Hinton 2010.

    >>> import numpy as np
    >>> relu(np.array([-1.0, 2.0]))[0]
    array([0., 2.])
    """
    xp = namespace(x)
    return xp.maximum(x, xp.zeros_like(x)), Saved(x)


def relu_backward(dy: Annotated[Array, "…"], saved: Saved) -> Annotated[Array, "…"]:
    """Return dx = dy where x > 0, else 0."""
    xp = namespace(dy, saved.x)
    return xp.where(saved.x > 0, dy, xp.zeros_like(dy))

"""Leaky ReLU: a small slope instead of 0 for negative inputs."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace, own_number


class Saved(NamedTuple):
    x: Array
    slope: float


def leaky_relu(
    x: Annotated[Array, "…"], slope: float = 0.01
) -> tuple[Annotated[Array, "…"], Saved]:
    """Return x where x > 0, else slope · x; shape and dtype of a float `x`.

    Source: Maas, Hannun, Ng 2013; article 000 names it as one way to prevent dead units, and
    prefers GELU.

    >>> import numpy as np
    >>> leaky_relu(np.array([-1.0, 2.0]), 0.5)[0]
    array([-0.5,  2. ])
    """
    xp, slope = namespace(x), own_number(slope)
    return xp.where(x > 0, x, slope * x), Saved(x, slope)


def leaky_relu_backward(dy: Annotated[Array, "…"], saved: Saved) -> Annotated[Array, "…"]:
    """Return dx = dy where x > 0, else slope · dy."""
    xp = namespace(dy, saved.x)
    return xp.where(saved.x > 0, dy, saved.slope * dy)

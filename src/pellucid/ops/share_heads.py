"""Grouped-query attention: several neighbouring query heads share one head of keys and values."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace


class Saved(NamedTuple):
    times: int


def share_heads(
    x: Annotated[Array, "… G D"], times: int
) -> tuple[Annotated[Array, "… H D"], Saved]:
    """Repeat every head of x `times` times: y_h = x_{⌊h / times⌋}.

    x: (…, G, D), y: (…, G · times, D). Source: Ainslie et al. 2023 (GQA), 2.2. G = 1 is Shazeer
    2019 (MQA).

    >>> import numpy as np
    >>> share_heads(np.array([[1.0], [2.0]]), 2)[0][:, 0]
    array([1., 1., 2., 2.])
    """
    return namespace(x).repeat(x, times, axis=-2), Saved(times)


def share_heads_backward(dy: Annotated[Array, "… H D"], saved: Saved) -> Annotated[Array, "… G D"]:
    """Return dx_g = Σ_h dy_h, summed over the heads h that share head g."""
    *lead, heads, width = dy.shape
    groups = (*lead, heads // saved.times, saved.times, width)
    xp = namespace(dy)
    return xp.sum(xp.reshape(dy, groups), axis=-2)

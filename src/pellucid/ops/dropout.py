"""Dropout: zero each element with probability p, scale the rest by 1 / (1 − p)."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, like, namespace, own_number
from pellucid.core.rng import Rng, keep_mask


class Saved(NamedTuple):
    p: float
    rng: Rng | None


def dropout(
    x: Annotated[Array, "…"], p: float, rng: Rng | None
) -> tuple[Annotated[Array, "…"], Saved]:
    """Return x ⊙ m / (1 − p), the mask m drawn from `rng`; shape and dtype of a float `x`.

    p = 0 or `rng` None returns x itself; p = 1 gives zeros. Raises `ValueError` unless 0 ≤ p ≤ 1.
    Source: Srivastava et al. 2014, in the inverted form: scaling in training means that evaluation
    needs no change.

    >>> import numpy as np
    >>> dropout(np.ones(6), 0.5, Rng(0))[0]
    array([0., 2., 2., 0., 0., 0.])
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout expects a probability between 0 and 1, got {p}")
    saved = Saved(own_number(p), rng)
    return _masked(x, saved), saved


def dropout_backward(dy: Annotated[Array, "…"], saved: Saved) -> Annotated[Array, "…"]:
    """Return dx = dy ⊙ m / (1 − p); the same mask is drawn again instead of stored."""
    return _masked(dy, saved)


def _masked(x: Array, saved: Saved) -> Array:
    p, rng = saved
    if p == 0.0 or rng is None:
        return x
    xp = namespace(x)
    keep = like(keep_mask(rng, x.shape, p), x)
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    return xp.where(keep, x * scale, xp.zeros_like(x))

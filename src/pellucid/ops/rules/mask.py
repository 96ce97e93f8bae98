"""A mask given as an array: bool forbids keys, float is added to the scores."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.core.array import Array, namespace
from pellucid.ops.rule import Allowed, Places, Rule, Score, broadcasts, moved


def mask(given: Array) -> Rule:
    """Make a rule of a mask, an array that broadcasts to the scores (…, H, L, S).

    bool: True = not allowed. float: added to the scores, in their dtype; −inf forbids, unless a
    soft cap follows, which makes it finite.
    Raises `TypeError` for integers, whose 0 and 1 could mean either, and other dtypes.

    >>> mask(np.array([[False, True]])).allowed[0].mask
    array([[False,  True]])
    """
    xp = namespace(given)
    if given.dtype == xp.bool:
        return Rule(allowed=(Mask(given),))
    if not xp.isdtype(given.dtype, "real floating"):
        raise TypeError(
            f"a mask must be bool (True = not allowed) or float (added to the scores), got "
            f"{given.dtype}"
        )
    return Rule(score=(Added(given),))


@dataclass(frozen=True, eq=False)
class Mask(Allowed):
    """Forbids the keys where a bool array is True."""

    mask: Array

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the range of all keys: the array `mask` says which of them are forbidden."""
        return 0, at.keys


@dataclass(frozen=True, eq=False)
class Added(Score):
    """Adds an array to the scores: A + mask."""

    mask: Array

    def forward(self, a: Array, distance: np.ndarray) -> tuple[Array, Any]:
        """Return a + mask."""
        given = moved(broadcasts(self.mask, a.shape), a)
        return a + namespace(a).astype(given, a.dtype, copy=False), None

    def backward(self, da: Array, saved: Any) -> tuple[Array, ...]:
        """Return da: the mask is a constant."""
        return (da,)

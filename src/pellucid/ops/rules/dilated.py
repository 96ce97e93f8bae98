"""A query looks at every n-th of the near keys only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.core.array import Array
from pellucid.ops.rule import Rule, at_least_one
from pellucid.ops.rules.distances import Distances
from pellucid.ops.rules.window import window


@dataclass(frozen=True)
class Dilated(Distances):
    """l − s is a multiple of `step`. Source: Beltagy et al. 2020 (Longformer), 3.1."""

    step: int

    forbids: ClassVar[bool] = True

    def values(
        self, distance: np.ndarray, heads: int
    ) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
        """Return 0 for the distances of keys that are seen, else −∞; nothing is learnt."""
        seen = np.where(distance % self.step == 0, 0.0, -np.inf)
        return np.repeat(seen[None], heads, axis=0), lambda db: ()


def dilated(size: int, step: int) -> Rule:
    """Let a query see its own key and size − 1 keys on either side, `step` positions apart.

    Raises `ValueError` unless both are positive, `TypeError` unless they are whole.

    >>> from pellucid.ops import attention
    >>> x = np.zeros((5, 1))
    >>> attention(x, x, np.eye(5), rule=dilated(2, 2))[0][2].round(2)
    array([0.33, 0.  , 0.33, 0.  , 0.33])
    """
    step, size = at_least_one(step, "a step"), at_least_one(size, "a window")
    return window((size - 1) * step + 1) & Rule(score=(Dilated(step),))

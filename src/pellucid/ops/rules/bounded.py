"""A range of keys for each position of a query, given as two arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.ops.rule import Allowed, Places, Rule, kept


@dataclass(frozen=True, eq=False)
class Bounded(Allowed):
    """Query l may attend to key s if first[l] ≤ s < last[l]."""

    first: np.ndarray
    last: np.ndarray

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the range of each query, by its position."""
        return self.first[at.query], self.last[at.query]


def bounded(first: np.ndarray, last: np.ndarray) -> Rule:
    """Let query l of every sequence attend to keys first[l] … last[l] − 1.

    first, last: (L,) integers (else `TypeError`), L at least the largest position + 1. Most masks
    are such ranges, and kernels skip the keys outside.
    """
    return Rule(allowed=(Bounded(kept(first), kept(last)),))

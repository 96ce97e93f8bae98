"""Documents packed in one sequence do not see each other."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.ops.rule import Allowed, Places, Rule, kept


@dataclass(frozen=True, eq=False)
class Documents(Allowed):
    """Query and key are between the same two boundaries."""

    starts: np.ndarray

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the keys of the query's document."""
        edges = np.append(self.starts, np.iinfo(np.int64).max)
        document = np.searchsorted(self.starts, at.query, side="right") - 1
        return edges[document], edges[document + 1]


def documents(starts: np.ndarray) -> Rule:
    """Let queries see the keys of their own document only.

    starts: the position at which each document of a sequence begins, rising from 0, the same in
    every sequence. Raises `ValueError` for others.

    >>> from pellucid.ops.rule import bounds
    >>> at = Places(np.arange(4), np.zeros(4, int), np.full(4, 4))
    >>> bounds(documents(np.array([0, 3])), at)[1]
    array([3, 3, 3, 4])
    """
    starts = kept(starts)
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any():
        raise ValueError(f"starts of documents rise from 0, got {starts.tolist()}")
    return Rule(allowed=(Documents(starts),))

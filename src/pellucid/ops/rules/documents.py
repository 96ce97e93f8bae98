"""Documents packed into one sequence do not attend to each other."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.ops.rule import Allowed, Places, Rule, kept


@dataclass(frozen=True, eq=False)
class Documents(Allowed):
    """A query may attend to the keys of its document, [starts[i], starts[i + 1])."""

    starts: np.ndarray

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the range of keys of each query's document."""
        edges = np.append(self.starts, np.iinfo(np.int64).max)
        document = np.searchsorted(self.starts, at.query, side="right") - 1
        return edges[document], edges[document + 1]


def documents(starts: np.ndarray) -> Rule:
    """Let a query attend only to keys of the same document.

    starts: the positions where the documents of a sequence begin, increasing from 0, the same in
    every sequence. Raises `ValueError` if they do not increase from 0, `TypeError` if they are not
    integers.

    >>> from pellucid.ops.rule import bounds
    >>> at = Places(np.arange(4), np.zeros(4, int), np.full(4, 4))
    >>> bounds(documents(np.array([0, 3])), at)[1]
    array([3, 3, 3, 4])
    """
    starts = kept(starts)
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any():
        raise ValueError(f"starts of documents rise from 0, got {starts.tolist()}")
    return Rule(allowed=(Documents(starts),))

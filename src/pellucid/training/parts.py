"""A step in a fixed number of parts, whose gradients are added in one fixed tree.

The tree halves the parts: 8 parts give ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Floating-point
addition depends on its order, and the order here depends on nothing but the number of parts. A
worker has consecutive parts and adds the subtrees that are wholly its own; so the sum has the same
bits however many workers there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

import numpy as np

from pellucid.core.batch import Batch

Node = tuple[int, int]
"""A subtree: the parts from the first number up to, but not including, the second."""
T = TypeVar("T", float, np.ndarray)


def split(batch: Batch, parts: int) -> list[Batch]:
    """Split a batch into at most `parts` batches of whole pairs, which keep their example numbers.

    >>> from pellucid.core.batch import Packed
    >>> batch = Batch(Packed.of([[5], [6, 7], [8]]), Packed.of([[1, 2], [1, 3, 2], [1, 2]]))
    >>> [part.source.examples.tolist() for part in split(batch, 2)]
    [[0, 1], [2]]
    """
    if parts == 1:
        return [batch]
    groups = np.array_split(np.arange(len(batch)), min(parts, len(batch)))
    return [Batch(batch.source.select(g), batch.target.select(g)) for g in groups]


def own_parts(parts: int, workers: int, rank: int) -> range:
    """Return the parts of one worker; they are consecutive, and each part is one worker's.

    >>> [list(own_parts(8, 3, rank)) for rank in range(3)]
    [[0, 1], [2, 3, 4], [5, 6, 7]]
    """
    return range(parts * rank // workers, parts * (rank + 1) // workers)


def children(node: Node) -> tuple[Node, Node]:
    """Return the two subtrees of a node of several parts.

    >>> children((0, 8)), children((4, 7))
    (((0, 4), (4, 8)), ((4, 6), (6, 7)))
    """
    first, last = node
    middle = (first + last + 1) // 2
    return (first, middle), (middle, last)


@lru_cache(maxsize=64)
def roots(node: Node, first: int, last: int) -> tuple[Node, ...]:
    """Return the largest subtrees below `node` that hold no part outside first … last − 1.

    >>> roots((0, 8), 0, 4), roots((0, 8), 2, 5)
    (((0, 4),), ((2, 4), (4, 5)))
    """
    if first <= node[0] and node[1] <= last:
        return (node,)
    if node[1] <= first or last <= node[0]:
        return ()
    left, right = children(node)
    return roots(left, first, last) + roots(right, first, last)


@lru_cache(maxsize=64)
def completed_by(node: Node, part: int, first: int) -> int:
    """Return how many sums of subtrees are complete once `part`, the last so far, has been added.

    Only those count that begin at part `first` or later.

    >>> [completed_by((0, 8), part, 0) for part in range(8)]
    [0, 1, 0, 2, 0, 1, 0, 3]
    """
    if node[1] - node[0] == 1 or not node[0] <= part < node[1]:
        return 0
    own = int(node[1] == part + 1 and node[0] >= first)
    return own + sum(completed_by(child, part, first) for child in children(node))


def tree_sum(sums: Mapping[Node, T], node: Node) -> T:
    """Return the sum below `node`, given the sums of subtrees that cover it.

    >>> tree_sum({(0, 1): 1.0, (1, 2): 2.0, (2, 4): 4.0}, (0, 4))
    7.0
    """
    if node in sums:
        return sums[node]
    left, right = children(node)
    total: T = tree_sum(sums, left) + tree_sum(sums, right)
    return total

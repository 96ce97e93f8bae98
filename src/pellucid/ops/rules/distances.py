"""Every head adds a number to a score by the distance between query and key: ALiBi, T5."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.core.array import Array, like, namespace, scatter_add, take
from pellucid.ops.alibi import alibi as slopes
from pellucid.ops.embedding import embedding, embedding_backward
from pellucid.ops.relative_buckets import relative_buckets
from pellucid.ops.rule import Rule, Score


class Distances(Score):
    """A[h, l, s] + b_h(l − s)."""

    @abstractmethod
    def values(
        self, distance: np.ndarray, heads: int
    ) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
        """Return b (H, D) for distances (D,), and backward(db) -> the parameters' gradients."""

    def forward(self, a: Array, distance: np.ndarray) -> tuple[Array, Any]:
        """Return a + b at every distance."""
        heads = a.shape[-3] if a.ndim > 2 else 1
        least = int(distance.min(initial=0))
        each = np.arange(least, int(distance.max(initial=0)) + 1)
        index = distance - least
        b, back = self.values(each, heads)
        b = like(b, a) if isinstance(b, np.ndarray) else b
        xp = namespace(a, b)
        b = xp.astype(b, a.dtype, copy=False)
        added = take(b, like(index.reshape(-1), a), axis=1)
        added = xp.reshape(added, (heads, *index.shape))
        if index.ndim == 3:
            added = xp.permute_dims(added, (1, 0, 2, 3))
        return a + (added if a.ndim > 2 else added[0]), (index, len(each), back, a.shape)

    def backward(self, da: Array, saved: Any) -> tuple[Array, ...]:
        """Return da, and the parameters' gradients: da summed over each distance."""
        index, count, back, shape = saved
        if not self.parameters:
            return (da,)
        xp, heads = namespace(da), shape[-3] if len(shape) > 2 else 1
        each = xp.reshape(da, (math.prod(shape[:-3]), heads, *shape[-2:]))
        if index.ndim == 2:
            each = xp.sum(each, axis=0, keepdims=True)
        rows = xp.reshape(xp.permute_dims(each, (0, 2, 3, 1)), (-1, heads))
        db = scatter_add(like(index.reshape(-1), da), rows, count)
        return da, *back(xp.matrix_transpose(db))


@dataclass(frozen=True)
class Fixed(Distances):
    """b_h(l − s) = function(l − s, H)."""

    function: Callable[[np.ndarray, int], np.ndarray]

    def values(
        self, distance: np.ndarray, heads: int
    ) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
        """Return the score bias (H, distances), and a backward without gradients."""
        return self.function(distance[None], heads)[:, 0], lambda db: ()


def by_distance(function: Callable[[np.ndarray, int], np.ndarray]) -> Rule:
    """Add function(distance, H), an array (…, H, L, S), to the scores.

    distance: (…, L, S), query position − key position. Called with L = 1. −inf forbids, but where a
    soft cap follows, which makes it finite.
    """
    return Rule(score=(Fixed(function),))


alibi = by_distance(slopes)


@dataclass(frozen=True, eq=False)
class Relative(Distances):
    """table[bucket(l − s), h]; see `ops.relative_buckets`."""

    table: Array
    longest: int
    both_ways: bool

    @property
    def parameters(self) -> tuple[Array, ...]:
        """Return the table."""
        return (self.table,)

    def values(
        self, distance: np.ndarray, heads: int
    ) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
        """Look up the table's row for each distance: that of the bucket it falls into."""
        xp = namespace(self.table)
        bucket = relative_buckets(distance, self.table.shape[0], self.longest, self.both_ways)
        rows, saved = embedding(like(bucket, self.table), self.table)

        def backward(db: Array) -> tuple[Array, ...]:
            return (embedding_backward(xp.matrix_transpose(db), saved),)

        return xp.matrix_transpose(rows), backward


def relative(table: Array, longest: int = 128, both_ways: bool = True) -> Rule:
    """Add table[bucket, h] (B, H), learnt, to the scores: T5's relative positions.

    Source: Raffel et al. 2020 (T5), 2.1; `ops.relative_buckets`.
    """
    return Rule(score=(Relative(table, longest, both_ways),))

"""Biases that depend on the head and the distance between query and key, as in ALiBi and T5."""

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
    """Adds a bias b_h of the distance to the scores: A[h, l, s] + b_h(l − s)."""

    @abstractmethod
    def values(
        self, distance: np.ndarray, heads: int
    ) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
        """Return the bias b (H, D) of distances (D,), and backward(db) -> parameter gradients."""

    def forward(self, a: Array, distance: np.ndarray) -> tuple[Array, Any]:
        """Return the scores plus the bias of their distance, and what backward needs."""
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
        """Return da, and the parameters' gradients, from da summed over equal distances."""
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
    """A bias without parameters, computed by a function: b(l − s) = function(l − s, H)."""

    function: Callable[[np.ndarray, int], np.ndarray]

    def values(
        self, distance: np.ndarray, heads: int
    ) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
        """Return the bias (H, D) of distances (D,), and a backward that gives no gradients."""
        return self.function(distance[None], heads)[:, 0], lambda db: ()


def by_distance(function: Callable[[np.ndarray, int], np.ndarray]) -> Rule:
    """Add a bias to the scores that a function computes from the distance.

    function(distance, H) maps distances (…, L, S), query position − key position, to a bias
    (…, H, L, S). It is called with every distance once, as an array (1, D), and the bias of equal
    distances is the same. A bias of −inf forbids the key, unless a soft cap follows, which makes it
    finite.
    """
    return Rule(score=(Fixed(function),))


alibi = by_distance(slopes)


@dataclass(frozen=True, eq=False)
class Relative(Distances):
    """T5's bias, table[bucket(l − s), h]; see `ops.relative_buckets`."""

    table: Array
    longest: int
    both_ways: bool

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The table (B, H)."""
        return (self.table,)

    def values(
        self, distance: np.ndarray, heads: int
    ) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
        """Return the table's entries for the bucket of each distance, (H, D), and the backward."""
        xp = namespace(self.table)
        bucket = relative_buckets(distance, self.table.shape[0], self.longest, self.both_ways)
        rows, saved = embedding(like(bucket, self.table), self.table)

        def backward(db: Array) -> tuple[Array, ...]:
            return (embedding_backward(xp.matrix_transpose(db), saved),)

        return xp.matrix_transpose(rows), backward


def relative(table: Array, longest: int = 128, both_ways: bool = True) -> Rule:
    """Add T5's relative position bias to the scores: table[bucket(distance), head], learned.

    table: (B, H). `longest` and `both_ways` are those of `ops.relative_buckets`.
    Source: Raffel et al. 2020 (T5), 2.1.
    """
    return Rule(score=(Relative(table, longest, both_ways),))

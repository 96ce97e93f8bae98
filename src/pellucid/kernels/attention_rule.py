"""A rule of attention (`ops.rules`) as data of the kernels, and how a score is computed by it.

Which adjacent keys each query sees; arrays that forbid or are added; a number for each head and
distance; a soft cap. No array (L, S) is made of a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numba import types

from pellucid.core.vjp import Declined
from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import tanh
from pellucid.kernels.backend.simd import (
    LANES,
    add_to,
    choose,
    counting,
    load,
    load_from,
    truths_from,
    where,
)
from pellucid.ops.rule import Allowed, Rule, bounds, broadcasts, places
from pellucid.ops.rules.distances import Distances
from pellucid.ops.rules.mask import Added
from pellucid.ops.rules.soft_cap import SoftCap

Array = np.ndarray
_f = np.float32
_NO_MASK = np.empty((0, 0, 0, 0), np.uint8)
_NOTHING = np.empty((0, 0, 0, 0), np.float32)
_NO_DISTANCES = np.empty((0, 0), np.float32)


class Terms(NamedTuple):
    """What a rule is to the kernels."""

    first: Array  # (T,) int64: the first key of each query, in its sequence
    last: Array  # (T,) int64: one after the last
    offset: Array  # (N,) int64: how many keys are before the first query
    forbidden: Array  # (N, H, L, S) uint8, any strides but the last; nothing: of no size
    added: Array  # (N, H, L, S) float32, the same
    by_distance: Array  # (H, distances + LANES) float32; key − query + origin is the column
    origin: int
    cap: np.float32  # 0: none


_ROWS = types.int64[::1]
TERMS = types.NamedTuple(
    (
        *(_ROWS, _ROWS, _ROWS, types.uint8[:, :, :, :], types.float32[:, :, :, :]),
        *(types.float32[:, ::1], types.int64, types.float32),
    ),
    Terms,
)


class Prepared(NamedTuple):
    """A rule for one batch."""

    terms: Terms
    sources: Array
    """(N,): keys of each sequence up to the last that a query of it sees."""
    backward: Callable[[Array], tuple[Array, ...]]
    """From the gradient of `terms.by_distance` to those of the rule's parameters."""


def prepare(
    rule: Rule,
    cu_q: Array,
    cu_k: Array,
    offset: Array | None,
    scores: tuple[int, ...],
) -> Prepared | Declined:
    """Return a rule's terms; scores: (…, H, L, S), whose masks broadcast to it.

    Declines parts that the kernel does not know, and orders of them in which it does not compute.
    """
    *_, heads, length, keys = scores
    offsets = np.zeros(len(cu_q) - 1, np.int64) if offset is None else offset.astype(np.int64)
    adjacent = tuple(part for part in rule.allowed if part.mask is None)
    first, last, sources = _limits(adjacent, cu_q.tobytes(), cu_k.tobytes(), offsets.tobytes())
    masks = [part.mask for part in rule.allowed if part.mask is not None]
    cap = 0.0
    added: list[Array] = []
    distances: list[Distances] = []
    for part in rule.score:
        if isinstance(part, SoftCap):
            if cap or added or distances:
                return Declined("a soft cap after other changes of the scores")
            cap = part.cap
        elif isinstance(part, Added):
            added.append(broadcasts(part.mask, scores))
        elif isinstance(part, Distances):
            distances.append(part)
        else:
            return Declined(f"no kernel knows {type(part).__name__}")
    forbidden = _NO_MASK
    if masks:
        together = np.asarray(_joined(np.logical_or, [broadcasts(m, scores) for m in masks]))
        forbidden = _rows(together, scores).view(np.uint8)
    extra = _NOTHING
    if added:
        extra = _rows(_joined(np.add, added).astype(np.float32, copy=False), scores)
    origin = length - 1 + int(offsets.max(initial=0))
    by_distance, pulls = _NO_DISTANCES, []
    if distances:
        by_distance = np.zeros((heads, origin + keys + LANES), np.float32)
        for each in distances:
            values, pull = each.values(origin - np.arange(origin + keys), heads)
            by_distance[:, : origin + keys] += values
            pulls.append(pull)

    def backward(learnt: Array) -> tuple[Array, ...]:
        each = (g for pull in pulls for g in pull(learnt[:, : origin + keys]))
        return tuple(g.astype(np.float32) for g in each)

    terms = Terms(first, last, offsets, forbidden, extra, by_distance, origin, np.float32(cap))
    return Prepared(terms, sources, backward)


@lru_cache(maxsize=64)
def _limits(
    allowed: tuple[Allowed, ...], q_bytes: bytes, k_bytes: bytes, offset: bytes
) -> tuple[Array, Array, Array]:
    """Return `bounds`, and the keys of each sequence that are seen; every layer asks again."""
    cu_q, cu_k, before = (np.frombuffer(x, np.int64) for x in (q_bytes, k_bytes, offset))
    at = places(cu_q, cu_k, before)
    first, last = bounds(Rule(allowed), at)
    sources = np.zeros(len(before), np.int64)
    np.maximum.at(sources, at.example, np.where(first < last, last, 0))
    first, last = (np.ascontiguousarray(x, np.int64) for x in (first, last))
    return first, last, sources


def _joined(join: Callable[[Array, Array], Array], arrays: list[Array]) -> Array:
    joined, *rest = arrays
    for array in rest:
        joined = join(joined, array)
    return joined


def _rows(mask: Array, scores: tuple[int, ...]) -> Array:
    """Return a mask as (N, H, L, S), broadcast, the numbers of a row adjacent."""
    if mask.shape[-1] != scores[-1]:
        mask = np.broadcast_to(mask, (*mask.shape[:-1], scores[-1]))
    if mask.strides[-1] != mask.itemsize or min(mask.strides) < 0:
        mask = np.ascontiguousarray(mask)
    return np.broadcast_to(mask, scores).reshape(prod(scores[:-3]), *scores[-3:])


@inner()
def _row_of(array, n, head, query, key):
    """Return the address of a row of an array (N, H, L, S), from a key on; 0 of one of no size."""
    if not array.size:
        return 0
    to = n * array.strides[0] + head * array.strides[1] + query * array.strides[2]
    return where(array, 0) + to + key * array.strides[3]


@inner()
def scores_at(products, at, j, low, count, scale, rows, cap):
    """Scores j, j + 1, … of a row of q·k; −inf for keys that are not low, … low + count − 1.

    Scaled here, once, and not in q: that would round every term of the product.
    """
    forbidden = counting() + np.uint32(j - low) >= np.uint32(count)
    return choose(forbidden, _f(-np.inf), load(products, at + j) * scale)


@inner()
def ruled_scores_at(products, at, j, low, count, scale, rows, cap):
    """The same scores after every term of a rule; `rows` as `rows_of` returns them."""
    by_distance, added, forbidden, left, _ = rows
    a = load(products, at + j) * scale
    if cap > _f(0.0):
        a = tanh(a * (_f(1.0) / cap)) * cap
    if by_distance:
        a = a + load_from(by_distance + 4 * j, LANES)
    if added:
        a = a + load_from(added + 4 * j, left - j)
    if forbidden:
        a = choose(truths_from(forbidden + j, left - j), _f(-np.inf), a)
    return choose(counting() + np.uint32(j - low) >= np.uint32(count), _f(-np.inf), a)


@inner()
def pulled(da, raw, j, scale, rows, cap):
    """The gradient of scores j, j + 1, … before the rule: without one, da."""
    return da


@inner()
def ruled_pulled(da, raw, j, scale, rows, cap):
    """Add da to that of the distances, and undo the soft cap; `raw`: the row of q·k."""
    if rows[4]:
        add_to(rows[4] + 4 * j, da)
    if cap > _f(0.0):
        t = tanh(load(raw, j) * scale * (_f(1.0) / cap))
        da = da * (_f(1.0) - t * t)
    return da


@inner()
def rows_of(terms, n, head, query, s, diagonals):
    """Return where the numbers of a rule are for a row of scores, from key s on, and the steps to
    those of the next row.

    Addresses, 0 for what the rule has not, so that no array's count of users changes in a loop:
    of its distances, what is added, what is forbidden; then how many keys are left, and
    `diagonals`, where this row's gradient of the distances goes; the next row's is a number before.
    """
    by_distance = gradient = back = 0
    if terms.by_distance.size:
        column = terms.origin + s - query - terms.offset[n]
        by_distance = where(terms.by_distance, head * terms.by_distance.shape[1] + column)
        gradient, back = diagonals, -4
    left = max(terms.added.shape[3], terms.forbidden.shape[3]) - s
    added = _row_of(terms.added, n, head, query, s)
    forbidden = _row_of(terms.forbidden, n, head, query, s)
    down = terms.added.strides[2] if terms.added.size else 0
    under = terms.forbidden.strides[2] if terms.forbidden.size else 0
    return (by_distance, added, forbidden, left, gradient), (back, down, under)


@inner()
def row_at(rows, steps, i):
    """Return where the numbers are for the i-th row after."""
    back, down, under = steps
    return rows[0] + i * back, rows[1] + i * down, rows[2] + i * under, rows[3], rows[4] + i * back


@inner()
def is_ruled(terms):
    """Whether a rule says more than which adjacent keys are seen."""
    arrays = terms.forbidden.size + terms.added.size + terms.by_distance.size
    return arrays > 0 or terms.cap > _f(0.0)


@inner()
def seen_by(terms, row, rows, source):
    """Return the first key that some of these rows sees, and one after the last; 0, 0 if none."""
    low, high = source, 0
    for t in range(row, row + rows):
        if terms.first[t] < terms.last[t]:
            low, high = min(low, terms.first[t]), max(high, terms.last[t])
    return min(low, high), high

"""A rule of attention as data of the kernels; see `flash`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from pellucid.core.vjp import Declined
from pellucid.kernels.backend.simd import LANES
from pellucid.kernels.flash import Terms
from pellucid.ops.rule import Allowed, Rule, bounds, broadcasts, places
from pellucid.ops.rules.distances import Distances
from pellucid.ops.rules.mask import Added
from pellucid.ops.rules.soft_cap import SoftCap

Array = np.ndarray
_NO_MASK = np.empty((0, 0, 0, 0), np.uint8)
_NOTHING = np.empty((0, 0, 0, 0), np.float32)
_NO_DISTANCES = np.empty((0, 0), np.float32)


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

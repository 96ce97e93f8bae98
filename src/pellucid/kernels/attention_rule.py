"""Convert an attention rule (`ops.rules`) to data that the kernels read, and apply it to scores.

The data are the range of keys of each query, masks that forbid or are added, biases by head and
distance, a soft cap, and the parameters of sinks and of functions. No array (L, S) is made, except
from masks that the rule already has, which are combined and may be copied.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import takewhile
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pellucid.core.vjp import Declined
from pellucid.kernels.attention_function import UnknownNameError, refused
from pellucid.kernels.attention_function import digest as function_digest
from pellucid.kernels.attention_function import step as function_step
from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.machine_code import record
from pellucid.kernels.backend.math import tanh
from pellucid.kernels.backend.simd import (
    LANES,
    add_to,
    address_of,
    iota,
    load,
    load_from,
    nowhere,
    select,
    truths_from,
)
from pellucid.ops.rule import Allowed, Rule, Score, bounds, broadcasts, check_heads, places
from pellucid.ops.rules.distances import Distances
from pellucid.ops.rules.function import Applied, Function
from pellucid.ops.rules.mask import Added
from pellucid.ops.rules.sinks import Sinks
from pellucid.ops.rules.soft_cap import SoftCap

Array = np.ndarray


@dataclass(frozen=True)
class FunctionStep:
    """A user's function as a step of a rule.

    Steps are equal if their columns and the code of their functions are equal.
    """

    column: int
    """Column of the first parameter."""
    digest: str
    function: Function = field(compare=False)


Steps = tuple[str | FunctionStep, ...]
"""Names of the steps below, and functions."""

_f = np.float32
_KINDS = {"cap": SoftCap, "distances": Distances, "added": Added}
_SUMS = ("distances", "added")
STANDARD: Steps = ("cap", *_SUMS)
"""The steps of the kernels that come prepared; what a rule has not costs a test of a row."""
_NO_MASK = np.empty((0, 0, 0, 0), np.uint8)
_NOTHING = np.empty((0, 0, 0, 0), np.float32)
_NO_DISTANCES = np.empty((0, 0), np.float32)


class Terms(NamedTuple):
    """A rule as the arrays and numbers that the kernels read."""

    first: Array  # (T,) int64: the first key of each query, in its sequence
    last: Array  # (T,) int64: one after the last
    offset: Array  # (N,) int64: how many keys are before the first query
    forbidden: Array  # (N, H, L, S) uint8, any strides but the last; nothing: of no size
    added: Array  # (N, H, L, S) float32, the same
    by_distance: Array  # (H, distances + LANES) float32; key − query + origin is the column
    origin: int
    cap: np.float32  # 0: none
    learnt: Array  # (H, P) float32: parameters of functions, and a sink last
    sinks: bool


TERMS = record(
    Terms,
    "i8[::1],i8[::1],i8[::1],u1[:,:,:,:],f4[:,:,:,:]",
    "f4[:,::1],i8,f4,f4[:,::1],b1",
)


class Prepared(NamedTuple):
    """A rule prepared for one batch: its terms, its steps, and the backward of its parameters."""

    terms: Terms
    steps: Steps
    sources: Array
    """(N,): keys of each sequence up to the last that a query of it sees."""
    backward: Callable[[Array, Array], tuple[Array, ...]]
    """From the gradients of `terms.by_distance` and of `terms.learnt` to those of the rule's
    parameters."""


def prepared(
    rule: Rule,
    cu_q: Array,
    cu_k: Array,
    offset: Array | None,
    scores: tuple[int, ...],
) -> Prepared | Declined:
    """Prepare a rule for a batch.

    `scores` is the shape (…, H, L, S) to which its masks broadcast.

    Returns `Declined` for parts that the kernels do not support, or not in this order.
    """
    *_, heads, length, keys = scores
    steps = _steps(rule.score)
    if isinstance(steps, Declined):
        return steps
    offsets = np.zeros(len(cu_q) - 1, np.int64) if offset is None else offset.astype(np.int64)
    adjacent = tuple(part for part in rule.allowed if part.mask is None)
    first, last, sources = _limits(adjacent, cu_q.tobytes(), cu_k.tobytes(), offsets.tobytes())
    masks = [part.mask for part in rule.allowed if part.mask is not None]
    forbidden = _NO_MASK
    if masks:
        together = np.asarray(_joined(np.logical_or, [broadcasts(m, scores) for m in masks]))
        forbidden = _rows(together, scores).view(np.uint8)
    added = [broadcasts(part.mask, scores) for part in rule.score if isinstance(part, Added)]
    extra = _NOTHING
    if added:
        extra = _rows(_joined(np.add, added).astype(np.float32, copy=False), scores)
    cap = next((part.cap for part in rule.score if isinstance(part, SoftCap)), 0.0)
    origin = length - 1 + (0 if offset is None else int(offsets.max(initial=0)))
    reach = max(origin + keys, 0)
    by_distance, learnt = _NO_DISTANCES, [np.empty((heads, 0), np.float32)]
    pulls: list[Callable[[Array, Array], tuple[Array, ...]]] = []
    for part in rule.score:
        if isinstance(part, Distances):
            if not by_distance.size:
                by_distance = np.zeros((heads, reach + LANES), np.float32)
            values, pull = part.values(origin - np.arange(reach), heads)
            by_distance[:, :reach] += values
            pulls.append(partial(_pulled, pull, reach))
        elif isinstance(part, Applied | Sinks):
            check_heads(part.parameters, heads)
            pulls.append(partial(_split, part.parameters, sum(x.shape[1] for x in learnt)))
            learnt += [x.reshape(heads, -1) for x in part.parameters]

    def backward(d_distances: Array, d_learnt: Array) -> tuple[Array, ...]:
        each = (g for pull in pulls for g in pull(d_distances, d_learnt))
        return tuple(g.astype(np.float32) for g in each)

    terms = Terms(
        *(first, last, offsets, forbidden, extra, by_distance, origin, np.float32(cap)),
        np.concatenate(learnt, axis=1, dtype=np.float32) if len(learnt) > 1 else _NO_DISTANCES,
        any(part.last for part in rule.score),
    )
    return Prepared(terms, steps, sources, backward)


def _pulled(
    pull: Callable[[Array], tuple[Array, ...]], used: int, d: Array, _: Array
) -> tuple[Array, ...]:
    """Return the gradients of the parameters of one `Distances` part, from those of its biases."""
    return pull(d[:, :used])


def _split(parameters: tuple[Array, ...], begin: int, _: Array, d: Array) -> tuple[Array, ...]:
    """Return the gradients of a part's parameters, from those of all parameters.

    d: (H, columns), the gradients of every part's parameters next to each other; this part's
    columns start at `begin`.
    """
    gradients = []
    for x in parameters:
        width = x.size // len(x)
        gradients.append(d[:, begin : begin + width].reshape(x.shape))
        begin += width
    return tuple(gradients)


def digest(steps: Steps) -> str:
    """Return a digest of the steps, which names the kernels compiled for them."""
    text = repr([x if isinstance(x, str) else (x.column, x.digest) for x in steps])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _steps(parts: tuple[Score, ...]) -> Steps | Declined:
    """Return the steps that a rule applies to scores.

    Adjacent additions of a kind are merged.
    """
    steps: list[str | FunctionStep] = []
    columns = 0
    for part in parts:
        if isinstance(part, Applied):
            try:
                steps.append(FunctionStep(columns, function_digest(part.function), part.function))
            except UnknownNameError as error:
                return refused(error)
            columns += sum(x.size // len(x) for x in part.parameters)
            continue
        if isinstance(part, Sinks):  # no step: a row's sum begins with it
            continue
        step = next((name for name, kind in _KINDS.items() if isinstance(part, kind)), None)
        if step is None:
            return Declined(f"no kernel knows {type(part).__name__}")
        sums = list(takewhile(_SUMS.__contains__, reversed(steps)))
        if step in _SUMS and step in sums:
            continue
        if step in steps:
            return Declined(f"{type(part).__name__} twice, with another change between them")
        steps.append(step)
        if step in _SUMS:
            steps[len(steps) - 1 - len(sums) :] = sorted((*sums, step), key=_SUMS.index)
    in_order = iter(STANDARD)
    return STANDARD if all(step in in_order for step in steps) else tuple(steps)


@lru_cache(maxsize=64)
def _limits(
    allowed: tuple[Allowed, ...], q_bytes: bytes, k_bytes: bytes, offset: bytes
) -> tuple[Array, Array, Array]:
    """Return the bounds of each query, and the number of keys used of each sequence.

    Arrays are given as bytes, so that the result is cached: every layer asks for the same.
    """
    cu_q, cu_k, before = (np.frombuffer(x, np.int64) for x in (q_bytes, k_bytes, offset))
    at = places(cu_q, cu_k, before)
    first, last = bounds(Rule(allowed), at)
    sources = np.zeros(len(before), np.int64)
    np.maximum.at(sources, at.example, np.where(first < last, last, 0))
    first, last = (np.ascontiguousarray(x, np.int64) for x in (first, last))
    return first, last, sources


def _joined(join: Callable[[Array, Array], Array], arrays: list[Array]) -> Array:
    """Combine arrays with a binary function."""
    joined, *rest = arrays
    for array in rest:
        joined = join(joined, array)
    return joined


def _rows(mask: Array, scores: tuple[int, ...]) -> Array:
    """Broadcast a mask to (N, H, L, S), contiguous along the last axis."""
    if mask.shape[-1] != scores[-1]:
        mask = np.broadcast_to(mask, (*mask.shape[:-1], scores[-1]))
    if mask.strides[-1] != mask.itemsize or min(mask.strides) < 0:
        mask = np.ascontiguousarray(mask)
    return np.broadcast_to(mask, scores).reshape(prod(scores[:-3]), *scores[-3:])


@inner()
def _row_of(array, n, head, query, key):
    """Return the address of element [n, head, query, key] of an array, or `nowhere` if empty."""
    if not array.size:
        return nowhere()
    to = n * array.strides[0] + head * array.strides[1] + query * array.strides[2]
    return address_of(array, 0) + (to + key * array.strides[3])


@inner()
def scores_at(products, at, j, low, count, scale, rows, cap):
    """Return scores j, j + 1, … of a row of q·k, with −inf outside low … low + count − 1.

    The scale is applied to the products and not to q, which would round every term of the sum.
    """
    forbidden = iota() + np.uint32(j - low) >= np.uint32(count)
    return select(forbidden, _f(-np.inf), load(products, at + j) * scale)


@inner()
def pulled(da, raw, j, scale, rows, cap):
    """Return the gradient of scale · q·k given that of the scores, da: equal without a rule."""
    return da


@inner()
def _cap(a, j, rows, cap):
    """Apply the soft cap, if any."""
    return tanh(a * (_f(1.0) / cap)) * cap if cap > _f(0.0) else a


@inner()
def _cap_backward(da, a, j, rows, cap):
    """Return the gradient of scores before the soft cap."""
    if cap > _f(0.0):
        t = tanh(a * (_f(1.0) / cap))
        da = da * (_f(1.0) - t * t)
    return da


@inner()
def _distances(a, j, rows, cap):
    """Add the biases by distance, if any."""
    return a + load_from(rows[0] + 4 * j, LANES) if rows[0] else a


@inner()
def _distances_backward(da, a, j, rows, cap):
    """Add da to the gradient of the biases by distance; return da."""
    if rows[4]:
        add_to(rows[4] + 4 * j, da)
    return da


@inner()
def _added(a, j, rows, cap):
    """Add the float mask, if any."""
    return a + load_from(rows[1] + 4 * j, rows[3] - j) if rows[1] else a


@inner()
def _same(a, j, rows, cap):
    return a


@inner()
def _same_backward(da, a, j, rows, cap):
    return da


_STEPS = {
    "cap": (_cap, _cap_backward),
    "distances": (_distances, _distances_backward),
    "added": (_added, _same_backward),
}


def _before(step, after):
    """Compose a step f with the steps g after it: g(f(a)), with the derivative f′(a) g′(f(a))."""
    (f, f_backward), (g, g_backward) = step, after

    @inner()
    def forward(a, j, rows, cap):
        return g(f(a, j, rows, cap), j, rows, cap)

    @inner()
    def backward(da, a, j, rows, cap):
        return f_backward(g_backward(da, f(a, j, rows, cap), j, rows, cap), a, j, rows, cap)

    return forward, backward


def ruled_scores(steps: Steps) -> tuple[Any, Any]:
    """Return functions like `scores_at` and `pulled` that apply the steps of a rule.

    Their argument `rows` is the result of `rows_of`.
    """
    chain: Any = (_same, _same_backward)
    for step in reversed(steps):
        if isinstance(step, FunctionStep):
            chain = _before(function_step(step.function, step.column), chain)
        else:
            chain = _before(_STEPS[step], chain)
    forward, backward = chain

    @inner()
    def score(products, at, j, low, count, scale, rows, cap):
        forbidden, left = rows[2], rows[3]
        a = forward(load(products, at + j) * scale, j, rows, cap)
        if forbidden:
            a = select(truths_from(forbidden + j, left - j), _f(-np.inf), a)
        return select(iota() + np.uint32(j - low) >= np.uint32(count), _f(-np.inf), a)

    @inner()
    def pull(da, raw, j, scale, rows, cap):
        return backward(da, load(raw, j) * scale, j, rows, cap)

    return score, pull


@inner()
def rows_of(terms, n, head, query, s, diagonals, sums):
    """Return the addresses of a rule's numbers for a row of scores, from key s on, and row steps.

    The result is a tuple for this row, and the steps in bytes to the addresses of the next row. Raw
    addresses are used because reference counting of arrays would slow down the loop; `nowhere`
    stands for a part that the rule does not have. The tuple has the addresses of the biases by
    distance, of the added mask and of the forbidden keys; the number of keys left; the address for
    the gradient of the biases (`diagonals`; one number earlier for each next row); the places of
    query, key s, head and sequence; the address of the head's parameters; and that of their
    gradients (`sums`).
    """
    by_distance, gradient, learnt, back = nowhere(), nowhere(), nowhere(), 0
    place = query + terms.offset[n]
    if terms.by_distance.size:
        column = terms.origin + s - place
        by_distance = address_of(terms.by_distance, head * terms.by_distance.shape[1] + column)
        gradient, back = diagonals, -4
    left = max(terms.added.shape[3], terms.forbidden.shape[3]) - s
    added = _row_of(terms.added, n, head, query, s)
    forbidden = _row_of(terms.forbidden, n, head, query, s)
    down = terms.added.strides[2] if terms.added.size else 0
    under = terms.forbidden.strides[2] if terms.forbidden.size else 0
    if terms.learnt.size:
        learnt = address_of(terms.learnt, head * terms.learnt.shape[1])
    return (
        (by_distance, added, forbidden, left, gradient, place, s, head, n, learnt, sums),
        (back, down, under),
    )


@inner()
def row_at(rows, steps, i):
    """Return the addresses of `rows_of` for the i-th row after."""
    by_distance, added, forbidden, left, gradient, query, key, head, n, learnt, sums = rows
    back, down, under = steps
    return (
        by_distance + i * back, added + i * down, forbidden + i * under, left,
        gradient + i * back, query + i, key, head, n, learnt, sums,
    )  # fmt: skip


@inner()
def is_ruled(terms):
    """Return whether a rule has more than a range of keys for each query.

    Kernels compiled for other steps than the standard ones do not ask: they always apply the rule.
    """
    arrays = terms.forbidden.size + terms.added.size + terms.by_distance.size
    return arrays > 0 or terms.cap > _f(0.0) or terms.sinks


@inner()
def sink_of(terms, head):
    """Return the initial maximum and Σ exp of a row: those of the head's sink, or −inf and 0."""
    sink = terms.learnt[head, terms.learnt.shape[1] - 1] if terms.sinks else _f(-np.inf)
    return sink, _f(0.0) if sink == _f(-np.inf) else _f(1.0)


@inner()
def seen_by(terms, row, rows, source):
    """Return the range of keys to which any of these rows attends; 0, 0 if none."""
    low, high = source, 0
    for t in range(row, row + rows):
        if terms.first[t] < terms.last[t]:
            low, high = min(low, terms.first[t]), max(high, terms.last[t])
    return min(low, high), high

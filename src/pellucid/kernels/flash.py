"""Attention inside each sequence of a batch, without ever keeping the probabilities.

What differs from the reference op, and why it is fast:

1.  Nothing is padded: a (sequence, head) is one piece of work, from packed rows to packed rows.
2.  The scores of 64 queries with up to 128 keys are in a scratch array that stays in the cache.
    Between the two matrix products (`tile.product`, at the speed of a large BLAS product) one pass
    takes each row through softmax and dropout, with a polynomial exp and the hash of `rng`.
3.  Longer rows are taken 128 keys at a time; what was summed so far is rescaled when a larger score
    appears (Milakov & Gimelshein 2018; Dao et al. 2022, FlashAttention). So memory is linear in
    the length, and the same code serves 10 and 8,192 tokens.
4.  Kept for backward: q, k, v and two numbers a row, the largest score and 1 / Σ exp.
    (One would do, their log-sum-exp λ; but exp(A − λ) carries λ's rounding, ten times the error
    of the page.) Backward computes the scores again, bit for bit, and from them P.
    Dropout bits are hashed again.
5.  A rule is data of the kernel (`attention_rule`); blocks of keys that nobody sees are skipped.
6.  Softmax's backward needs Σ_s P dP, a sum over a whole row. A row of up to 128 keys is in one
    block; of a longer one the sum is known beforehand: with W = dropout(P),
    Σ_s P dP = Σ_s W dW = dout · out, and out is kept too.

Every piece writes to its own rows, so the bits do not depend on the number of threads.
"""

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import NamedTuple

import numpy as np

from pellucid.core.vjp import Declined, check_gradient
from pellucid.kernels.attention_function import refused
from pellucid.kernels.attention_rule import (
    STANDARD,
    TERMS,
    FunctionStep,
    Prepared,
    Steps,
    digest,
    is_ruled,
    prepared,
    pulled,
    row_at,
    rows_of,
    ruled_scores,
    scores_at,
    seen_by,
    sink_of,
)
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import RefusedError, empty, inner, variant
from pellucid.kernels.backend.machine_code import record
from pellucid.kernels.backend.math import channel_bits, exp, mix
from pellucid.kernels.backend.rows import Bits, read_only
from pellucid.kernels.backend.simd import (
    LANES,
    add_double,
    address_of,
    get,
    iota,
    load,
    nowhere,
    put,
    reduce_add,
    reduce_max,
    select,
    splat,
    store,
    transpose,
)
from pellucid.kernels.backend.threads import ParallelKernel
from pellucid.kernels.backend.tile import add_product, padded, product
from pellucid.ops.rule import Rule

QUERIES, KEYS = 64, 128  # one block of scores: 32 KB
ROW = KEYS + LANES  # a row stride that is no power of two: rows must not share cache sets
_WORK = 1 << 15  # multiply-adds worth a separate task; short rows cost more than that
_LONG = 16 * KEYS  # queries or keys of which sums over blocks keep what they round away

Array = np.ndarray
_f = np.float32
_NOTHING = np.empty((0, 0, 0), np.float32)


class Spans(NamedTuple):
    """Where each sequence is: its first query and key row, and how many of each; all (N,) int64."""

    q_firsts: Array
    lengths: Array
    k_firsts: Array
    sources: Array


NO_BITS = "dropout of 1, or an rng that does not name the queries"
"""Why attention declines where there are no bits of the rows of q."""


def is_heads(x: Array) -> bool:
    """Whether x is (T, H, D) float32 with a head's numbers adjacent; other strides are free."""
    return (
        isinstance(x, np.ndarray)
        and x.dtype == np.float32
        and x.ndim == 3
        and x.strides[2] == x.itemsize
        and x.strides[0] % x.itemsize == x.strides[1] % x.itemsize == 0
        and x.flags.aligned
        and x.shape[2] > 0
    )


def attend(
    q: Array, k: Array, v: Array, spans: Spans, rule: Prepared, scale: float | None,
    dropout: Bits,
) -> tuple[Array, Callable[[Array, Array, Array, Array], tuple[Array, ...]]]:  # fmt: skip
    """Return the attention of every sequence's queries (T, H, D) over its keys (U, H, D).

    With it comes `backward(dout, dq, dk, dv)`, which writes the gradients of all rows that belong
    to a sequence, and returns those of the rule's parameters.
    """
    terms = rule.terms
    forward_kernel = with_steps(_forward, rule.steps)
    backward_kernel = with_steps(_backward, rule.steps)
    scale = max(q.shape[2], 1) ** -0.5 if scale is None else scale
    out = np.empty((*q.shape[:2], v.shape[2]), np.float32)
    maxima, inverses = np.empty(q.shape[:2], np.float32), np.empty(q.shape[:2], np.float32)
    bounds, longest = tasks_of(spans, *q.shape[1:])
    tasks = len(bounds) - 1
    forward_kernel(tasks, q, k, v, spans, bounds, terms, scale, dropout, out, maxima, inverses)
    reads_out = longest > KEYS
    kept = out if reads_out else _NOTHING

    def backward(dout: Array, dq: Array, dk: Array, dv: Array) -> tuple[Array, ...]:
        check_gradient(dout, (*q.shape[:2], v.shape[2]))
        dout = dout if is_heads(dout) else np.array(dout, np.float32, order="C")
        # a row for each (sequence, head), added in that order
        n, heads = len(spans.lengths), q.shape[1]
        distances, learnt = (
            np.zeros((n * heads, x.shape[1])) for x in (terms.by_distance, terms.learnt)
        )
        backward_kernel(tasks, dout, q, k, v, kept, maxima, inverses, spans, bounds, terms, scale,
                        dropout, dq, dk, dv, distances, learnt)  # fmt: skip
        summed = (
            x.reshape(n, heads, x.shape[1]).sum(axis=0) if x.shape[1] else x
            for x in (distances, learnt)
        )
        return rule.backward(*summed)

    return read_only(out) if reads_out else out, backward


def tasks_of(spans: Spans, heads: int, width: int) -> tuple[Array, int]:
    """Divide the pieces (sequence · heads + head) into tasks of about equal work.

    Returns where the tasks begin and end, and the most keys of a sequence.
    """
    lengths, sources = spans.lengths.tobytes(), spans.sources.tobytes()
    return _bounds(lengths, sources, heads, width, threads.most_tasks())


@lru_cache(maxsize=32)
def _bounds(lengths: bytes, sources: bytes, heads: int, width: int, most: int) -> tuple[Array, int]:
    """Compute `tasks_of`; the spans come as bytes: every layer asks again."""
    queries, keys = np.frombuffer(lengths, np.int64), np.frombuffer(sources, np.int64)
    total = np.cumsum(np.repeat((queries + 1) * (keys + 1), heads))
    if not len(total):
        return np.zeros(2, np.int64), 0
    tasks = threads.task_count(int(total[-1]) * width, _WORK, most=min(most, len(total)))
    inside = np.searchsorted(total, total[-1] * np.arange(1, tasks) / tasks)
    return np.array([0, *inside, len(total)], np.int64), int(keys.max())


def clear_hidden(spans: Spans, k_lasts: Array, *gradients: Array) -> None:
    """Set the gradients of key rows that nobody sees to zero: no task writes them."""
    begins = spans.k_firsts + spans.sources
    for i in np.flatnonzero(begins < k_lasts):
        for gradient in gradients:
            gradient[begins[i] : k_lasts[i]] = 0.0


@inner()
def gather(x, first, n, head, to):
    """Copy rows of one head into the rows of `to`, zeros at their ends."""
    depth, step = x.shape[2], x.strides[0] // 4
    start = first * step + head * (x.strides[1] // 4)
    for i in range(n):
        for j in range(depth):
            to[i, j] = get(x, start + i * step + j)
        for j in range(depth, to.shape[1]):
            to[i, j] = _f(0.0)


@inner()
def gather_transposed(x, first, n, head, to, at):
    """Copy rows of one head as columns, to[at + d, i] = x[first + i, head, d], and zeros."""
    step, row = x.strides[0] // 4, to.shape[1]
    start = first * step + head * (x.strides[1] // 4)
    transpose(x, start, step, n, x.shape[2], to, at * row, row)
    for d in range(x.shape[2]):
        for i in range(n, padded(n)):
            to[at + d, i] = _f(0.0)


@inner()
def _clear(x, n):
    """Zero the first n rows, unless it is empty."""
    for i in range(n if x.size else 0):
        for j in range(x.shape[1]):
            x[i, j] = _f(0.0)


@inner()
def _add(x, low, n):
    """Add the first n rows of `low`, unless it is empty, to those of x."""
    for i in range(n if low.size else 0):
        for j in range(x.shape[1]):
            x[i, j] += low[i, j]


@inner()
def _scatter(values, n, factor, to, first, head):
    """Copy rows out to the rows of one head, times a factor."""
    step = to.strides[0] // 4
    start = first * step + head * (to.strides[1] // 4)
    for i in range(n):
        for j in range(to.shape[2]):
            put(to, start + i * step + j, values[i, j] * factor)


@inner()
def row_key(rows, query, head, site):
    """Hash as `ops.attention` names rows of scores, and then `Rng.row_hash`."""
    named = mix(np.uint32(rows[query] ^ mix(np.uint32(head + 1))))
    return mix(np.uint32(named ^ site))


@inner()
def _no_row(rows, steps, i):
    return rows


def _passes(score, pull, ruled):
    """Make the passes over a block of scores, forward and backward, from how a score is computed.

    They take all rows of a block: an inner function counts no array's users, its caller does.
    A ruled score is rather kept for the second pass over its row than computed again.
    """
    rows_at = row_at if ruled else _no_row

    @inner()
    def row(scores, at, width, low, count, scale, rows, cap, maximum, key, first, threshold):
        """Turn a row of q·k into exp(score − maximum), zero where the hash drops it.

        Returns the maximum of the row and of those before it, and the sum before dropping.
        """
        maxima = splat(maximum)
        for j in range(0, width, LANES):
            a = score(scores, at, j, low, count, scale, rows, cap)
            maxima = select(a > maxima, a, maxima)
            if ruled:
                store(scores, at + j, a)
        maximum, total = reduce_max(maxima), np.float64(0.0)
        base = _f(0.0) if maximum == _f(-np.inf) else maximum
        for start in range(0, width, _LONG):
            sums = splat(_f(0.0))
            for j in range(start, min(start + _LONG, width), LANES):
                if ruled:
                    a = load(scores, at + j)
                else:
                    a = score(scores, at, j, low, count, scale, rows, cap)
                e = exp(a - base)
                sums = sums + e
                if threshold:
                    drawn = channel_bits(key, iota() + np.uint32(first + j))
                    e = select(drawn >= threshold, e, _f(0.0))
                store(scores, at + j, e)
            total += np.float64(reduce_add(sums))
        return maximum, total

    @inner()
    def block(
        scores, stride, m, width, query, s, firsts, lasts, scale, rows, steps, cap, maxima, totals,
        context, lows, names, head, site, threshold,
    ):  # fmt: skip
        """Take m rows of q·k, from `query` and key s on, through `row`.

        Their maxima, totals and what was summed of their context follow.
        """
        for i in range(m):
            t = query + i
            low = firsts[t] - s
            count = max(lasts[t] - firsts[t], 0)
            key = row_key(names, t, head, site) if threshold else site
            maximum, sum_ = row(
                scores, i * stride, width, low, count, scale, rows_at(rows, steps, i), cap,
                maxima[i], key, s, threshold,
            )  # fmt: skip
            if maxima[i] != _f(-np.inf) and maximum != maxima[i]:
                rescale = exp(maxima[i] - maximum)
                totals[i] *= np.float64(rescale)
                for j in range(context.shape[1]):
                    context[i, j] *= rescale
                for j in range(context.shape[1] if lows.size else 0):
                    lows[i, j] *= rescale
            maxima[i] = maximum
            totals[i] += sum_

    @inner()
    def row_backward(
        scores, dscores, at, width, low, count, scale, rows, cap, maximum, inverse, mean, whole,
        key, first, threshold, keep, p, raw,
    ):  # fmt: skip
        """Compute, from a row of q·k and of dW, W (into scores) and dA (into dscores).

        `mean` is Σ P dP; it is computed here when the row is `whole`, and returned.
        """
        sums = splat(_f(0.0))
        for j in range(0, width, LANES):
            a = score(scores, at, j, low, count, scale, rows, cap)
            p_j = exp(a - maximum) * inverse
            w, dp = p_j, load(dscores, at + j)
            if threshold:
                drawn = channel_bits(key, iota() + np.uint32(first + j))
                factor = select(drawn >= threshold, splat(keep), _f(0.0))
                w, dp = w * factor, dp * factor
                store(dscores, at + j, dp)
            sums = sums + p_j * dp
            if ruled:
                store(raw, j, load(scores, at + j))
            store(scores, at + j, w)
            store(p, j, p_j)
        if whole:
            mean = reduce_add(sums)
        for j in range(0, width, LANES):
            da = load(p, j) * (load(dscores, at + j) - mean)
            store(dscores, at + j, pull(da, raw, j, scale, rows, cap))
        return mean

    @inner()
    def block_backward(
        scores, dscores, m, width, query, s, firsts, lasts, scale, rows, steps, cap, maxima,
        inverses, means, mean_0, whole, names, head, site, threshold, keep, p, raw,
    ):  # fmt: skip
        """Take m rows of q·k and of dW, from `query` and key s on, through `row_backward`.

        Their means are in `means` from `mean_0` on, and are written there when rows are whole.
        """
        for i in range(m):
            t = query + i
            low = firsts[t] - s
            count = max(lasts[t] - firsts[t], 0)
            key = row_key(names, t, head, site) if threshold else site
            means[mean_0 + i] = row_backward(
                scores, dscores, i * ROW, width, low, count, scale, rows_at(rows, steps, i), cap,
                maxima[t, head], inverses[t, head], means[mean_0 + i], whole, key, s, threshold,
                keep, p, raw,
            )  # fmt: skip

    return block, block_backward


softmax_block, softmax_block_backward = _passes(scores_at, pulled, False)
ruled_block, ruled_block_backward = _passes(*ruled_scores(STANDARD), True)


HEADS, _OUT, _PER_ROW = "f4[:,:,:]", "f4[:,:,::1]", "f4[:,::1]"
_SPANS = record(Spans, *["i8[::1]"] * 4)
_BITS = record(Bits, "u4[::1],u4,u4,f4")
CALL = (_SPANS, "i8[::1]", TERMS, "f4", _BITS)


@inner()
def _add_diagonals(diagonals, distances, at):
    """Add what a block of scores gives to each distance to the sum of its head, and clear it."""
    for i in range(QUERIES - 1 + KEYS):
        column = at + i - (QUERIES - 1)
        if 0 <= column < distances.shape[0]:
            distances[column] += np.float64(diagonals[i])
        diagonals[i] = _f(0.0)


@threads.parallel(HEADS, HEADS, HEADS, *CALL, _OUT, _PER_ROW, _PER_ROW)
def _forward(
    task, tasks, q, k, v, spans, bounds, terms, scale, dropout, out, maxima, inverses,
):  # fmt: skip
    q_firsts, lengths, k_firsts, sources = spans
    names, site, threshold, keep = dropout
    begin, end = bounds[task], bounds[task + 1]
    ruled, firsts, lasts, cap = is_ruled(terms), terms.first, terms.last, terms.cap
    heads, depth = q.shape[1], q.shape[2]
    wide = padded(v.shape[2])
    longest = 0
    for n in range(begin // heads, (end + heads - 1) // heads):
        longest = max(longest, sources[n])
    queries = empty((QUERIES, depth), np.float32)
    keys = empty(((longest + KEYS - 1) // KEYS * depth, ROW), np.float32)
    values = empty((longest, wide), np.float32)
    scores = empty((QUERIES, ROW), np.float32)
    context, part = empty((QUERIES, wide), np.float32), empty((QUERIES, wide), np.float32)
    lost, none = empty((QUERIES, wide), np.float32), empty((0, wide), np.float32)
    maxima_now, totals = empty(QUERIES, np.float32), empty(QUERIES, np.float64)

    for piece in range(begin, end):
        n, head = piece // heads, piece % heads
        q_first, length, k_first, source = q_firsts[n], lengths[n], k_firsts[n], sources[n]
        for s in range(0, source, KEYS):
            gather_transposed(k, k_first + s, min(KEYS, source - s), head, keys, s // KEYS * depth)
        gather(v, k_first, source, head, values)
        maximum_0, total_0 = sink_of(terms, head)
        lows = lost if source > _LONG else none

        for first in range(0, length, QUERIES):
            m = min(QUERIES, length - first)
            gather(q, q_first + first, m, head, queries)
            _clear(context, m)
            _clear(lows, m)
            for i in range(m):
                maxima_now[i], totals[i] = maximum_0, total_0
            begins, ends = seen_by(terms, q_first + first, m, source)
            for s in range(begins // KEYS * KEYS, ends, KEYS):
                used = min(KEYS, ends - s)
                width = padded(used)
                product(
                    m, width, depth, address_of(queries, 0), depth, 1,
                    address_of(keys, s * depth // KEYS * ROW), ROW, address_of(scores, 0), ROW,
                    nowhere(), 0,
                )  # fmt: skip
                rows, steps = rows_of(terms, n, head, first, s, nowhere(), nowhere())
                if ruled:
                    ruled_block(
                        scores, ROW, m, width, q_first + first, s, firsts, lasts, scale, rows,
                        steps, cap, maxima_now, totals, context, lows, names, head, site, threshold,
                    )  # fmt: skip
                else:
                    softmax_block(
                        scores, ROW, m, width, q_first + first, s, firsts, lasts, scale, 0,
                        0, cap, maxima_now, totals, context, lows, names, head, site, threshold,
                    )  # fmt: skip
                add_product(
                    m, wide, used, address_of(scores, 0), ROW, 1,
                    address_of(values, s * wide), wide, context, 0, wide, lows, 0, part,
                )  # fmt: skip
            _add(context, lows, m)
            for i in range(m):
                t = q_first + first + i
                dead = totals[i] == 0.0
                maxima[t, head] = _f(0.0) if dead else maxima_now[i]
                inverse = _f(0.0) if dead else _f(1.0 / totals[i])
                inverses[t, head] = inverse
                for j in range(v.shape[2]):
                    out[t, head, j] = context[i, j] * (inverse * keep)


@threads.parallel(
    HEADS, HEADS, HEADS, HEADS, _OUT, _PER_ROW, _PER_ROW, *CALL, HEADS, HEADS, HEADS,
    "f8[:,::1],f8[:,::1]",
)  # fmt: skip
def _backward(
    task, tasks, dout, q, k, v, out, maxima, inverses, spans, bounds, terms, scale, dropout,
    dq, dk, dv, distances, learnt,
):  # fmt: skip
    q_firsts, lengths, k_firsts, sources = spans
    names, site, threshold, keep = dropout
    begin, end = bounds[task], bounds[task + 1]
    ruled, firsts, lasts, cap = is_ruled(terms), terms.first, terms.last, terms.cap
    heads, depth, depth_v = q.shape[1], q.shape[2], v.shape[2]
    narrow, wide = padded(depth), padded(depth_v)
    longest = 0
    for n in range(begin // heads, (end + heads - 1) // heads):
        longest = max(longest, lengths[n])
    queries, douts = empty((longest, narrow), np.float32), empty((longest, wide), np.float32)
    dqueries, means = empty((longest, narrow), np.float32), empty(longest, np.float32)
    keys, dkeys = empty((KEYS, narrow), np.float32), empty((KEYS, narrow), np.float32)
    keys_t, values_t = empty((depth, ROW), np.float32), empty((depth_v, ROW), np.float32)
    dvalues, p = empty((KEYS, wide), np.float32), empty(KEYS, np.float32)
    part, part_v = empty((KEYS, narrow), np.float32), empty((KEYS, wide), np.float32)
    lost, lost_v = empty((KEYS, narrow), np.float32), empty((KEYS, wide), np.float32)
    none, none_v = empty((0, narrow), np.float32), empty((0, wide), np.float32)
    lost_q = empty((longest, narrow), np.float32)
    scores, dscores = empty((QUERIES, ROW), np.float32), empty((QUERIES, ROW), np.float32)
    raw = empty(KEYS, np.float32)
    seen = empty((longest + QUERIES - 1) // QUERIES * 2, np.int64)
    diagonals = empty(QUERIES + KEYS + LANES, np.float32)
    for i in range(len(diagonals)):
        diagonals[i] = _f(0.0)

    for piece in range(begin, end):
        n, head = piece // heads, piece % heads
        sums = address_of(learnt, piece * learnt.shape[1])
        sink, maximum_0 = sums + 8 * (learnt.shape[1] - 1), sink_of(terms, head)[0]
        q_first, length, k_first, source = q_firsts[n], lengths[n], k_firsts[n], sources[n]
        gather(q, q_first, length, head, queries)
        gather(dout, q_first, length, head, douts)
        for i in range(length):
            mean = np.float64(0.0)  # what is taken from it, dP, may be as large
            for j in range(depth_v if source > KEYS else 0):
                mean += np.float64(douts[i, j]) * np.float64(out[q_first + i, head, j])
            means[i] = mean
        lows_q = lost_q if source > _LONG else none
        lows, lows_v = (lost, lost_v) if length > _LONG else (none, none_v)
        _clear(dqueries, length)
        _clear(lows_q, length)
        for first in range(0, length, QUERIES):
            block = first // QUERIES * 2
            m = min(QUERIES, length - first)
            seen[block], seen[block + 1] = seen_by(terms, q_first + first, m, source)

        for s in range(0, source, KEYS):
            used = min(KEYS, source - s)
            width = padded(used)
            gather(k, k_first + s, used, head, keys)
            gather_transposed(k, k_first + s, used, head, keys_t, 0)
            gather_transposed(v, k_first + s, used, head, values_t, 0)
            _clear(dkeys, used)
            _clear(dvalues, used)
            _clear(lows, used)
            _clear(lows_v, used)
            for first in range(0, length, QUERIES):
                block = first // QUERIES * 2
                if seen[block] >= s + used or seen[block + 1] <= s:
                    continue
                m = min(QUERIES, length - first)
                product(
                    m, width, depth, address_of(queries, first * narrow), narrow, 1,
                    address_of(keys_t, 0), ROW, address_of(scores, 0), ROW,
                    nowhere(), 0,
                )  # fmt: skip
                product(
                    m, width, depth_v, address_of(douts, first * wide), wide, 1,
                    address_of(values_t, 0), ROW, address_of(dscores, 0), ROW,
                    nowhere(), 0,
                )  # fmt: skip
                rows, steps = rows_of(
                    terms, n, head, first, s, address_of(diagonals, QUERIES - 1), sums
                )
                if ruled:
                    ruled_block_backward(
                        scores, dscores, m, width, q_first + first, s, firsts, lasts, scale, rows,
                        steps, cap, maxima, inverses, means, first, source <= KEYS, names, head,
                        site, threshold, keep, p, raw,
                    )  # fmt: skip
                else:
                    softmax_block_backward(
                        scores, dscores, m, width, q_first + first, s, firsts, lasts, scale, 0,
                        0, cap, maxima, inverses, means, first, source <= KEYS, names, head, site,
                        threshold, keep, p, raw,
                    )  # fmt: skip
                if terms.by_distance.size:
                    column = terms.origin + s - first - terms.offset[n]
                    _add_diagonals(diagonals, distances[piece], column)
                add_product(
                    used, wide, m, address_of(scores, 0), 1, ROW,
                    address_of(douts, first * wide), wide, dvalues, 0, wide, lows_v, 0, part_v,
                )  # fmt: skip
                add_product(
                    used, narrow, m, address_of(dscores, 0), 1, ROW,
                    address_of(queries, first * narrow), narrow, dkeys, 0, narrow, lows, 0, part,
                )  # fmt: skip
                at = first * narrow
                add_product(
                    m, narrow, used, address_of(dscores, 0), ROW, 1,
                    address_of(keys, 0), narrow, dqueries, at, narrow, lows_q, at, part,
                )  # fmt: skip
            _add(dkeys, lows, used)
            _add(dvalues, lows_v, used)
            _scatter(dkeys, used, scale, dk, k_first + s, head)
            _scatter(dvalues, used, _f(1.0), dv, k_first + s, head)
        for i in range(length if terms.sinks else 0):
            # dA of the sink: its probability times 0 − Σ P dP
            t = q_first + i
            add_double(sink, -(exp(maximum_0 - maxima[t, head]) * inverses[t, head] * means[i]))
        _add(dqueries, lows_q, length)
        _scatter(dqueries, length, scale, dq, q_first, head)


@inner()
def _always(terms):
    return True


@lru_cache(maxsize=64)
def with_steps(kernel: ParallelKernel, steps: Steps) -> ParallelKernel:
    """Return a kernel of attention for rules of other steps than it has."""
    if steps == STANDARD:
        return kernel
    block, block_backward = _passes(*ruled_scores(steps), True)
    f = kernel.function
    own = {"ruled_block": block, "ruled_block_backward": block_backward, "is_ruled": _always}
    f = FunctionType(f.__code__, {**f.__globals__, **own}, f.__name__)
    made = ParallelKernel(variant(f, digest(steps)), kernel.signature)
    functions = ", ".join(repr(x.function) for x in steps if isinstance(x, FunctionStep))
    made.about = f"kernels for {functions or 'this rule of attention'}, in about 15 seconds"
    return made


@lru_cache(maxsize=64)
def _problem(steps: Steps) -> Declined | None:
    """Compile the kernels for a rule's steps; return why that cannot be."""
    try:
        for kernel in (_forward, _backward):
            with_steps(kernel, steps).compile()
    except RefusedError as error:
        return refused(error)
    return None


def prepare(
    rule: Rule, cu_q: Array, cu_k: Array, offset: Array | None, scores: tuple[int, ...]
) -> Prepared | Declined:
    """Return `attention_rule.prepared`, for which there are kernels."""
    found = prepared(rule, cu_q, cu_k, offset, scores)
    if isinstance(found, Declined) or found.steps == STANDARD:
        return found
    return _problem(found.steps) or found

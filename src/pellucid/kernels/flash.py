"""Fused attention inside each sequence of a batch, without storing the probabilities.

How it differs from the reference op, and why it is fast:

1.  Nothing is padded: each (sequence, head) is a piece of work on packed rows.
2.  The scores of 64 queries and up to 128 keys are in a temporary array that stays in the cache.
    Between the two matrix products (`tile.product`, as fast as a large BLAS product), one pass
    computes softmax and dropout of each row, with a polynomial exp and the hash of `rng`.
3.  Longer rows are processed in blocks of 128 keys; the sums so far are rescaled when a larger
    score appears (Milakov & Gimelshein 2018; Dao et al. 2022, FlashAttention). So memory is linear
    in the length, and the same code serves 10 and 8,192 tokens.
4.  Backward needs q, k, v and two numbers for each row, the largest score and 1 / Σ exp. (Their
    combination λ, the log-sum-exp, would be enough, but exp(A − λ) contains the rounding error of
    λ, which is ten times the error of the reference op.) Backward computes the scores and dropout
    bits again, the same bit for bit, and from them P.
5.  A rule is data for the kernel (`attention_rule`); blocks of keys without a query are skipped.
6.  The backward of softmax needs Σ_s P dP, a sum over a whole row. A row of up to 128 keys is in
    one block. For longer rows, with W = dropout(P), Σ_s P dP = Σ_s W dW = dout · out, for which
    `out` is kept too.

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
    """For each sequence, the first query row and their number, the first key row and their number.

    All are (N,) int64.
    """

    q_firsts: Array
    lengths: Array
    k_firsts: Array
    sources: Array


NO_BITS = "dropout of 1, or an rng that does not name the queries"
"""Why attention declines where there are no bits of the rows of q."""


def is_heads(x: Array) -> bool:
    """Return whether x is an aligned float32 NumPy array (T, H, D), D > 0, contiguous along D."""
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
    """Compute attention within each sequence, from q (T, H, D) to k (U, H, D) and v (U, H, Dv).

    scale: None stands for 1/√D. Returns the output (T, H, Dv), and `backward(dout, dq, dk, dv)`,
    which writes the gradients into dq, dk and dv (only for keys that are used), and returns those
    of the rule's parameters. The output is read-only if a sequence uses more than 128 keys:
    backward reads it again.
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

    Returns the boundaries of the tasks, and the largest number of keys of a sequence.
    """
    lengths, sources = spans.lengths.tobytes(), spans.sources.tobytes()
    return _bounds(lengths, sources, heads, width, threads.most_tasks())


@lru_cache(maxsize=32)
def _bounds(lengths: bytes, sources: bytes, heads: int, width: int, most: int) -> tuple[Array, int]:
    """Compute `tasks_of`; spans are given as bytes to cache the result for all layers."""
    queries, keys = np.frombuffer(lengths, np.int64), np.frombuffer(sources, np.int64)
    total = np.cumsum(np.repeat((queries + 1) * (keys + 1), heads))
    if not len(total):
        return np.zeros(2, np.int64), 0
    tasks = threads.task_count(int(total[-1]) * width, _WORK, most=min(most, len(total)))
    inside = np.searchsorted(total, total[-1] * np.arange(1, tasks) / tasks)
    return np.array([0, *inside, len(total)], np.int64), int(keys.max())


def clear_hidden(spans: Spans, k_lasts: Array, *gradients: Array) -> None:
    """Set the gradients of unused key rows to zero, since no task writes them.

    k_lasts: the row after the last key of each sequence.
    """
    begins = spans.k_firsts + spans.sources
    for i in np.flatnonzero(begins < k_lasts):
        for gradient in gradients:
            gradient[begins[i] : k_lasts[i]] = 0.0


@inner()
def gather(x, first, n, head, to):
    """Copy n rows of one head to the rows of `to`, padded with zeros."""
    depth, step = x.shape[2], x.strides[0] // 4
    start = first * step + head * (x.strides[1] // 4)
    for i in range(n):
        for j in range(depth):
            to[i, j] = get(x, start + i * step + j)
        for j in range(depth, to.shape[1]):
            to[i, j] = _f(0.0)


@inner()
def gather_transposed(x, first, n, head, to, at):
    """Copy rows of one head as columns, to[at + d, i] = x[first + i, head, d], zero-padded."""
    step, row = x.strides[0] // 4, to.shape[1]
    start = first * step + head * (x.strides[1] // 4)
    transpose(x, start, step, n, x.shape[2], to, at * row, row)
    for d in range(x.shape[2]):
        for i in range(n, padded(n)):
            to[at + d, i] = _f(0.0)


@inner()
def _clear(x, n):
    """Set the first n rows of x to zero, unless x is empty."""
    for i in range(n if x.size else 0):
        for j in range(x.shape[1]):
            x[i, j] = _f(0.0)


@inner()
def _add(x, low, n):
    """Add the first n rows of `low` to those of x, unless `low` is empty."""
    for i in range(n if low.size else 0):
        for j in range(x.shape[1]):
            x[i, j] += low[i, j]


@inner()
def _scatter(values, n, factor, to, first, head):
    """Write n rows, times a factor, to the rows of one head of `to`."""
    step = to.strides[0] // 4
    start = first * step + head * (to.strides[1] // 4)
    for i in range(n):
        for j in range(to.shape[2]):
            put(to, start + i * step + j, values[i, j] * factor)


@inner()
def row_key(rows, query, head, site):
    """Return the dropout hash of a row of scores, as `ops.attention` and `Rng.row_hash` do."""
    named = mix(np.uint32(rows[query] ^ mix(np.uint32(head + 1))))
    return mix(np.uint32(named ^ site))


@inner()
def _no_row(rows, steps, i):
    return rows


def _passes(score, pull, ruled):
    """Return the functions that process a block of scores, forward and backward.

    `score` and `pull` compute a score and its gradient. The functions process all rows of a block,
    so that arrays are reference-counted once per block. If `ruled`, scores are stored for the
    second pass over their row, since it would be slow to compute them again.
    """
    rows_at = row_at if ruled else _no_row

    @inner()
    def row(scores, at, width, low, count, scale, rows, cap, maximum, key, first, threshold):
        """Replace a row of q·k by exp(score − maximum), with zeros where dropout drops it.

        Returns the maximum including earlier blocks of the row, and this block's sum before
        dropout.
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
        """Apply `row` to m rows of q·k, which begin at `query` and key s.

        Updates their maxima and sums, and rescales the context that was summed so far.
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
        """Replace a row of q·k in `scores` by W, and a row of dW in `dscores` by dA.

        `mean` is Σ P dP; if the row is `whole`, it is computed here. Returns it.
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
        """Apply `row_backward` to m rows of q·k and of dW, which begin at `query` and key s.

        means[mean_0 + i] is the mean of row i, which is computed here if rows are `whole`.
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
    """Add a block's gradients of the biases by distance to those of its head; clear the block's."""
    for i in range(QUERIES - 1 + KEYS):
        column = at + i - (QUERIES - 1)
        if 0 <= column < distances.shape[0]:
            distances[column] += np.float64(diagonals[i])
        diagonals[i] = _f(0.0)


@threads.parallel(HEADS, HEADS, HEADS, *CALL, _OUT, _PER_ROW, _PER_ROW)
def _forward(
    task, tasks, q, k, v, spans, bounds, terms, scale, dropout, out, maxima, inverses,
):  # fmt: skip
    """Compute attention of the pieces bounds[task] … bounds[task + 1] − 1."""
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
    """Compute the gradients of the pieces bounds[task] … bounds[task + 1] − 1."""
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
            mean = np.float64(0.0)  # float64, because dP − mean may cancel
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
    """Return the attention kernel for a rule's steps; `kernel` itself for the standard ones."""
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
    """Compile the kernels for a rule's steps.

    Returns `Declined` if that fails, else None.
    """
    try:
        for kernel in (_forward, _backward):
            with_steps(kernel, steps).compile()
    except RefusedError as error:
        return refused(error)
    return None


def prepare(
    rule: Rule, cu_q: Array, cu_k: Array, offset: Array | None, scores: tuple[int, ...]
) -> Prepared | Declined:
    """Prepare a rule as `attention_rule.prepared` does, and make sure that its kernels compile.

    Returns `Declined` if they do not.
    """
    found = prepared(rule, cu_q, cu_k, offset, scores)
    if isinstance(found, Declined) or found.steps == STANDARD:
        return found
    return _problem(found.steps) or found

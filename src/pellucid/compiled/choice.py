"""From rows to words: the output layer with log-softmax, the likeliest tokens, and the beam.

The rules are `decoding.search`'s, hypothesis by hypothesis, without Python: the `beam` likeliest
unfinished hypotheses of an input go on, those that end are kept by score, and an input is answered
when no unfinished one can still rank above the worst answer wanted.
"""

from __future__ import annotations

import numpy as np

from pellucid.compiled.blocks import spread_bias, times
from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import exp
from pellucid.kernels.backend.matmul import WIDTH
from pellucid.kernels.backend.simd import LANES, choose, full, highest, load, store, total

AT_ONCE = 32  # rows whose logits stay in the cache between the product and the choice

_f = np.float32
_ZERO = _f(0.0)
_LOWEST = _f(-3e38)


@inner()
def log_probabilities(x, e, w, at, bias_at, logits):
    """log p (m, V) of rows x; what pads V has a bias so low that its p is 0."""
    m, wide = logits.shape
    spread_bias(logits, wide, w, bias_at)
    times(x, e, w, at, logits, wide // WIDTH)
    for i in range(m):
        here = i * wide
        tops = full(_LOWEST)
        for j in range(0, wide, LANES):
            z = load(logits, here + j)
            tops = choose(z > tops, z, tops)
        top = highest(tops)
        sums = full(_ZERO)
        for j in range(0, wide, LANES):
            sums = sums + exp(load(logits, here + j) - top)
        log_sum = _f(np.log(total(sums)))
        for j in range(0, wide, LANES):
            store(logits, here + j, (load(logits, here + j) - top) - log_sum)


@inner()
def likeliest(log_p, i, vocabulary, k, values, tokens):
    """Write row i's k largest values and their tokens, largest first, ties to the lower token.

    Where the vocabulary has fewer than k tokens, the rest are −1.
    """
    wide = log_p.shape[1]
    for place in range(k):
        values[place], tokens[place] = _LOWEST, -1
    worst = _LOWEST
    for start in range(0, wide, 2 * LANES):
        a = load(log_p, i * wide + start)
        b = load(log_p, i * wide + start + LANES)
        if highest(choose(a > b, a, b)) > worst:
            for token in range(start, min(start + 2 * LANES, vocabulary)):
                value = log_p[i, token]
                if value > worst:
                    place = k - 1
                    while place > 0 and values[place - 1] < value:
                        values[place], tokens[place] = values[place - 1], tokens[place - 1]
                        place -= 1
                    values[place], tokens[place] = value, token
                    worst = values[k - 1]


@inner()
def keep(i, log_p, score, length, row, ended, done_score, done, log_ps):
    """Keep an answer of input i among its best, behind those of the same score.

    done[i, place]: its length, the row of its last token, and whether it said the end.
    """
    place = done_score.shape[1]
    while place > 0 and done_score[i, place - 1] < score:
        place -= 1
    for p in range(done_score.shape[1] - 1, place, -1):
        done_score[i, p], log_ps[i, p] = done_score[i, p - 1], log_ps[i, p - 1]
        for j in range(3):
            done[i, p, j] = done[i, p - 1, j]
    if place < done_score.shape[1]:
        done_score[i, place], log_ps[i, place] = score, log_p
        done[i, place, 0], done[i, place, 1], done[i, place, 2] = length, row, ended


@inner()
def advance(
    m, owners, totals, values, tokens, beam, best, eos, said, penalties, limits, alpha_positive,
    done_score, done, log_ps, finished,
    next_owners, next_totals, next_tokens, parents,
):  # fmt: skip
    """Extend the hypotheses, m rows grouped by input, by a token; return how many rows go on.

    totals (m,): Σ log p so far; values, tokens (m, 2 · beam): each row's likeliest next.
    """
    cursor = np.empty(beam, np.int64)
    wanted = 2 * beam
    rows = 0
    begin = 0
    while begin < m:
        i = owners[begin]
        end = begin + 1
        while end < m and owners[end] == i:
            end += 1
        for r in range(end - begin):
            cursor[r] = 0
        first = rows
        for rank in range(wanted if said < limits[i] else 0):
            if rows - first == beam:
                break
            at, reached = -1, 0.0
            for r in range(begin, end):
                c = cursor[r - begin]
                if c < wanted and tokens[r, c] >= 0:
                    sum_ = totals[r] + np.float64(values[r, c])
                    if at < 0 or sum_ > reached:
                        at, reached = r, sum_
            if at < 0:
                break
            token = tokens[at, cursor[at - begin]]
            cursor[at - begin] += 1
            if token == eos:
                if rank < beam:
                    score = reached / penalties[said + 1]
                    keep(i, reached, score, said, at, True, done_score, done, log_ps)
                    finished[i] += 1
            else:
                next_owners[rows], next_totals[rows] = i, reached
                next_tokens[rows], parents[rows] = token, at
                rows += 1
        if rows > first and finished[i] >= beam:
            if beam == 1:
                rows = first
            else:
                # log p only falls; the kindest penalty is that of the longest answer it can become
                kindest = penalties[limits[i] + 1 if alpha_positive else said + 2]
                if next_totals[first] / kindest <= done_score[i, best - 1]:
                    rows = first
        begin = end
    return rows

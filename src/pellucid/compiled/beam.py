"""Compiled parts of a search: output layer with log-softmax, constraints, top k, beam search.

The rules are those of `generation.search`: the `beam` likeliest unfinished hypotheses of an input
are kept, and finished ones are ranked by score. An input is finished when `beam` hypotheses have
ended and no unfinished one can still rank above the worst answer to return, or at its limit.
"""

import numpy as np

from pellucid.compiled.products import fill, prepare
from pellucid.compiled.records import ANSWERS
from pellucid.kernels.backend.compile import empty, inner
from pellucid.kernels.backend.math import exp
from pellucid.kernels.backend.simd import (
    LANES,
    WIDTH,
    load,
    reduce_add,
    reduce_max,
    select,
    splat,
    store,
)

ROW_BATCH = 32  # so few rows that their logits stay in the processor's cache until they are used

_f = np.float32
_ZERO, _ONE = _f(0.0), _f(1.0)
_LOWEST = _f(-3e38)


@inner()
def choose(log_p, i, output):
    """Merge all end tokens into one and suppress tokens in row i, as `models.model.choices`.

    log_p is changed in place.
    """
    eos = output.ends[0]
    most = log_p[i, eos]
    for j in range(1, len(output.ends)):
        most = max(most, log_p[i, output.ends[j]])
        log_p[i, output.ends[j]] = -np.inf
    log_p[i, eos] = most
    for j in range(len(output.suppressed)):
        log_p[i, output.suppressed[j]] = -np.inf


@inner()
def log_probabilities(x, rounded, width, w, output, log_p):
    """Write the log-probabilities (m, padded V) of rows x, after `choose`.

    Padding has a bias that makes p = 0.
    """
    m, wide = log_p.shape
    prepare(x, width, w, rounded)
    fill(x, rounded, width, w, output.weight, output.bias, log_p, wide // WIDTH)
    for i in range(m):
        here = i * wide
        maxima = splat(_LOWEST)
        for j in range(0, wide, LANES):
            z = load(log_p, here + j)
            maxima = select(z > maxima, z, maxima)
        maximum = reduce_max(maxima)
        sums = splat(_ZERO)
        for j in range(0, wide, LANES):
            sums = sums + exp(load(log_p, here + j) - maximum)
        log_sum = _f(np.log(reduce_add(sums)))
        for j in range(0, wide, LANES):
            store(log_p, here + j, (load(log_p, here + j) - maximum) - log_sum)
        choose(log_p, i, output)


@inner()
def likeliest(log_p, i, vocabulary, values, tokens):
    """Write the largest values of row i and their tokens, largest first; ties by lower token.

    If `tokens` is longer than the number of tokens that are not −inf, the rest of it becomes −1.
    """
    wide, k = log_p.shape[1], len(tokens)
    for place in range(k):
        values[place], tokens[place] = _LOWEST, -1
    worst = _LOWEST
    for start in range(0, wide, 2 * LANES):
        a = load(log_p, i * wide + start)
        b = load(log_p, i * wide + start + LANES)
        if reduce_max(select(a > b, a, b)) > worst:
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
def begin(log_p, i, generated, row, length, left, state, beginnings):
    """Set log p of tokens that do not agree with the prefix to −inf in row i, in place.

    Returns False, and changes nothing, after the end of the prefix or without one (state −1).
    `generated[row, :length]` are the tokens so far, `state` is the first state of the prefix, and
    `left` the number of tokens that may still follow; as in `models.prefix.Prefix.allowed`.
    """
    for j in range(length):
        if state >= 0:
            at = beginnings.starts[state]
            while beginnings.tokens[at] != generated[row, j]:
                at += 1
            state = beginnings.after[at]
    if state < 0:
        return False
    at, end = beginnings.starts[state], beginnings.starts[state + 1]
    kept = empty(end - at, np.float32)
    for j in range(at, end):
        after = beginnings.after[j]
        free = after < 0 or beginnings.fewest[after] < left
        kept[j - at] = log_p[i, beginnings.tokens[j]] if free else _f(-np.inf)
    for token in range(log_p.shape[1]):
        log_p[i, token] = -np.inf
    for j in range(at, end):
        log_p[i, beginnings.tokens[j]] = kept[j - at]
    return True


@inner()
def constrain(log_p, i, generated, row, length, beam):
    """Apply the constraints to row i of log p, as `models.decoding.constrain` does, in place.

    `begin` takes care of prefixes. `generated[row, :length]` are the tokens so far.
    """
    if beam.forced >= 0 and length == 0:
        for token in range(log_p.shape[1]):
            log_p[i, token] = -np.inf
        log_p[i, beam.forced] = _ZERO
        return
    if length < beam.least:
        log_p[i, beam.eos] = -np.inf
    if beam.repetition != _ONE:
        for j in range(length):
            token = generated[row, j]
            before = 0
            while generated[row, before] != token:
                before += 1
            if before == j:  # penalise a token once, even if it was generated several times
                log_p[i, token] *= beam.repetition
    n = beam.no_repeat
    if n > 0:
        for j in range(length - n + 1):
            same = 0
            last = length - n + 1
            while same < n - 1 and generated[row, j + same] == generated[row, last + same]:
                same += 1
            if same == n - 1:
                log_p[i, generated[row, j + n - 1]] = -np.inf


@inner(signature=(ANSWERS, "i8,f8,f8,i8,i4[:,::1],i8,b1"))
def keep(answers, i, log_p, score, length, generated, row, ended):
    """Insert an answer of input i if it is among the `beam` best so far.

    Equal scores keep their order.
    """
    scores, log_ps, ends, tokens = answers.scores, answers.log_p, answers.ends, answers.tokens
    last = scores.shape[1]
    place = last
    while place > 0 and scores[i, place - 1] < score:
        place -= 1
    for p in range(last - 1, place, -1):
        scores[i, p], log_ps[i, p] = scores[i, p - 1], log_ps[i, p - 1]
        ends[i, p, 0], ends[i, p, 1] = ends[i, p - 1, 0], ends[i, p - 1, 1]
        for j in range(ends[i, p, 0]):
            tokens[i, p, j] = tokens[i, p - 1, j]
    if place < last:
        scores[i, place], log_ps[i, place] = score, log_p
        ends[i, place, 0], ends[i, place, 1] = length, ended
        for j in range(length):
            tokens[i, place, j] = generated[row, j]


@inner()
def advance(m, current, candidates, beam, inputs, answers, following):
    """Extend m hypotheses by a token; write the survivors to `following`, return their number.

    Inputs without survivors are finished; their answers are in `answers`.
    """
    owners, totals = current.owners, current.totals
    cursor = empty(beam.size, np.int64)
    most = 2 * beam.size
    rows = 0
    begin = 0
    while begin < m:
        i = owners[begin]
        end = begin + 1
        while end < m and owners[end] == i:
            end += 1
        for r in range(end - begin):
            cursor[r] = 0
        first, length, limit = rows, inputs.lengths[i], inputs.limits[i]
        for rank in range(most if length < limit else 0):
            if rows - first == beam.size:
                break
            at, reached = -1, 0.0
            for r in range(begin, end):
                c = cursor[r - begin]
                if c < most and candidates.tokens[r, c] >= 0:
                    sum_ = totals[r] + np.float64(candidates.log_p[r, c])
                    if at < 0 or sum_ > reached:
                        at, reached = r, sum_
            if at < 0:
                break
            token = candidates.tokens[at, cursor[at - begin]]
            cursor[at - begin] += 1
            if token == beam.eos:
                if rank < beam.size:
                    score = reached / beam.penalties[length + 1]
                    keep(answers, i, reached, score, length, current.generated, at, True)
                    answers.finished[i] += 1
            else:
                following.owners[rows], following.totals[rows] = i, reached
                following.tokens[rows], following.parents[rows] = token, at
                rows += 1
        if rows > first and answers.finished[i] >= beam.size:
            if beam.size == 1:
                rows = first
            else:
                # log p can only fall; the largest divisor is that of the longest possible answer
                longest = limit + 1 if beam.longer_is_kinder else length + 2
                largest = beam.penalties[longest]
                if following.totals[first] / largest <= answers.scores[i, beam.best - 1]:
                    rows = first
        begin = end
    return rows

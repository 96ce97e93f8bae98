"""Decoding in one call: sentences in, answers out, with no Python between the words.

`read` passes sources through an encoder, or through a decoder that has none; `search` finds the
likeliest answers; `say` says one word, for whoever chooses words otherwise. All run on the thread
that calls. How rows pass through a stack is `decode_blocks`, how words are chosen `decode_choice`.

What they are given: a stack's `program` and `sizes`; w, the long array of weights; `numbers`, what
q·k, tokens and positions are multiplied by and the norms' ε; tables of tokens and positions; where
the output layer stands in w.
"""

from __future__ import annotations

import numpy as np

from pellucid.compiled.blocks import (
    E_ROW,
    F_ROW,
    HEAD_WIDTH,
    HEADS,
    E,
    embed,
    run_blocks,
    spread_bias,
    times,
)
from pellucid.compiled.choice import AT_ONCE, advance, keep, likeliest, log_probabilities
from pellucid.kernels.backend.compile import inner, kernel
from pellucid.kernels.backend.matmul import WIDTH
from pellucid.kernels.backend.tile import padded

SCALE, EPS, BY_TOKEN, BY_PLACE = range(4)


@inner()
def _between(rows, sizes):
    """Arrays for what lies between a stack's rows: normed rows, products, contexts."""
    span = sizes[HEADS] * sizes[HEAD_WIDTH]
    wide = max((3 * span + WIDTH - 1) // WIDTH * WIDTH, sizes[F_ROW])
    return (
        np.empty((rows, sizes[E_ROW]), np.float32),
        np.empty((rows, wide), np.float32),
        np.empty((rows, span), np.float32),
    )


@inner()
def _scratch(keys):
    """Arrays for one row's scores and for where its keys stand."""
    return np.empty((1, padded(keys)), np.float32), np.empty(keys, np.int64)


@inner()
def _read(
    tokens, positions, starts, program, sizes, numbers, w, table, places, projections, memory
):
    u, row = len(tokens), sizes[E_ROW]
    x = np.empty((u, row), np.float32)
    y, h, context = _between(u, sizes)
    embed(u, tokens, positions, table, places, numbers[BY_TOKEN:], sizes[E], row, x)
    first, counts = np.empty((u, 2), np.int64), np.empty(u, np.int64)
    longest, none = 0, np.int64(0)
    for n in range(len(starts) - 1):
        length = starts[n + 1] - starts[n]
        longest = max(longest, length)
        for i in range(starts[n], starts[n + 1]):
            first[i, 0], first[i, 1], counts[i] = starts[n], length, length
    scores, where = _scratch(longest)
    nothing = np.empty((1, 1), np.float32)
    run_blocks(
        program, sizes, numbers[SCALE], numbers[EPS], w, u, x, y, h, context, scores, where,
        nothing, none, none, first, counts, nothing, none, first,
    )  # fmt: skip
    wide = memory.shape[1]
    for layer in range(len(projections)):
        rows = memory[layer * u : (layer + 1) * u]
        spread_bias(rows, wide, w, projections[layer, 1])
        times(x, sizes[E], w, projections[layer, 0], rows, wide // WIDTH)


@kernel(
    "void(i8[::1],i8[::1],i8[::1],i8[:,::1],i8[::1],f4[::1],f4[:,::1],f4[:,::1],f4[:,::1],"
    "i8[:,::1],f4[:,::1])"
)
def read(tokens, positions, starts, program, sizes, numbers, w, table, places, projections, memory):
    """Write an encoder's memory of packed sources, as keys and values of every decoder layer.

    starts (N + 1,): where each source begins among the U tokens. projections (layers, 2): where
    the weights and biases of keys and values stand. memory (layers · U, 2 · heads · width).
    """
    _read(tokens, positions, starts, program, sizes, numbers, w, table, places, projections, memory)


@kernel(
    "void(i8[::1],i8[::1],i8[:,::1],i8[::1],f4[::1],f4[:,::1],f4[:,::1],f4[:,::1],"
    "f4[:,::1],i8,i8,i8[:,::1],i8[::1],f4[:,::1],i8,i8[:,::1],i8,i8,f4[:,::1])"
)
def say(
    tokens, positions, program, sizes, numbers, w, table, places,
    own, capacity, base, names, counts, memory, memory_rows, sources, out_at, bias_at, log_p,
):  # fmt: skip
    """Pass one token a row through a decoder and write the next one's log p (m, padded V).

    own, names, counts: the rows' keys, see `run_blocks`; names[i, counts[i] − 1] is row i itself.
    With no rows in `log_p` only the keys are written: that is how a text is read.
    """
    m, row = len(tokens), sizes[E_ROW]
    x = np.empty((m, row), np.float32)
    y, h, context = _between(m, sizes)
    longest = 1
    for i in range(m):
        longest = max(longest, counts[i], sources[i, 1])
    scores, where = _scratch(longest)
    embed(m, tokens, positions, table, places, numbers[BY_TOKEN:], sizes[E], row, x)
    run_blocks(
        program, sizes, numbers[SCALE], numbers[EPS], w, m, x, y, h, context, scores, where,
        own, capacity, base, names, counts, memory, memory_rows, sources,
    )  # fmt: skip
    for first in range(0, len(log_p), AT_ONCE):
        end = min(first + AT_ONCE, m)
        log_probabilities(x[first:end], sizes[E], w, out_at, bias_at, log_p[first:end])


@inner()
def _grown(own, layers, capacity, wanted):
    """Keys and values with room for more rows in every layer."""
    more = np.empty((layers * wanted, own.shape[1]), np.float32)
    for layer in range(layers):
        for i in range(capacity):
            for j in range(own.shape[1]):
                more[layer * wanted + i, j] = own[layer * capacity + i, j]
    return more


@kernel(
    "void(i8[::1],i8[::1],i8[::1],i8[:,::1],i8[::1],f4[:,::1],f4[:,::1],i8[:,::1],"
    "i8,i8,i8,i8,i8[::1],f8[::1],b1,i8[:,::1],i8[::1],f4[::1],f4[:,::1],f4[:,::1],f4[:,::1],"
    "f4[:,::1],i8,i8[:,::1],i8[::1],i8[:,::1],i8,i8,i8,i8,"
    "i4[:,:,::1],i8[:,:,::1],f8[:,::1],f8[:,::1],i8[::1])"
)
def search(
    read_tokens, read_positions, starts, read_program, read_sizes, read_table, read_places,
    projections, beam, best, bos, eos, limits, penalties, alpha_positive,
    program, sizes, numbers, w, table, places,
    own, layers, names, counts, sources, out_at, bias_at, vocabulary, wide,
    said, done, log_ps, scores_done, finished,
):  # fmt: skip
    """Find the best answers of N inputs, of at most limits[i] tokens; `decoding.search` has the
    rules.

    The first eight arguments are `read`'s; a decoder without an encoder has no projections, and
    own (layers · T, …), names (N, longest), counts (N,) are the keys of what it has read. sources
    (N, 2): each input's first row of the memory, and how many. wide: the vocabulary as padded.
    said (N, beam, longest limit): the answers' tokens. done (N, beam, 3): [0] their lengths, [2]
    whether they ended. log_ps, scores_done (N, beam): the latter −inf where there is no answer.
    """
    n, row = len(counts), sizes[E_ROW]
    most = n * beam
    memory_rows = len(read_tokens)
    memory = np.empty((len(projections) * memory_rows, own.shape[1]), np.float32)
    if len(projections):
        _read(
            read_tokens, read_positions, starts, read_program, read_sizes, numbers, w,
            read_table, read_places, projections, memory,
        )  # fmt: skip
    x, logits = np.empty((most, row), np.float32), np.empty((AT_ONCE, wide), np.float32)
    y, h, context = _between(most, sizes)
    base = len(own) // layers if layers else 0
    capacity = base + 16 * most
    own = _grown(own, layers, base, capacity)
    limit = 0
    for i in range(n):
        limit = max(limit, limits[i])
    longest = names.shape[1] + limit + 1
    keys, keys_next = np.empty((most, longest), np.int64), np.empty((most, longest), np.int64)
    read_rows = 1
    for i in range(n):
        read_rows = max(read_rows, sources[i, 1])
        for j in range(counts[i]):
            keys[i, j] = names[i, j]
    scores, where = _scratch(max(longest, read_rows))
    values, tokens = np.empty((most, 2 * beam), np.float32), np.empty((most, 2 * beam), np.int64)
    token_at, parent_at = (
        np.empty((limit + 1, most), np.int32),
        np.empty((limit + 1, most), np.int32),
    )
    newest, positions = np.empty(most, np.int64), np.empty(most, np.int64)
    owners, next_owners = np.empty(most, np.int64), np.empty(most, np.int64)
    totals, next_totals = np.empty(most), np.empty(most)
    next_tokens, parents = np.empty(most, np.int64), np.empty(most, np.int64)
    row_counts, row_sources = np.empty(most, np.int64), np.empty((most, 2), np.int64)
    for i in range(n):
        owners[i], totals[i], newest[i] = i, 0.0, bos
    m = n
    for step in range(limit + 1):
        if base + m > capacity:
            own = _grown(own, layers, capacity, 2 * capacity)
            capacity *= 2
        for i in range(m):
            owner = owners[i]
            count = counts[owner] + step
            keys[i, count] = base + i
            row_counts[i], positions[i] = count + 1, count
            row_sources[i, 0], row_sources[i, 1] = sources[owner, 0], sources[owner, 1]
        embed(m, newest, positions, table, places, numbers[BY_TOKEN:], sizes[E], row, x)
        run_blocks(
            program, sizes, numbers[SCALE], numbers[EPS], w, m, x[:m], y[:m], h[:m], context[:m],
            scores, where, own, capacity, base, keys, row_counts, memory, memory_rows, row_sources,
        )  # fmt: skip
        base += m
        for first in range(0, m, AT_ONCE):
            end = min(first + AT_ONCE, m)
            log_probabilities(x[first:end], sizes[E], w, out_at, bias_at, logits[: end - first])
            for i in range(first, end):
                going_on = step < limits[owners[i]]
                if not going_on:  # the length has run out: each is ranked as if it ended here
                    score = (totals[i] + np.float64(logits[i - first, eos])) / penalties[step + 1]
                    keep(owners[i], totals[i], score, step, i, False, scores_done, done, log_ps)
                else:
                    likeliest(logits, i - first, vocabulary, 2 * beam, values[i], tokens[i])
        going = advance(
            m, owners, totals, values, tokens, beam, best, eos, step, penalties, limits,
            alpha_positive, scores_done, done, log_ps, finished,
            next_owners, next_totals, next_tokens, parents,
        )  # fmt: skip
        if going == 0:
            break
        for i in range(going):
            parent = parents[i]
            for j in range(row_counts[parent]):
                keys_next[i, j] = keys[parent, j]
            newest[i] = token_at[step + 1, i] = next_tokens[i]
            parent_at[step + 1, i] = parent
        keys, keys_next = keys_next, keys
        owners, next_owners = next_owners, owners
        totals, next_totals = next_totals, totals
        m = going
    for i in range(n):
        for place in range(beam):
            step, at = done[i, place, 0], done[i, place, 1]
            while step > 0:
                said[i, place, step - 1] = token_at[step, at]
                at = parent_at[step, at]
                step -= 1

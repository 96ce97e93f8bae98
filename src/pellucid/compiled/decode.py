"""The kernels of compiled decoding.

`encode` runs the encoder on sources. `search` finds the likeliest answers without returning to
Python between tokens. `step` feeds one token to every hypothesis, for sampling and others that
choose the next token in Python. All run on the calling thread. The forward pass of a stack is in
`blocks`, the choice of tokens in `beam`.
"""

import importlib
from functools import cache
from typing import NamedTuple

import numpy as np

from pellucid.compiled.beam import (
    ROW_BATCH,
    advance,
    begin,
    constrain,
    keep,
    likeliest,
    log_probabilities,
)
from pellucid.compiled.blocks import embed, norm_heads, run_blocks_with, scratch, turn_heads
from pellucid.compiled.products import fill, prepare
from pellucid.compiled.records import (
    ANSWERS,
    BEAM,
    BEGINNINGS,
    HYPOTHESES,
    INPUTS,
    KEYS,
    LOG_P,
    MEMORY,
    MODEL,
    ROWS,
    SOURCE,
    VISIBLE,
    Candidates,
    Keys,
    Memory,
    Visible,
)
from pellucid.kernels.backend.compile import Kernel, empty, inner, kernel, variant
from pellucid.kernels.backend.simd import WIDTH

ROWS_LEFT, USED, ROUNDS, ENDS, SWAPPED, STEPS, READ = range(7)
"""The numbers of a search's `progress`: hypotheses, rows of keys in use, tokens that each may still
get, answers to return after, whether the hypotheses are in the second of the two places, tokens fed
to all, and where the memory of new sources begins."""


class Kernels(NamedTuple):
    """The decoding kernels for one activation; each is loaded or compiled at its first call."""

    encode: Kernel
    step: Kernel
    search: Kernel


@cache
def kernels_of(activation: str) -> Kernels:
    """Return the decoding kernels for an activation, named by its module below `kernels`."""
    run_blocks = run_blocks_with(importlib.import_module(f"pellucid.kernels.{activation}").value)

    @inner()
    def encode_rows(model, source, rows, capacity, first):
        """Run the encoder on sources; write the memory's keys and values from row `first` on.

        `capacity` is the number of rows of each layer.
        """
        stack, w, starts = model.encoder, model.w, source.starts
        u = len(source.tokens)
        x = empty((u, stack.padded_width), np.float32)
        embed(source.tokens, source.positions, model.source, stack, w, x)
        spans, counts = empty((u, 2), np.int64), empty(u, np.int64)
        longest, none = 0, np.int64(0)
        for n in range(len(starts) - 1):
            length = starts[n + 1] - starts[n]
            longest = max(longest, length)
            for i in range(starts[n], starts[n + 1]):
                spans[i, 0], spans[i, 1], counts[i] = starts[n], length, length
        nothing, between = empty((1, 1), np.float32), scratch(stack, w, u, longest)
        run_blocks(
            stack, w, x, between,
            Keys(nothing, none, none), Visible(spans, counts, spans), Memory(nothing, none),
        )  # fmt: skip
        prepare(x, stack.width, w, between.rounded)
        for layer in range(len(model.memory)):
            at, bias = model.memory[layer, 0], model.memory[layer, 1]
            out = rows[layer * capacity + first : layer * capacity + first + u]
            fill(x, between.rounded, stack.width, w, at, bias, out, out.shape[1] // WIDTH)
            decoder = model.decoder
            for i in range(u):
                here, heads = i * out.shape[1], decoder.key_heads
                if model.memory[layer, 2] >= 0:
                    norm_heads(out, here, heads, w.floats, model.memory[layer, 2], decoder)
                if decoder.cross:  # by the turns of the encoder's rows: the angles are the same
                    half = len(decoder.angles)
                    turn_heads(out, here, heads, decoder.padded_head, between.turns, i, half)

    def encode(model, source, rows):
        """Run the encoder; write its output as keys and values for every decoder layer.

        rows: (layers · U, 2 · key heads · padded head), U the number of tokens of all sources.
        """
        encode_rows(model, source, rows, np.int64(len(source.tokens)), np.int64(0))

    def step(model, tokens, positions, own, visible, memory, log_p):
        """Feed one token to every hypothesis.

        Writes log p of the next tokens, (m, padded V).

        visible.keys[i, counts[i] − 1] must be row i itself. If `log_p` has no rows, only keys and
        values are written, which is enough to read a prompt.
        """
        stack, m = model.decoder, len(tokens)
        x = empty((m, stack.padded_width), np.float32)
        longest = 1
        for i in range(m):
            longest = max(longest, visible.counts[i], visible.sources[i, 1])
        embed(tokens, positions, model.target, stack, model.w, x)
        between = scratch(stack, model.w, m, longest)
        run_blocks(stack, model.w, x, between, own, visible, memory)
        for first in range(0, len(log_p), ROW_BATCH):
            some, out = x[first : first + ROW_BATCH], log_p[first : first + ROW_BATCH]
            log_probabilities(some, between.rounded, stack.width, model.w, model.output, out)

    def search(
        model, source, memory, own, inputs, beginnings, beam, current, following, answers,
        progress, stop,
    ):  # fmt: skip
        """Extend all hypotheses token by token, by the rules of `generation.search`.

        First encodes new sources into `memory`, from row progress[READ] on. Returns when no
        hypothesis is left, when `own` is full, after progress[ROUNDS] tokens, when progress[ENDS]
        inputs are finished, or after the token during which another thread has set stop[0].
        `progress` then says how far it came.
        """
        if len(source.tokens):
            encode_rows(model, source, memory.rows, memory.length, progress[READ])
        stack, w = model.decoder, model.w
        m, used = progress[ROWS_LEFT], own.first
        most, wide = current.names.shape
        longest = wide
        for i in range(m):
            longest = max(longest, inputs.sources[current.owners[i], 1])
        x = empty((most, stack.padded_width), np.float32)
        log_p = empty((min(ROW_BATCH, most), model.output.padded), np.float32)
        between = scratch(stack, w, most, longest)
        candidates = Candidates(
            empty((most, 2 * beam.size), np.float32), empty((most, 2 * beam.size), np.int64)
        )
        counts, positions = empty(most, np.int64), empty(most, np.int64)
        sources = empty((most, 2), np.int64)
        ended = 0
        while m > 0 and progress[ROUNDS] > 0 and used + m <= own.capacity:
            for i in range(m):
                owner = current.owners[i]
                count = inputs.prompts[owner] + inputs.lengths[owner]
                current.names[i, count] = used + i
                counts[i], positions[i] = count + 1, count
                sources[i, 0], sources[i, 1] = inputs.sources[owner, 0], inputs.sources[owner, 1]
            embed(current.tokens, positions, model.target, stack, w, x[:m])
            keys = Keys(own.rows, own.capacity, used)
            visible = Visible(current.names, counts, sources)
            run_blocks(stack, w, x[:m], between, keys, visible, memory)
            used += m
            for first in range(0, m, ROW_BATCH):
                end = min(first + ROW_BATCH, m)
                some = log_p[: end - first]
                log_probabilities(x[first:end], between.rounded, stack.width, w, model.output, some)
                for i in range(first, end):
                    owner, total = current.owners[i], current.totals[i]
                    length = inputs.lengths[owner]
                    if length < inputs.limits[owner]:
                        state, left = inputs.beginnings[owner], inputs.limits[owner] - length
                        if not begin(
                            some, i - first, current.generated, i, length, left, state, beginnings
                        ):
                            constrain(some, i - first, current.generated, i, length, beam)
                        likeliest(some, i - first, model.output.vocabulary, candidates.log_p[i],
                                  candidates.tokens[i])  # fmt: skip
                    else:  # at the maximum length, rank the hypothesis as if it ended here
                        whole = total + np.float64(some[i - first, beam.eos])
                        score = whole / beam.penalties[length + 1]
                        keep(answers, owner, total, score, length, current.generated, i, False)
            going = advance(m, current, candidates, beam, inputs, answers, following)
            progress[STEPS] += m
            progress[ROUNDS] -= 1
            for i in range(m):
                if i == 0 or current.owners[i] != current.owners[i - 1]:
                    ended += 1
            for i in range(going):
                parent, owner = following.parents[i], following.owners[i]
                length = inputs.lengths[owner]
                for j in range(counts[parent]):
                    following.names[i, j] = current.names[parent, j]
                for j in range(length):
                    following.generated[i, j] = current.generated[parent, j]
                following.generated[i, length] = following.tokens[i]
            for i in range(going):
                if i == 0 or following.owners[i] != following.owners[i - 1]:
                    inputs.lengths[following.owners[i]] += 1
                    ended -= 1
            current, following = following, current
            progress[SWAPPED] = 1 - progress[SWAPPED]
            m = going
            if stop[0] != 0 or ended >= progress[ENDS]:
                break
        progress[ROWS_LEFT], progress[USED] = m, used

    return Kernels(
        kernel(MODEL, SOURCE, LOG_P)(variant(encode, activation)),
        kernel(MODEL, ROWS, ROWS, KEYS, VISIBLE, MEMORY, LOG_P)(variant(step, activation)),
        kernel(
            MODEL,
            SOURCE,
            MEMORY,
            KEYS,
            INPUTS,
            BEGINNINGS,
            BEAM,
            HYPOTHESES,
            HYPOTHESES,
            ANSWERS,
            ROWS,
            ROWS,
        )(variant(search, activation)),
    )

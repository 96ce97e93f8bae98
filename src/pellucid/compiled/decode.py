"""Decoding in one call: does not return to Python between tokens.

`encode` passes sources through the encoder, `search` finds the likeliest answers, `step` feeds one
token to every hypothesis, where the next is chosen in Python. All run on the calling thread. How
rows pass through a stack is in `blocks`, how tokens are chosen in `beam`.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import NamedTuple

import numpy as np

from pellucid.compiled.beam import ROW_BATCH, advance, keep, likeliest, log_probabilities_with
from pellucid.compiled.blocks import embed_with, run_blocks_with, scratch_with
from pellucid.compiled.products import PRODUCTS
from pellucid.compiled.records import (
    ANSWERS,
    BEAM,
    KEYS,
    LOG_P,
    MEMORY,
    MODEL,
    PROMPT,
    ROWS,
    SOURCE,
    VISIBLE,
    Candidates,
    Hypotheses,
    Keys,
    Memory,
    Visible,
)
from pellucid.kernels.backend.arrays import empty
from pellucid.kernels.backend.compile import Kernel, inner, kernel
from pellucid.kernels.backend.simd import WIDTH
from pellucid.models.quantize import Arithmetic
from pellucid.ops.activations import ACTIVATIONS


@inner()
def _grown(rows, layers, capacity, new_capacity):
    """Return keys and values with room for more rows in every layer."""
    more = empty((layers * new_capacity, rows.shape[1]), np.float32)
    for layer in range(layers):
        for i in range(capacity):
            for j in range(rows.shape[1]):
                more[layer * new_capacity + i, j] = rows[layer * capacity + i, j]
    return more


@inner()
def _hypotheses(rows):
    return Hypotheses(
        empty(rows, np.int64), empty(rows, np.float64), empty(rows, np.int64), empty(rows, np.int64)
    )


class Kernels(NamedTuple):
    """The kernels of one activation and arithmetic; each is compiled when it is first called."""

    encode: Kernel
    step: Kernel
    search: Kernel


@cache
def kernels_of(activation: str, arithmetic: Arithmetic) -> Kernels:
    """Return the kernels that have an activation and an arithmetic compiled in."""
    module = importlib.import_module(f"pellucid.kernels.{ACTIVATIONS[activation].kernel}")
    products = PRODUCTS[arithmetic]
    round_, fill = products.round, products.fill
    run_blocks, embed = run_blocks_with(module.value, products), embed_with(products)
    scratch, log_probabilities = scratch_with(products), log_probabilities_with(products)

    @inner()
    def encode_rows(model, source, rows):
        stack, w, starts = model.encoder, model.w, source.starts
        u = len(source.tokens)
        x = empty((u, stack.padded_width), np.float32)
        embed(source.tokens, source.positions, model.source, stack.width, x)
        spans, counts = empty((u, 2), np.int64), empty(u, np.int64)
        longest, none = 0, np.int64(0)
        for n in range(len(starts) - 1):
            length = starts[n + 1] - starts[n]
            longest = max(longest, length)
            for i in range(starts[n], starts[n + 1]):
                spans[i, 0], spans[i, 1], counts[i] = starts[n], length, length
        nothing, between = empty((1, 1), np.float32), scratch(stack, u, longest)
        run_blocks(
            stack, w, x, between,
            Keys(nothing, none, none), Visible(spans, counts, spans), Memory(nothing, none),
        )  # fmt: skip
        round_(x, stack.width, between.rounded)
        for layer in range(len(model.memory)):
            at, bias = model.memory[layer, 0], model.memory[layer, 1]
            out = rows[layer * u : (layer + 1) * u]
            fill(x, between.rounded, stack.width, w, at, bias, out, out.shape[1] // WIDTH)

    def encode(model, source, rows):
        """Write the encoder's output as keys and values of every decoder layer.

        rows: (layers · U, 2 · heads · head width), U tokens in all sources.
        """
        encode_rows(model, source, rows)

    def step(model, tokens, positions, own, visible, memory, log_p):
        """Feed one token to every hypothesis and write log p of the next (m, padded V).

        visible.keys[i, counts[i] − 1] is row i itself. With no rows in `log_p` only keys and values
        are written: so a prompt is read.
        """
        stack, m = model.decoder, len(tokens)
        x = empty((m, stack.padded_width), np.float32)
        longest = 1
        for i in range(m):
            longest = max(longest, visible.counts[i], visible.sources[i, 1])
        embed(tokens, positions, model.target, stack.width, x)
        between = scratch(stack, m, longest)
        run_blocks(stack, model.w, x, between, own, visible, memory)
        for first in range(0, len(log_p), ROW_BATCH):
            some, out = x[first : first + ROW_BATCH], log_p[first : first + ROW_BATCH]
            log_probabilities(some, between.rounded, stack.width, model.w, model.output, out)

    def search(model, source, prompt, beam, answers):
        """Find the best answers of N inputs, by the rules of `generation.search`."""
        stack, w, layers = model.decoder, model.w, model.decoder.layers
        n = len(prompt.counts)
        most = n * beam.size
        length = np.int64(len(source.tokens))
        memory = Memory(
            empty((len(model.memory) * length, prompt.keys.shape[1]), np.float32), length
        )
        if len(model.memory):
            encode_rows(model, source, memory.rows)
        used = len(prompt.keys) // layers if layers else 0
        capacity = used + 16 * most
        rows = _grown(prompt.keys, layers, used, capacity)
        limit, read = 0, 1
        for i in range(n):
            limit, read = max(limit, beam.limits[i]), max(read, prompt.sources[i, 1])
        longest = prompt.names.shape[1] + limit + 1
        names, next_names = empty((most, longest), np.int64), empty((most, longest), np.int64)
        for i in range(n):
            for j in range(prompt.counts[i]):
                names[i, j] = prompt.names[i, j]
        x = empty((most, stack.padded_width), np.float32)
        log_p = empty((min(ROW_BATCH, most), model.output.padded), np.float32)
        between = scratch(stack, most, max(longest, read))
        candidates = Candidates(
            empty((most, 2 * beam.size), np.float32), empty((most, 2 * beam.size), np.int64)
        )
        current, following = _hypotheses(most), _hypotheses(most)
        counts, positions = empty(most, np.int64), empty(most, np.int64)
        sources = empty((most, 2), np.int64)
        token_at = empty((limit + 1, most), np.int32)
        parent_at = empty((limit + 1, most), np.int32)
        for i in range(n):
            current.owners[i], current.totals[i], current.tokens[i] = i, 0.0, beam.bos
        m = n
        for generated in range(limit + 1):
            if used + m > capacity:
                rows = _grown(rows, layers, capacity, 2 * capacity)
                capacity *= 2
            for i in range(m):
                owner = current.owners[i]
                count = prompt.counts[owner] + generated
                names[i, count] = used + i
                counts[i], positions[i] = count + 1, count
                sources[i, 0], sources[i, 1] = prompt.sources[owner, 0], prompt.sources[owner, 1]
            embed(current.tokens, positions, model.target, stack.width, x[:m])
            own, visible = Keys(rows, capacity, used), Visible(names, counts, sources)
            run_blocks(stack, w, x[:m], between, own, visible, memory)
            used += m
            for first in range(0, m, ROW_BATCH):
                end = min(first + ROW_BATCH, m)
                some = log_p[: end - first]
                log_probabilities(x[first:end], between.rounded, stack.width, w, model.output, some)
                for i in range(first, end):
                    owner, total = current.owners[i], current.totals[i]
                    if generated < beam.limits[owner]:
                        likeliest(some, i - first, model.output.vocabulary, candidates.log_p[i],
                                  candidates.tokens[i])  # fmt: skip
                    else:  # at the maximum length each is ranked as if it ended here
                        ended = total + np.float64(some[i - first, beam.eos])
                        score = ended / beam.penalties[generated + 1]
                        keep(answers, owner, total, score, generated, i, False)
            going = advance(m, current, candidates, beam, generated, answers, following)
            if going == 0:
                break
            for i in range(going):
                parent = following.parents[i]
                for j in range(counts[parent]):
                    next_names[i, j] = names[parent, j]
                token_at[generated + 1, i] = following.tokens[i]
                parent_at[generated + 1, i] = parent
            names, next_names = next_names, names
            current, following = following, current
            m = going
        for i in range(n):
            for place in range(beam.size):
                at, row = answers.ends[i, place, 0], answers.ends[i, place, 1]
                while at > 0:
                    answers.tokens[i, place, at - 1] = token_at[at, row]
                    row = parent_at[at, row]
                    at -= 1

    for f in (encode, step, search):
        # the kernel's name in the cache
        f.__qualname__ = f"{f.__name__}.{activation}.{arithmetic}"
    of = MODEL[arithmetic]
    return Kernels(
        kernel((of, SOURCE, MEMORY.types[0]))(encode),
        kernel((of, ROWS, ROWS, KEYS, VISIBLE, MEMORY, LOG_P))(step),
        kernel((of, SOURCE, PROMPT, BEAM, ANSWERS))(search),
    )

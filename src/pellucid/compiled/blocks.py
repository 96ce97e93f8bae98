"""Compiled forward pass of a stack of layers, without backward: only keys and values are kept.

For one token the matrix products are small, and calling each from Python would cost more than the
product. So the whole stack is one compiled function, which runs on one thread; other threads answer
other sentences.

1.  A stack is described by a table, `program`: a line for each block says where its weights are.
2.  Every element of a product is summed in one order, a chain of multiply-adds for each piece of k
    (`products.times`), or is an exact sum of integers (`int8.product`), and no row depends on
    another row of the batch. So a sentence gets the same bits alone and in a batch.
3.  The keys of a row are referred to by number. Hypotheses with common tokens share their keys, and
    no key is copied when beam search reorders hypotheses.

Heads are padded to whole vectors with zeros, which add nothing to a score. Norms and the variants
of attention (`nn.config`) are numbers in the stack's record, so that one compiled function serves
all models with the same activation.
"""

from typing import Any, NamedTuple

import numpy as np

from pellucid.compiled.products import Rounded, add, fill, in_int8, prepare, room
from pellucid.kernels.backend.compile import empty, inner
from pellucid.kernels.backend.math import exp, inverse_root
from pellucid.kernels.backend.matmul import HEIGHT
from pellucid.kernels.backend.simd import LANES, WIDTH, get, load, put, reduce_add, splat, store
from pellucid.kernels.backend.tile import padded

SELF, MEMORY, FEED_FORWARD = range(3)
# The columns of a program: the kind of block; the offsets in w of its norm's weight (followed by
# the norm's bias), of its first product and bias, and of its last product and bias; its layer,
# which selects the keys; and the offset of the norms of query and key heads, or −1.
KIND, NORM, IN, IN_BIAS, OUT, OUT_BIAS, LAYER, HEAD_NORM = range(8)

_f = np.float32
_ZERO, _ONE = _f(0.0), _f(1.0)
_NEVER = _f(-1e30)


class Scratch(NamedTuple):
    """Temporary arrays of a stack's forward pass."""

    normed: Any
    """(m, padded E)."""
    products: Any
    contexts: Any
    scores: Any
    """(1, padded keys) of one row."""
    where: Any
    """(keys,): where each key of one row begins."""
    turns: Any
    """(m, D): the cosines and sines of every row's angles."""
    rounded: Rounded
    """The int8 input of a product."""


@inner()
def norm_row(x, at, width, row, w, w_at, eps, centred, y, y_at):
    """Normalise one row of `width` numbers, padded with zeros to `row`; write it to y (may be x).

    It is LayerNorm if `centred`, else RMSNorm. The weight is at w[w_at], the bias `row` later.
    """
    mean = _ONE / _f(width)
    mu = _ZERO
    if centred:
        sum_ = _ZERO
        for j in range(width):
            sum_ += get(x, at + j)
        mu = sum_ * mean
    squares = _ZERO
    for j in range(width):
        c = get(x, at + j) - mu
        squares += c * c
    r = inverse_root(squares * mean + eps)
    for j in range(0, row, LANES):
        h = (load(x, at + j) - mu) * r
        store(y, y_at + j, h * load(w, w_at + j) + load(w, w_at + row + j))


@inner()
def norm_rows(x, width, w, at, stack, y):
    """Normalise rows x and write them to y, which may be x."""
    m, row = x.shape
    for i in range(m):
        norm_row(x, i * row, width, row, w, at, stack.eps, stack.centred, y, i * row)


@inner()
def norm_heads(x, at, heads, w, norm, stack):
    """Apply an RMSNorm to each of the `heads` heads that begin at x[at], in place."""
    row = stack.padded_head
    for head in range(heads):
        here = at + head * row
        norm_row(
            x, here, stack.head_width, row, w, norm + 2 * head * row, stack.eps, 0, x, here
        )  # fmt: skip


@inner()
def turn_heads(x, at, heads, row, turns, i, half):
    """Rotate the `heads` heads that begin at x[at] by the rotary angles of row i, in place."""
    for head in range(heads):
        here = at + head * row
        for c in range(half):
            a, b = get(x, here + c), get(x, here + half + c)
            cos, sin = turns[i, c], turns[i, half + c]
            put(x, here + c, a * cos - b * sin)
            put(x, here + half + c, b * cos + a * sin)


@inner()
def bias_and_softcap(scores, count, softcap, w, at, reach, distance):
    """Apply the soft cap and the distance bias to one head's scores; return their maximum.

    The scores are changed in place. `at` is the offset in w of the bias of distance 0, or negative
    for none; the first key is `distance` positions before the query.
    """
    maximum = _NEVER
    for j in range(count):
        s = scores[0, j]
        if softcap > _ZERO:
            s = softcap * _f(np.tanh(s / softcap))
        if at >= 0:
            s += get(w, at + max(-reach, min(reach, distance - j)))
        scores[0, j] = s
        maximum = max(maximum, s)
    return maximum


@inner()
def attend(q, q_at, keys, where, apart, count, stack, w, distances, distance, scores, out, out_at):
    """Compute the attention of one row to `count` keys, for all heads.

    Key j is at offset `where[j]` of `keys`, and its value `apart` floats later. `distances` is the
    offset in w of the distance biases, or −1; key j is `distance` − j positions before the query.
    """
    end, width, scale = padded(count), stack.padded_head, stack.scale
    sharing, wide = stack.heads // stack.key_heads, 2 * stack.reach + 1
    for head in range(stack.heads):
        here, there = head * width, head // sharing * width
        maximum = _NEVER
        for j in range(count):
            at = where[j] + there
            sums = load(q, q_at + here) * load(keys, at)
            for c in range(LANES, width, LANES):
                sums = sums + load(q, q_at + here + c) * load(keys, at + c)
            s = reduce_add(sums) * scale
            scores[0, j] = s
            maximum = max(maximum, s)
        if distances >= 0 or stack.softcap > _ZERO:
            middle = distances + head * wide + stack.reach if distances >= 0 else distances
            maximum = bias_and_softcap(
                scores, count, stack.softcap, w, middle, stack.reach, distance
            )
        for j in range(count, end):
            scores[0, j] = _NEVER
        weights = splat(_ZERO)
        for j in range(0, end, LANES):
            e = exp(load(scores, j) - maximum)
            store(scores, j, e)
            weights = weights + e
        factor = _ONE / reduce_add(weights) if count else _ZERO
        for c in range(0, width, LANES):
            mean = splat(_ZERO)
            for j in range(count):
                mean = mean + load(keys, where[j] + apart + there + c) * scores[0, j]
            store(out, out_at + here + c, mean * factor)


@inner()
def scratch(stack, w, rows, keys):
    """Allocate the temporary arrays for `rows` rows that attend to at most `keys` keys."""
    span = stack.heads * stack.padded_head
    every = span + 2 * stack.key_heads * stack.padded_head
    wide = max((every + WIDTH - 1) // WIDTH * WIDTH, stack.gates * stack.padded_ffn)
    return Scratch(
        empty((rows, stack.padded_width), np.float32),
        empty((rows, wide), np.float32),
        empty((rows, span), np.float32),
        empty((1, padded(keys)), np.float32),
        empty(keys, np.int64),
        empty((rows, 2 * len(stack.angles)), np.float32),
        room(w, rows, max(stack.padded_width, stack.padded_ffn, span)),
    )


def run_blocks_with(value: Any) -> Any:
    """Return the compiled function `run_blocks` for an activation, whose function is `value`.

    The activation is compiled into it, so that its loop can be vectorised.
    """

    @inner()
    def activate(h, n, gated):
        """Apply the activation to the first n columns of h, in place.

        If `gated` is not 0, multiply them by the n columns from column `gated` on.
        """
        for i in range(len(h)):
            for j in range(n):
                h[i, j] = value(h[i, j])
            if gated:
                for j in range(n):
                    h[i, j] *= h[i, gated + j]

    @inner()
    def run_blocks(stack, w, x, between, own, visible, memory):
        """Pass rows x (m, padded E) through all blocks of a stack, in place.

        In a decoder, `own.capacity` is not 0: the keys and values of the rows are written to `own`,
        from row `own.first` on, and row i attends to the rows visible.keys[i] of `own`. In an
        encoder it is 0: row i attends to counts[i] rows of x, from row visible.keys[i, 0] on. In
        both, only keys inside the stack's window count.
        Cross-attention attends to the rows visible.sources[i] of `memory`.
        """
        m, (e, row) = len(x), (stack.width, stack.padded_width)
        f, f_row = stack.ffn, stack.padded_ffn
        f_wide, gated = stack.gates * f_row, f_row if stack.gates == 2 else 0
        heads, key_heads, width = stack.heads, stack.key_heads, stack.padded_head
        pre, span, kept = stack.pre_norm != 0, heads * width, key_heads * width
        half = len(stack.angles)
        y, h, context = between.normed[:m], between.products[:m], between.contexts[:m]
        scores, where, counts = between.scores, between.where, visible.counts
        rounded, turns = between.rounded, between.turns
        h_row = h.shape[1]
        if half:
            for i in range(m):
                position = counts[i] - 1 if own.capacity else i - visible.keys[i, 0]
                for c in range(half):
                    angle = position * stack.angles[c]
                    turns[i, c], turns[i, half + c] = _f(np.cos(angle)), _f(np.sin(angle))
        for b in range(len(stack.program)):
            line = stack.program[b]
            kind, norm = line[KIND], line[NORM]
            if pre:
                norm_rows(x, e, w.floats, norm, stack, y)
            else:
                for i in range(m):
                    for j in range(0, row, LANES):
                        store(y, i * row + j, load(x, i * row + j))
            if kind == FEED_FORWARD:
                for first in range(0, m, HEIGHT):
                    end = min(first + HEIGHT, m)
                    into, some = y[first:end], h[: end - first]
                    prepare(into, e, w, rounded)
                    fill(into, rounded, e, w, line[IN], line[IN_BIAS], some, f_wide // WIDTH)
                    activate(some, f, gated)
                    prepare(some, f, w, rounded)
                    add(some, rounded, f, w, line[OUT], line[OUT_BIAS], x[first:end], row // WIDTH)
            else:
                wide = span + 2 * kept if kind == SELF else span
                wide = (wide + WIDTH - 1) // WIDTH
                prepare(y, e, w, rounded)
                fill(y, rounded, e, w, line[IN], line[IN_BIAS], h, wide)
                placed = heads + key_heads if kind == SELF else heads
                for i in range(m):
                    if line[HEAD_NORM] >= 0:
                        norm_heads(h, i * h_row, placed, w.floats, line[HEAD_NORM], stack)
                    if half and (kind == SELF or stack.cross):
                        turn_heads(h, i * h_row, placed, width, turns, i, half)
                keys = h
                if kind == MEMORY:
                    keys = memory.rows
                elif own.capacity:
                    keys = own.rows
                    start = (line[LAYER] * own.capacity + own.first) * 2 * kept
                    for i in range(m):
                        for j in range(0, 2 * kept, LANES):
                            store(keys, start + i * 2 * kept + j, load(h, i * h_row + span + j))
                for i in range(m):
                    count, distances, distance = counts[i], stack.distances, 0
                    if kind == MEMORY:
                        count, distances = visible.sources[i, 1], -1
                        start = line[LAYER] * memory.length + visible.sources[i, 0]
                        for j in range(count):
                            where[j] = (start + j) * 2 * kept
                    else:
                        position = count - 1 if own.capacity else i - visible.keys[i, 0]
                        first = max(0, position - stack.window + 1)
                        count = min(count, position + stack.window) - first
                        distance = position - first
                        if own.capacity:
                            start = line[LAYER] * own.capacity
                            for j in range(count):
                                where[j] = (start + visible.keys[i, first + j]) * 2 * kept
                        else:
                            for j in range(count):
                                where[j] = (visible.keys[i, 0] + first + j) * h_row + span
                    attend(
                        h, i * h_row, keys, where, kept, count, stack, w.floats, distances,
                        distance, scores, context, i * span,
                    )  # fmt: skip
                prepare(context, span, w, rounded)
                add(context, rounded, span, w, line[OUT], line[OUT_BIAS], x, row // WIDTH)
            if not pre:
                norm_rows(x, e, w.floats, norm, stack, x)
        if stack.final_norm >= 0:
            norm_rows(x, e, w.floats, stack.final_norm, stack, x)

    return run_blocks


@inner()
def embed(tokens, positions, inputs, stack, w, x):
    """Embed tokens: write norm(token_factor · token + position_factor · position) to x.

    x: (m, padded E). The norm is optional.
    """
    by_token, by_position = inputs.token_factor, inputs.position_factor
    width, last = stack.width, len(inputs.positions) - 1
    rounded = in_int8(w)
    for i in range(len(x)):
        token, place = tokens[i], min(positions[i], last)
        for j in range(width if rounded else 0):
            value = _f(inputs.rounded[token, j]) * inputs.scales[token]
            x[i, j] = value * by_token + inputs.positions[place, j] * by_position
        for j in range(0 if rounded else width):
            value = inputs.tokens[token, j]
            x[i, j] = value * by_token + inputs.positions[place, j] * by_position
        for j in range(width, x.shape[1]):
            x[i, j] = _ZERO
    if inputs.norm >= 0:
        norm_rows(x, width, w.floats, inputs.norm, stack, x)

"""Rows through a stack of residual blocks: forward only, and nothing is kept but keys and values.

One product at a time costs little here and everything between them costs much, so a whole stack is
one piece of compiled code, and it runs on one thread: other sentences are on the others.

1.  A stack is a table, `program`: a line for each block says where its weights are.
2.  Every product is a chain of multiply-adds over k for each number by itself (`tile.product`), or
    an exact sum of integers (`int8.product`), and a row meets its own norm, heads and keys only. So
    the bits of a row do not depend on the batch: a sentence gets the same bits alone and among
    others.
3.  A row's keys are named by number. Hypotheses that branch share the keys of their common tokens,
    and no key is ever copied when a beam changes its order.

Heads are padded to whole vectors with zeros, which add nothing to a score. Norms, activations and
what attention varies (`nn.config`) are numbers in a stack's record: one compiled function computes
them all, but for the function of the activation.
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
# The columns of a program: the kind of block, where its arrays begin in w (the norm's weight, its
# bias a row further; the first product and its bias; the last product and its bias), the layer
# whose keys it attends to, and where the norms of the heads of queries and keys begin, or −1.
KIND, NORM, IN, IN_BIAS, OUT, OUT_BIAS, LAYER, HEAD_NORM = range(8)

_f = np.float32
_ZERO, _ONE = _f(0.0), _f(1.0)
_NEVER = _f(-1e30)


class Scratch(NamedTuple):
    """Arrays for what lies between a stack's rows."""

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
    """Write the norm of `width` numbers, which zeros pad to `row`, to y, which may be x.

    It is LayerNorm, or RMSNorm if not `centred`.
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
    """Write the norm of rows x to y, which may be x."""
    m, row = x.shape
    for i in range(m):
        norm_row(x, i * row, width, row, w, at, stack.eps, stack.centred, y, i * row)


@inner()
def norm_heads(x, at, heads, w, norm, stack):
    """Apply an RMSNorm to each of `heads` heads from x[at] on, in place."""
    row = stack.padded_head
    for head in range(heads):
        here = at + head * row
        norm_row(
            x, here, stack.head_width, row, w, norm + 2 * head * row, stack.eps, 0, x, here
        )  # fmt: skip


@inner()
def turn_heads(x, at, heads, row, turns, i, half):
    """Rotate each of `heads` heads from x[at] on by the angles of row i, in place."""
    for head in range(heads):
        here = at + head * row
        for c in range(half):
            a, b = get(x, here + c), get(x, here + half + c)
            cos, sin = turns[i, c], turns[i, half + c]
            put(x, here + c, a * cos - b * sin)
            put(x, here + half + c, b * cos + a * sin)


@inner()
def bias_and_softcap(scores, count, softcap, w, at, reach, distance):
    """Keep one head's scores within ± softcap, add what distances add, and return the highest.

    `at` is where the number of distance 0 is; the first key is `distance` positions back.
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
    """Attend from one row to `count` keys.

    Key j begins `where[j]` floats after the first of `keys`, its value `apart` floats later.
    `distances` is where begins what distances add, or −1; key j is `distance` − j positions back.
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
    """Return arrays for `rows` rows that attend to at most `keys` keys."""
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
    """Return `run_blocks` for an activation, `value` of a number.

    It is compiled in, so that loops vectorise.
    """

    @inner()
    def activate(h, n, gated):
        """Apply the activation in place to the first n columns of h.

        They are multiplied by the n columns from `gated` on, if it is not 0.
        """
        for i in range(len(h)):
            for j in range(n):
                h[i, j] = value(h[i, j])
            if gated:
                for j in range(n):
                    h[i, j] *= h[i, gated + j]

    @inner()
    def run_blocks(stack, w, x, between, own, visible, memory):
        """Pass rows x (m, padded E) through a stack, in place.

        With a capacity, `own` receives the rows' keys and values, from its `first` row on, and row
        i attends to the rows of it that visible.keys[i] names. Without, x is an encoder's: row i
        attends to the counts[i] rows of x from row keys[i, 0] on. MEMORY blocks attend to the rows
        of `memory` that visible.sources[i] says.
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
                    if half and kind == SELF:
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
    """Write norm(token_factor · token + position_factor · position) to x (m, padded E)."""
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

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

Heads are padded to whole vectors with zeros, which add nothing to a score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pellucid.compiled.products import Products, Rounded
from pellucid.kernels.backend.arrays import empty
from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import exp, inverse_root
from pellucid.kernels.backend.matmul import HEIGHT
from pellucid.kernels.backend.simd import LANES, WIDTH, full, get, load, store, total
from pellucid.kernels.backend.tile import padded

SELF, MEMORY, FEED_FORWARD = range(3)
# The columns of a program: the kind of block, where its arrays begin in w (the norm's weight, its
# bias a row further; the first product and its bias; the last product and its bias), and the layer
# whose keys it attends to.
KIND, NORM, IN, IN_BIAS, OUT, OUT_BIAS, LAYER = range(7)

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
    rounded: Rounded
    """What a product reads in int8."""


@inner()
def norm_rows(x, width, w, at, eps, y):
    """Write LayerNorm(x) to y, which may be x."""
    m, row = x.shape
    mean = _ONE / _f(width)
    for i in range(m):
        sum_ = _ZERO
        for j in range(width):
            sum_ += get(x, i * row + j)
        mu = sum_ * mean
        squares = _ZERO
        for j in range(width):
            c = get(x, i * row + j) - mu
            squares += c * c
        r = inverse_root(squares * mean + eps)
        for j in range(0, row, LANES):
            h = (load(x, i * row + j) - mu) * r
            store(y, i * row + j, h * load(w, at + j) + load(w, at + row + j))


@inner()
def attend(q, q_at, keys, where, apart, count, scale, heads, width, scores, out, out_at):
    """Attend from one row to `count` keys.

    Key j begins `where[j]` floats after the first of `keys`, its value `apart` floats later.
    """
    end = padded(count)
    for head in range(heads):
        here = head * width
        top = _NEVER
        for j in range(count):
            at = where[j] + here
            sums = load(q, q_at + here) * load(keys, at)
            for c in range(LANES, width, LANES):
                sums = sums + load(q, q_at + here + c) * load(keys, at + c)
            s = total(sums) * scale
            scores[0, j] = s
            top = max(top, s)
        for j in range(count, end):
            scores[0, j] = _NEVER
        weights = full(_ZERO)
        for j in range(0, end, LANES):
            e = exp(load(scores, j) - top)
            store(scores, j, e)
            weights = weights + e
        factor = _ONE / total(weights) if count else _ZERO
        for c in range(0, width, LANES):
            mean = full(_ZERO)
            for j in range(count):
                mean = mean + load(keys, where[j] + apart + here + c) * scores[0, j]
            store(out, out_at + here + c, mean * factor)


def scratch_with(products: Products) -> Any:
    """Return `scratch` for an arithmetic."""

    @inner()
    def scratch(stack, rows, keys):
        """Return arrays for `rows` rows that attend to at most `keys` keys."""
        span = stack.heads * stack.head_width
        wide = max((3 * span + WIDTH - 1) // WIDTH * WIDTH, stack.padded_ffn)
        return Scratch(
            empty((rows, stack.padded_width), np.float32),
            empty((rows, wide), np.float32),
            empty((rows, span), np.float32),
            empty((1, padded(keys)), np.float32),
            empty(keys, np.int64),
            products.scratch(rows, max(stack.padded_width, stack.padded_ffn, span)),
        )

    return scratch


def run_blocks_with(value: Any, products: Products) -> Any:
    """Return `run_blocks` for an arithmetic and an activation, `value` of a number.

    Both are compiled in, so that loops vectorise.
    """
    round_, fill, add = products.round, products.fill, products.add

    @inner()
    def activate(h, n):
        """Apply the activation in place to the first n columns of h."""
        for i in range(len(h)):
            for j in range(n):
                h[i, j] = value(h[i, j])

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
        heads, width, pre = stack.heads, stack.head_width, stack.pre_norm != 0
        span = heads * width
        y, h, context = between.normed[:m], between.products[:m], between.contexts[:m]
        scores, where, counts = between.scores, between.where, visible.counts
        rounded = between.rounded
        h_row = h.shape[1]
        for b in range(len(stack.program)):
            line = stack.program[b]
            kind, norm = line[KIND], line[NORM]
            if pre:
                norm_rows(x, e, w.floats, norm, stack.eps, y)
            else:
                for i in range(m):
                    for j in range(0, row, LANES):
                        store(y, i * row + j, load(x, i * row + j))
            if kind == FEED_FORWARD:
                for first in range(0, m, HEIGHT):
                    end = min(first + HEIGHT, m)
                    into, some = y[first:end], h[: end - first]
                    round_(into, e, rounded)
                    fill(into, rounded, e, w, line[IN], line[IN_BIAS], some, f_row // WIDTH)
                    activate(some, f)
                    round_(some, f, rounded)
                    add(some, rounded, f, w, line[OUT], line[OUT_BIAS], x[first:end], row // WIDTH)
            else:
                wide = 3 * span if kind == SELF else span
                wide = (wide + WIDTH - 1) // WIDTH
                round_(y, e, rounded)
                fill(y, rounded, e, w, line[IN], line[IN_BIAS], h, wide)
                keys = h
                if kind == MEMORY:
                    keys = memory.rows
                elif own.capacity:
                    keys = own.rows
                    start = (line[LAYER] * own.capacity + own.first) * 2 * span
                    for i in range(m):
                        for j in range(0, 2 * span, LANES):
                            store(keys, start + i * 2 * span + j, load(h, i * h_row + span + j))
                for i in range(m):
                    count = counts[i]
                    if kind == MEMORY:
                        count = visible.sources[i, 1]
                        start = line[LAYER] * memory.length + visible.sources[i, 0]
                        for j in range(count):
                            where[j] = (start + j) * 2 * span
                    elif own.capacity:
                        start = line[LAYER] * own.capacity
                        for j in range(count):
                            where[j] = (start + visible.keys[i, j]) * 2 * span
                    else:
                        for j in range(count):
                            where[j] = (visible.keys[i, 0] + j) * h_row + span
                    attend(
                        h, i * h_row, keys, where, span, count, stack.scale, heads, width,
                        scores, context, i * span,
                    )  # fmt: skip
                round_(context, span, rounded)
                add(context, rounded, span, w, line[OUT], line[OUT_BIAS], x, row // WIDTH)
            if not pre:
                norm_rows(x, e, w.floats, norm, stack.eps, x)
        if stack.final_norm >= 0:
            norm_rows(x, e, w.floats, stack.final_norm, stack.eps, x)

    return run_blocks


def embed_with(products: Products) -> Any:
    """Return `embed` for an arithmetic."""
    token = products.token

    @inner()
    def embed(tokens, positions, inputs, width, x):
        """Write token_factor · token + position_factor · position to x (m, padded E)."""
        by_token, by_position = inputs.token_factor, inputs.position_factor
        for i in range(len(x)):
            for j in range(width):
                x[i, j] = (
                    token(inputs, tokens[i], j) * by_token
                    + inputs.positions[positions[i], j] * by_position
                )
            for j in range(width, x.shape[1]):
                x[i, j] = _ZERO

    return embed

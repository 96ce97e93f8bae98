"""Rows through a stack of residual blocks while decoding: no way back, nothing kept but keys.

One product at a time costs little here and everything between them costs much, so a whole stack is
one piece of compiled code, and it runs on one thread: other sentences are on the others.

1.  A stack is a table, `program`: one line a block, where its weights stand in one long array. The
    weights are in panels, as in `matmul`, copied there once.
2.  Every product is a chain of multiply-adds over k for each number by itself (`tile.product`), and
    a row meets its own norm, heads and keys only. So a row's bits depend on neither how many rows
    there are nor where it stands: a sentence gets the same bits alone and among others.
3.  A row's keys are named by number. Hypotheses that part ways share what they said before, and no
    key is ever copied when a beam changes its order.

Heads are padded to whole vectors with zeros, which add nothing to a score.
"""

from __future__ import annotations

import numpy as np

from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import exp, inverse_root, logistic, normal
from pellucid.kernels.backend.matmul import DEPTH, HEIGHT, WIDTH
from pellucid.kernels.backend.simd import LANES, full, get, load, store, total
from pellucid.kernels.backend.tile import padded, product

SELF, MEMORY, FEED_FORWARD = range(3)
# What a line of a program says: its kind, then where things begin in the long array (a norm's
# weight with its bias a row further; the product going in and its bias; the one coming out and its
# bias), then which layer's keys it looks at.
KIND, NORM, IN, IN_BIAS, OUT, OUT_BIAS, LAYER = range(7)
# What `sizes` says: widths E of rows and F inside feed-forward networks as they are and as padded
# in memory, heads, the padded width of one, pre-norm or not, the activation, and where the norm at
# the end stands (−1: there is none).
(E, E_ROW, F, F_ROW, HEADS, HEAD_WIDTH, PRE_NORM, ACTIVATION, LAST_NORM) = range(9)
RELU, LEAKY_RELU, GELU, GELU_TANH, SILU = range(5)

_f = np.float32
_ZERO, _ONE = _f(0.0), _f(1.0)
_SLOPE = _f(0.01)
_TWICE_SQRT_2_OVER_PI = _f(1.5957691216057308)
_CUBIC = _f(0.044715)
_NEVER = _f(-1e30)


@inner()
def times(a, k, w, at, c, panels):
    """C[:, : panels · WIDTH] += A[:, :k] W, W in panels from `at`."""
    m, a_row, c_row = len(a), a.shape[1], c.shape[1]
    for first in range(0, m, HEIGHT):
        height = min(HEIGHT, m - first)
        for start in range(0, k, DEPTH):
            depth = min(DEPTH, k - start)
            for panel in range(panels):
                product(
                    height, WIDTH, depth, a, first * a_row + start, a_row, 1,
                    w, at + (panel * k + start) * WIDTH, WIDTH,
                    c, first * c_row + panel * WIDTH, c_row, True,
                )  # fmt: skip


@inner()
def spread_bias(c, n, w, at):
    """Begin C[:, :n] with a bias."""
    for i in range(len(c)):
        for j in range(0, n, LANES):
            store(c, i * c.shape[1] + j, load(w, at + j))


@inner()
def add_bias(c, w, at):
    """Add a bias to C."""
    for i in range(len(c)):
        for j in range(0, c.shape[1], LANES):
            here = i * c.shape[1] + j
            store(c, here, load(c, here) + load(w, at + j))


@inner()
def norm_rows(x, width, w, at, eps, y):
    """y = LayerNorm(x), row by row; y may be x."""
    m, row = x.shape
    share = _ONE / _f(width)
    for i in range(m):
        sum_ = _ZERO
        for j in range(width):
            sum_ += get(x, i * row + j)
        mu = sum_ * share
        squares = _ZERO
        for j in range(width):
            c = get(x, i * row + j) - mu
            squares += c * c
        r = inverse_root(squares * share + eps)
        for j in range(0, row, LANES):
            h = (load(x, i * row + j) - mu) * r
            store(y, i * row + j, h * load(w, at + j) + load(w, at + row + j))


@inner()
def activate(h, n, kind):
    """h = activation(h), number by number, in the first n columns."""
    for i in range(len(h)):
        # a loop for each, because a choice inside the loop would not vectorise
        if kind == RELU:
            for j in range(n):
                h[i, j] = max(h[i, j], _ZERO)
        elif kind == LEAKY_RELU:
            for j in range(n):
                h[i, j] = h[i, j] if h[i, j] > _ZERO else _SLOPE * h[i, j]
        elif kind == GELU:
            for j in range(n):
                h[i, j] *= normal(h[i, j])
        else:
            for j in range(n):
                x = h[i, j]
                z = _TWICE_SQRT_2_OVER_PI * (x + _CUBIC * x * x * x) if kind == GELU_TANH else x
                h[i, j] = x * logistic(z)[0]


@inner()
def attend(q, q_at, keys, where, apart, count, scale, heads, width, scores, out, out_at):
    """One row's attention to `count` keys.

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
        share = _ONE / total(weights) if count else _ZERO
        for c in range(0, width, LANES):
            mean = full(_ZERO)
            for j in range(count):
                mean = mean + load(keys, where[j] + apart + here + c) * scores[0, j]
            store(out, out_at + here + c, mean * share)


@inner()
def run_blocks(
    program, sizes, scale, eps, w, m, x, y, h, context, scores, where,
    own, capacity, base, table, counts, memory, memory_rows, sources,
):  # fmt: skip
    """Pass m rows x through the blocks, in place; the arrays of rows have m.

    y, h and context are for what lies between, scores and where for one row's keys. With a
    capacity, `own` (layers · capacity, 2 · heads · width) keeps the rows' keys and values from row
    `base` on, and row i looks at the counts[i] rows that table[i] names. Without, row i looks at
    the counts[i] rows of x from row table[i, 0] on: an encoder. `memory` (layers · memory_rows, …)
    is what MEMORY blocks look at: row i at its sources[i, 1] rows from sources[i, 0] on.
    """
    e, row, f, f_row = sizes[E], sizes[E_ROW], sizes[F], sizes[F_ROW]
    heads, width, pre = sizes[HEADS], sizes[HEAD_WIDTH], sizes[PRE_NORM] != 0
    span = heads * width
    h_row = h.shape[1]
    for b in range(len(program)):
        kind, norm = program[b, KIND], program[b, NORM]
        w_in, b_in = program[b, IN], program[b, IN_BIAS]
        w_out, b_out = program[b, OUT], program[b, OUT_BIAS]
        if pre:
            norm_rows(x, e, w, norm, eps, y)
        else:
            for i in range(m):
                for j in range(0, row, LANES):
                    store(y, i * row + j, load(x, i * row + j))
        add_bias(x, w, b_out)
        if kind == FEED_FORWARD:
            for first in range(0, m, HEIGHT):
                end = min(first + HEIGHT, m)
                some = h[: end - first]
                spread_bias(some, f_row, w, b_in)
                times(y[first:end], e, w, w_in, some, f_row // WIDTH)
                activate(some, f, sizes[ACTIVATION])
                times(some, f, w, w_out, x[first:end], row // WIDTH)
        else:
            wide = 3 * span if kind == SELF else span
            wide = (wide + WIDTH - 1) // WIDTH * WIDTH
            spread_bias(h, wide, w, b_in)
            times(y, e, w, w_in, h, wide // WIDTH)
            keys = h
            if kind == MEMORY:
                keys = memory
            elif capacity:
                keys = own
                start = (program[b, LAYER] * capacity + base) * 2 * span
                for i in range(m):
                    for j in range(0, 2 * span, LANES):
                        store(own, start + i * 2 * span + j, load(h, i * h_row + span + j))
            for i in range(m):
                count = counts[i]
                if kind == MEMORY:
                    count = sources[i, 1]
                    start = program[b, LAYER] * memory_rows + sources[i, 0]
                    for j in range(count):
                        where[j] = (start + j) * 2 * span
                elif capacity:
                    start = program[b, LAYER] * capacity
                    for j in range(count):
                        where[j] = (start + table[i, j]) * 2 * span
                else:
                    for j in range(count):
                        where[j] = (table[i, 0] + j) * h_row + span
                attend(h, i * h_row, keys, where, span, count, scale, heads, width, scores,
                       context, i * span)  # fmt: skip
            times(context, span, w, w_out, x, row // WIDTH)
        if not pre:
            norm_rows(x, e, w, norm, eps, x)
    if sizes[LAST_NORM] >= 0:
        norm_rows(x, e, w, sizes[LAST_NORM], eps, x)


@inner()
def embed(m, tokens, positions, table, places, scales, e, row, x):
    """x = scales[0] · the token's row + scales[1] · the position's row; zeros after E."""
    by_token, by_place = scales[0], scales[1]
    for i in range(m):
        for j in range(e):
            x[i, j] = table[tokens[i], j] * by_token + places[positions[i], j] * by_place
        for j in range(e, row):
            x[i, j] = _ZERO

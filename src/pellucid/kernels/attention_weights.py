"""The weights of attention, without those of every head where their average is asked for."""

import numpy as np

from pellucid.core.vjp import Call, Declined, Result, check_gradient, pair_of
from pellucid.kernels import flash
from pellucid.kernels.attention_rule import is_ruled, rows_of, sink_of
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import empty, inner
from pellucid.kernels.backend.simd import LANES, address_of, nowhere
from pellucid.kernels.backend.tile import padded, product
from pellucid.kernels.flash import ruled_block, softmax_block
from pellucid.kernels.packed_attention import Batch, batch_of

_f = np.float32


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.attention_weights` for float32 heads; backward is the reference op's.

    Heads are added in their order, so the bits do not depend on the number of threads.
    """
    batch = batch_of(call, call.q, call.k, call.k)
    if not isinstance(batch, Batch):
        return batch
    scale = max(call.q.shape[2], 1) ** -0.5 if call.scale is None else call.scale
    n, heads, length, keys = batch.scores
    out = np.zeros((n, 1 if call.average else heads, length, keys), np.float32)
    bounds = flash.tasks_of(batch.spans, 1, heads * call.q.shape[2])[0]
    rule = batch.prepared
    weights_kernel = flash.with_steps(_weights, rule.steps)
    weights_kernel(len(bounds) - 1, call.q, call.k, batch.spans, bounds, rule.terms, scale,
                   batch.bits, out)  # fmt: skip

    weights = out[:, 0] if call.average else out
    shape = weights.shape

    def backward(dw: np.ndarray) -> tuple[np.ndarray, ...]:
        check_gradient(dw, shape)
        forward, f_backward = pair_of(call.op)
        _, saved = forward(**call.arguments)
        gradients: tuple[np.ndarray, ...] = f_backward(dw, saved)
        return gradients

    return weights, backward


@inner()
def _add_weights(scores, m, source, totals, scale, out, n, head, first):
    """Add m rows of exp(score − top), each over its total, to those of `out`."""
    for i in range(m):
        if totals[i] != 0.0:  # NaN is written too
            factor = _f(1.0 / totals[i]) * scale
            for j in range(source):
                out[n, head, first + i, j] += scores[i, j] * factor


@threads.parallel(flash.HEADS, flash.HEADS, *flash.CALL, "f4[:,:,:,::1]")
def _weights(task, tasks, q, k, spans, bounds, terms, scale, dropout, out):
    q_firsts, lengths, k_firsts, sources = spans
    names, site, threshold, keep = dropout
    heads, depth = q.shape[1], q.shape[2]
    ruled = is_ruled(terms)
    longest = 0
    for n in range(bounds[task], bounds[task + 1]):
        longest = max(longest, sources[n])
    stride = padded(longest) + LANES
    queries = empty((flash.QUERIES, depth), np.float32)
    maxima, totals = empty(flash.QUERIES, np.float32), empty(flash.QUERIES, np.float64)
    none = empty((0, 0), np.float32)
    keys, scores = empty((depth, stride), np.float32), empty((flash.QUERIES, stride), np.float32)
    share = _f(1.0) / _f(heads // out.shape[1])

    for piece in range(bounds[task] * heads, bounds[task + 1] * heads):
        n, head = piece // heads, piece % heads
        q_first, length, source = q_firsts[n], lengths[n], sources[n]
        flash.gather_transposed(k, k_firsts[n], source, head, keys, 0)
        width = padded(source)
        maximum_0, total_0 = sink_of(terms, head)
        for first in range(0, length if source else 0, flash.QUERIES):
            m = min(flash.QUERIES, length - first)
            flash.gather(q, q_first + first, m, head, queries)
            product(m, width, depth, address_of(queries, 0), depth, 1, address_of(keys, 0), stride,
                    address_of(scores, 0), stride, nowhere(), 0)  # fmt: skip
            rows, steps = rows_of(terms, n, head, first, 0, nowhere(), nowhere())
            for i in range(m):
                maxima[i], totals[i] = maximum_0, total_0
            if ruled:
                ruled_block(
                    scores, stride, m, width, q_first + first, 0, terms.first, terms.last, scale,
                    rows, steps, terms.cap, maxima, totals, none, none, names, head, site,
                    threshold,
                )  # fmt: skip
            else:
                softmax_block(
                    scores, stride, m, width, q_first + first, 0, terms.first, terms.last, scale,
                    0, 0, terms.cap, maxima, totals, none, none, names, head, site, threshold,
                )  # fmt: skip
            _add_weights(scores, m, source, totals, keep * share, out, n,
                         head if out.shape[1] > 1 else 0, first)  # fmt: skip

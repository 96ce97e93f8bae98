"""Attention on padded batches, computed by the kernels for packed rows; see `flash`.

Each sequence of a padded batch has L (or S) rows. They are not copied if q, k and v are transposed
views of arrays (…, L, H, D). They are not copied either if q, k and v are contiguous, (…, H, L, D):
each head is then treated as a sequence, (…, H, 1, L, D). But with dropout, an offset, or a rule
that may depend on heads or sequences, contiguous arrays are copied.
"""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from pellucid.core.rng import Rng
from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels import flash
from pellucid.kernels.backend.rows import bits_of
from pellucid.ops.attention import whole_rule
from pellucid.ops.rule import Rule
from pellucid.ops.rules.causal import Causal
from pellucid.ops.rules.mask import Added, Mask
from pellucid.ops.rules.soft_cap import SoftCap
from pellucid.ops.rules.window import Window

Array = np.ndarray


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.attention` for float32 (…, H, L, D), with as many heads of k and v as of q.

    Dropout needs an `rng` with a row key for each query, the same for all heads.
    """
    q, k, v = call.q, call.k, call.v
    if not (
        all(
            isinstance(x, np.ndarray) and x.dtype == np.float32 and x.ndim >= 3 and x.size > 0
            for x in (q, k, v)
        )
        and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
        and q.shape[-1] == k.shape[-1]
        and k.shape[-2] == v.shape[-2]
    ):
        return Declined("expects float32 (…, H, L, D)")
    bits = bits_of(call.dropout, call.rng, _names(call.rng, q))
    if bits is None:
        return Declined(flash.NO_BITS)
    rule = whole_rule(call.rule, call.mask, call.causal)
    shapes, out_shape = (q.shape, k.shape, v.shape), (*q.shape[:-1], v.shape[-1])
    plain = call.dropout == 0.0 and call.offset is None  # both know heads or examples
    if q.shape[-3] > 1 and plain and all(x.flags.c_contiguous for x in (q, k, v)):
        alone = _of_one_head(rule)
        if alone is not None:
            rule = alone
            q, k, v = (x[..., None, :, :] for x in (q, k, v))
    *lead, heads, length, _ = q.shape
    n, source = prod(lead), k.shape[-2]
    steps = np.arange(n + 1)
    scores = (*lead, heads, length, source)
    prepared = flash.prepare(rule, steps * length, steps * source, call.offset, scores)
    if isinstance(prepared, Declined):
        return prepared
    spans = flash.Spans(
        steps[:-1] * length, np.full(n, length), steps[:-1] * source, prepared.sources
    )
    rows = (_rows(q), _rows(k), _rows(v))
    out, attend_backward = flash.attend(*rows, spans, prepared, call.scale, bits)
    row_shapes = [x.shape for x in rows]

    def backward(dout: Array) -> tuple[Array, ...]:
        """Return dq, dk, dv and the rule's gradients; keys without a query get zeros."""
        check_gradient(dout, out_shape)
        dq, dk, dv = (np.empty(shape, np.float32) for shape in row_shapes)
        flash.clear_hidden(spans, steps[1:] * source, dk, dv)
        dout_rows = _rows(dout.reshape(*lead, heads, length, -1))
        learnt = attend_backward(dout_rows, dq, dk, dv)
        gradients = (_heads(d, n, shape) for d, shape in zip((dq, dk, dv), shapes, strict=True))
        return *gradients, *learnt

    return _heads(out, n, out_shape), backward


def _of_one_head(rule: Rule) -> Rule | None:
    """Return the rule for scores (…, H, 1, L, S); None if it may depend on heads or examples."""
    parts = (*rule.allowed, *rule.score)
    if not all(isinstance(part, Causal | Window | Mask | Added | SoftCap) for part in parts):
        return None

    def moved(part: Any) -> Any:
        if not isinstance(part, Mask | Added) or part.mask.ndim < 3:
            return part
        return replace(part, mask=part.mask[..., None, :, :])

    return Rule(tuple(map(moved, rule.allowed)), tuple(map(moved, rule.score)))


def _rows(x: Array) -> Array:
    """Convert (…, H, L, D) to rows (N · L, H, D), in float32.

    No copy is made of a float32 view of an array (…, L, H, D) with L and H exchanged.
    """
    heads, length, width = x.shape[-3:]
    rows = x.reshape(-1, heads, length, width).swapaxes(1, 2).reshape(-1, heads, width)
    return rows if flash.is_heads(rows) else np.array(rows, np.float32, order="C")


def _heads(rows: Array, n: int, shape: tuple[int, ...]) -> Array:
    """Convert rows (N · L, H, D) to (…, H, L, D); the inverse of `_rows`."""
    return rows.reshape(n, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(shape)


def _names(rng: Rng | None, q: Array) -> Array | None:
    """Return the rng's row keys, one for each query of every sequence: (N · L,).

    None without keys, or if they differ between heads or do not fit.
    """
    rows = None if rng is None else rng.rows
    if rows is None or rows.dtype != np.uint32 or rows.ndim > q.ndim - 1:
        return None
    if rows.ndim > 1 and rows.shape[-2] != 1:
        return None
    by_query = rows.reshape(*rows.shape[:-2], rows.shape[-1])
    try:
        return np.broadcast_to(by_query, (*q.shape[:-3], q.shape[-2])).reshape(-1)
    except ValueError:
        return None

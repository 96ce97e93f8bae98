"""Attention on padded batches, by the kernels of packed ones; see `flash`.

Rows of a padded batch stay where they are, L (or S) to a sequence. Padding after the keys makes a
sequence's span of keys shorter. Other masks are declined.
"""

from __future__ import annotations

import numpy as np

from pellucid.core.rng import Rng
from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.flash import NO_BITS, Spans, attend, dropout_bits, is_heads

Array = np.ndarray


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.attention` for float32 (…, H, L, D), no mask or one of key padding.

    Dropout needs an rng that names rows by query. A soft cap is declined.
    """
    q, k, v = call.q, call.k, call.v
    if call.softcap is not None:
        return Declined("a soft cap")
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
    sources, bits = (
        _sources(call.mask, k),
        dropout_bits(call.dropout, call.rng, _names(call.rng, q)),
    )
    if sources is None:
        return Declined("a mask other than one of key padding")
    if bits is None:
        return Declined(NO_BITS)
    n, length, source = len(sources), q.shape[-2], k.shape[-2]
    steps = np.arange(n)
    spans = Spans(steps * length, np.full(n, length), steps * source, sources)
    q_shape, k_shape, v_shape = q.shape, k.shape, v.shape

    rows = (_rows(q), _rows(k), _rows(v))
    out, attend_backward = attend(*rows, spans, call.causal, call.scale, bits)
    q_rows, k_rows, v_rows = (x.shape for x in rows)

    def backward(dout: Array) -> tuple[Array, Array, Array]:
        """Return dq, dk, dv; keys in the padding get zeros."""
        check_gradient(dout, (*q_shape[:-1], v_shape[-1]))
        dq = np.empty(q_rows, np.float32)
        dk, dv = np.zeros(k_rows, np.float32), np.zeros(v_rows, np.float32)
        attend_backward(_rows(dout), dq, dk, dv)
        return _heads(dq, q_shape), _heads(dk, k_shape), _heads(dv, v_shape)

    return _heads(out, q_shape), backward


def _rows(x: Array) -> Array:
    """(…, H, L, D) -> (N · L, H, D), a view where the array was split into heads."""
    heads, length, width = x.shape[-3:]
    rows = x.reshape(-1, heads, length, width).swapaxes(1, 2).reshape(-1, heads, width)
    return rows if is_heads(rows) else np.array(rows, np.float32, order="C")


def _heads(rows: Array, shape: tuple[int, ...]) -> Array:
    """(N · L, H, D) -> (…, H, L, D), the inverse."""
    *lead, heads, length, _ = shape
    return rows.reshape(*lead, length, heads, rows.shape[-1]).swapaxes(-2, -3)


def _sources(mask: Array | None, k: Array) -> Array | None:
    """Return how many keys of each sequence are allowed, (N,); None if not key padding."""
    lead, source = k.shape[:-3], k.shape[-2]
    if mask is None:
        return np.full(int(np.prod(lead)), source)
    if mask.dtype != np.bool_ or mask.ndim > k.ndim or mask.shape[-2:] != (1, source):
        return None
    if mask.ndim > 2 and mask.shape[-3] != 1:
        return None
    each = np.broadcast_to(mask.reshape(*mask.shape[:-3], source), (*lead, source))
    each = each.reshape(-1, source)
    sources = source - np.count_nonzero(each, axis=1)
    prefix = np.arange(source) >= sources[:, None]
    return sources if np.array_equal(each, prefix) else None


def _names(rng: Rng | None, q: Array) -> Array | None:
    """Return the names of the rows (N · L,) if they name queries, the same for all heads."""
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

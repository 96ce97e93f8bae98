"""Attention over packed rows: sequences of any lengths, one after another; see `flash`."""

from __future__ import annotations

import numpy as np

from pellucid.core.rng import Rng
from pellucid.kernels.flash import Saved, Spans, attend, attend_backward, dropout_of, plain

Array = np.ndarray


def accepts(
    q: Array,
    k: Array,
    v: Array,
    cu_q: Array,
    cu_k: Array,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> bool:
    """float32 rows with the numbers of a head next to each other; dropout with named rows."""
    if rng is not None and dropout > 0.0:
        if dropout >= 1.0 or rng.rows is None:
            return False
        if rng.rows.shape != q.shape[:1] or rng.rows.dtype != np.uint32:
            return False
    return (
        all(plain(x) for x in (q, k, v))
        and q.shape[1:] == k.shape[1:]
        and k.shape[:2] == v.shape[:2]
        and len(cu_q) == len(cu_k)
        and _bounds(cu_q, len(q))
        and _bounds(cu_k, len(k))
        and _sources(mask, cu_q, cu_k) is not None
    )


def _bounds(cu: Array, rows: int) -> bool:
    return (
        cu.dtype == np.int64
        and cu.ndim == 1
        and cu[0] == 0
        and cu[-1] == rows
        and bool((cu[1:] >= cu[:-1]).all())
    )


def _sources(mask: Array | None, cu_q: Array, cu_k: Array) -> Array | None:
    """Return how many keys each sequence has, (N,), less those that a padding mask hides.

    None for any other mask than one of key padding, (N, 1, 1, S), True from some key on.
    """
    lengths = np.diff(cu_k)
    if mask is None:
        return lengths
    n, longest = len(lengths), int(lengths.max(initial=0))
    if mask.dtype != np.bool_ or mask.shape != (n, 1, 1, longest):
        return None
    hidden = mask[:, 0, 0]
    sources = longest - np.count_nonzero(hidden, axis=1)
    if not np.array_equal(hidden, np.arange(longest) >= sources[:, None]):
        return None
    kept: Array = np.minimum(sources, lengths)
    return kept


def packed_attention(
    q: Array,
    k: Array,
    v: Array,
    cu_q: Array,
    cu_k: Array,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Saved]:
    """See `ops.packed_attention`."""
    sources = _sources(mask, cu_q, cu_k)
    assert sources is not None
    spans = Spans(cu_q[:-1].copy(), np.diff(cu_q), cu_k[:-1].copy(), sources)
    return attend(q, k, v, spans, causal, scale, dropout_of(dropout, rng))


def packed_attention_backward(dout: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """Return dq, dk, dv: parts of one array if q, k and v were, so that nobody has to join them."""
    q, k, v = saved.q, saved.k, saved.v
    # keys in the padding belong to no sequence: nobody writes their gradients
    new = np.zeros if int(saved.spans.sources.sum()) < len(k) else np.empty
    if k.shape != v.shape:
        dq, dk, dv = (new(x.shape, np.float32) for x in (q, k, v))
    elif q.shape == k.shape and q.base is not None and q.base is k.base:
        side_by_side = new((len(q), 3, *q.shape[1:]), np.float32)
        dq, dk, dv = side_by_side.swapaxes(0, 1)
    else:
        side_by_side = new((len(k), 2, *k.shape[1:]), np.float32)
        dq = np.empty(q.shape, np.float32)
        dk, dv = side_by_side.swapaxes(0, 1)
    attend_backward(dout, saved, dq, dk, dv)
    return dq, dk, dv

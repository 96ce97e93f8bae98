"""Attention over packed rows: sequences of any lengths, one after another; see `flash`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.core.rng import Rng
from pellucid.core.vjp import Run
from pellucid.kernels.flash import Spans, attend, is_heads, plan_dropout

Array = np.ndarray


def plan(
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
    softcap: float | None = None,
) -> Run | None:
    """Plan `ops.packed_attention` for float32 with a head's numbers adjacent and named rows."""
    if softcap is not None or not (
        all(is_heads(x) for x in (q, k, v))
        and q.shape[1:] == k.shape[1:]
        and k.shape[:2] == v.shape[:2]
        and len(cu_q) == len(cu_k)
        and _covers(cu_q, len(q))
        and _covers(cu_k, len(k))
    ):
        return None
    bits = plan_dropout(dropout, rng, _names(rng, len(q)))
    sources = _visible(mask, cu_k)
    if bits is None or sources is None:
        return None
    spans = Spans(cu_q[:-1].copy(), np.diff(cu_q), cu_k[:-1].copy(), sources)
    hidden = int(sources.sum()) < len(k)

    def run() -> tuple[Array, Any]:
        out, attend_backward = attend(q, k, v, spans, causal, scale, bits)

        def backward(dout: Array) -> tuple[Array, Array, Array]:
            dq, dk, dv = _gradients(q, k, v, hidden)
            attend_backward(dout, dq, dk, dv)
            return dq, dk, dv

        return out, backward

    return run


def _covers(cu: Array, rows: int) -> bool:
    """Whether the boundaries go up from 0 to all rows."""
    return (
        cu.dtype == np.int64
        and cu.ndim == 1
        and cu[0] == 0
        and cu[-1] == rows
        and bool((cu[1:] >= cu[:-1]).all())
    )


def _names(rng: Rng | None, rows: int) -> Array | None:
    """Return the names of the rows (T,) if there is one for each."""
    names = None if rng is None else rng.rows
    if names is None or names.shape != (rows,) or names.dtype != np.uint32:
        return None
    return names


def _visible(mask: Array | None, cu_k: Array) -> Array | None:
    """Return how many keys each sequence has, (N,), less those that a padding mask hides.

    None for any other mask than one of key padding, (N, 1, 1, S), True from some key on.
    """
    lengths: Array = np.diff(cu_k)
    if mask is None:
        return lengths
    n, longest = len(lengths), int(lengths.max(initial=0))
    if mask.dtype != np.bool_ or mask.shape != (n, 1, 1, longest):
        return None
    hidden = mask[:, 0, 0]
    visible = longest - np.count_nonzero(hidden, axis=1)
    if not np.array_equal(hidden, np.arange(longest) >= visible[:, None]):
        return None
    kept: Array = np.minimum(visible, lengths)
    return kept


def _gradients(q: Array, k: Array, v: Array, hidden: bool) -> tuple[Array, Array, Array]:
    """Return arrays for dq, dk, dv: slices of one array where q, k and v were.

    The projection's backward then has them adjacent, without a copy. Keys that are hidden belong to
    no sequence, so that no task writes their gradients: they start at zero.
    """
    new = np.zeros if hidden else np.empty
    if k.shape != v.shape:
        dq, dk, dv = (new(x.shape, np.float32) for x in (q, k, v))
    elif q.shape == k.shape and q.base is not None and q.base is k.base:
        dq, dk, dv = new((len(q), 3, *q.shape[1:]), np.float32).swapaxes(0, 1)
    else:
        dq = np.empty(q.shape, np.float32)
        dk, dv = new((len(k), 2, *k.shape[1:]), np.float32).swapaxes(0, 1)
    return dq, dk, dv

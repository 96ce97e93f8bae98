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
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> Run | None:
    """Plan `ops.packed_attention` for float32 with a head's numbers adjacent and named rows."""
    if not (
        all(is_heads(x) for x in (q, k, v))
        and q.shape[1:] == k.shape[1:]
        and k.shape[:2] == v.shape[:2]
        and len(cu_q) == len(cu_k)
        and _covers(cu_q, len(q))
        and _covers(cu_k, len(k))
    ):
        return None
    bits = plan_dropout(dropout, rng, _names(rng, len(q)))
    if bits is None:
        return None
    spans = Spans(cu_q[:-1].copy(), np.diff(cu_q), cu_k[:-1].copy(), np.diff(cu_k))

    def run() -> tuple[Array, Any]:
        out, attend_backward = attend(q, k, v, spans, causal, scale, bits)

        def backward(dout: Array) -> tuple[Array, Array, Array]:
            dq, dk, dv = _gradients(q, k, v)
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


def _gradients(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return arrays for dq, dk, dv: slices of one array where q, k and v were.

    The projection's backward then has them adjacent, without a copy.
    """
    if k.shape != v.shape:
        dq, dk, dv = (np.empty(x.shape, np.float32) for x in (q, k, v))
    elif q.shape == k.shape and q.base is not None and q.base is k.base:
        dq, dk, dv = np.empty((len(q), 3, *q.shape[1:]), np.float32).swapaxes(0, 1)
    else:
        dq = np.empty(q.shape, np.float32)
        dk, dv = np.empty((len(k), 2, *k.shape[1:]), np.float32).swapaxes(0, 1)
    return dq, dk, dv

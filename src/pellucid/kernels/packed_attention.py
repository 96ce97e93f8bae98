"""Attention over packed rows, that is, sequences of any lengths one after another; see `flash`."""

from functools import lru_cache

import numpy as np

from pellucid.core.rng import Rng
from pellucid.core.vjp import Call, Declined, Result
from pellucid.kernels import flash
from pellucid.kernels.backend.rows import bits_of

Array = np.ndarray


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.packed_attention` for float32 heads, as many of k and v as of q.

    Dropout needs an `rng` with a row key for each row of q.
    """
    q, k, v, cu_q, cu_k = call.q, call.k, call.v, call.cu_q, call.cu_k
    if not (
        all(flash.is_heads(x) for x in (q, k, v))
        and q.shape[1:] == k.shape[1:]
        and k.shape[:2] == v.shape[:2]
        and len(cu_q) == len(cu_k)
        and cu_q.dtype == cu_k.dtype == np.int64
        and cu_q.ndim == cu_k.ndim == 1
    ):
        return Declined("expects float32 heads with adjacent numbers, and int64 boundaries")
    bits = bits_of(call.dropout, call.rng, _names(call.rng, len(q)))
    if bits is None:
        return Declined(flash.NO_BITS)
    found = _spans(cu_q.tobytes(), cu_k.tobytes(), len(q), len(k))
    if found is None:
        return Declined("the boundaries of the sequences do not go up from 0 to all rows")
    spans, longest = found
    scores = len(cu_q) - 1, q.shape[1], *longest
    prepared = flash.prepare(call.rule, cu_q, cu_k, call.offset, scores)
    if isinstance(prepared, Declined):
        return prepared
    spans = spans._replace(sources=prepared.sources)
    out, attend_backward = flash.attend(q, k, v, spans, prepared, call.scale, bits)

    def backward(dout: Array) -> tuple[Array, ...]:
        dq, dk, dv = _gradients(q, k, v)
        flash.clear_hidden(spans, cu_k[1:], dk, dv)
        learnt = attend_backward(dout, dq, dk, dv)
        return dq, dk, dv, *learnt

    return out, backward


@lru_cache(maxsize=32)
def _spans(
    q_bytes: bytes, k_bytes: bytes, queries: int, keys: int
) -> tuple[flash.Spans, tuple[int, int]] | None:
    """Return the spans of the sequences, and the longest L and S; cached for all layers.

    The boundaries are given as bytes. Returns None unless they go from 0 to the number of rows and
    never down. `sources` of the spans counts all keys of a sequence.
    """
    spans, longest = [], []
    for given, rows in ((q_bytes, queries), (k_bytes, keys)):
        cu = np.frombuffer(given, np.int64)
        lengths = np.diff(cu)
        if cu[0] != 0 or cu[-1] != rows or (lengths < 0).any():
            return None
        spans += [cu[:-1].copy(), lengths]
        longest.append(int(lengths.max(initial=0)))
    return flash.Spans(*spans), (longest[0], longest[1])


def _names(rng: Rng | None, rows: int) -> Array | None:
    """Return the rng's row keys (T,), or None unless there is one for each row."""
    names = None if rng is None else rng.rows
    if names is None or names.shape != (rows,) or names.dtype != np.uint32:
        return None
    return names


def _gradients(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Allocate dq, dk, dv: as slices of one array if q, k and v are slices of one.

    Otherwise dk and dv are slices of one array, if k and v have one shape. So the projection's
    backward need not copy them together.
    """
    if k.shape != v.shape:
        dq, dk, dv = (np.empty(x.shape, np.float32) for x in (q, k, v))
    elif q.shape == k.shape and q.base is not None and q.base is k.base:
        dq, dk, dv = np.empty((len(q), 3, *q.shape[1:]), np.float32).swapaxes(0, 1)
    else:
        dq = np.empty(q.shape, np.float32)
        dk, dv = np.empty((len(k), 2, *k.shape[1:]), np.float32).swapaxes(0, 1)
    return dq, dk, dv

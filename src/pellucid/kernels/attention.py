"""Attention on padded batches, on the road of the packed ones; see `flash`.

Rows of a padded batch stand in their places, L (or S) to a sequence. Padding after the keys makes a
sequence's span of keys shorter. Other masks go the plain way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.core.rng import Rng
from pellucid.core.vjp import check_gradient
from pellucid.kernels.flash import Saved as RowsSaved
from pellucid.kernels.flash import Spans, attend, attend_backward, dropout_of, plain

Array = np.ndarray


class Saved(NamedTuple):
    rows: RowsSaved
    q_shape: tuple[int, ...]
    k_shape: tuple[int, ...]


def accepts(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> bool:
    """float32 (…, H, L, D), no mask or one of key padding, dropout with rows named by query."""
    return (
        all(
            isinstance(x, np.ndarray) and x.dtype == np.float32 and x.ndim >= 3 and x.size > 0
            for x in (q, k, v)
        )
        and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
        and q.shape[-1] == k.shape[-1]
        and k.shape[-2] == v.shape[-2]
        and _sources(mask, k) is not None
        and (dropout == 0.0 or rng is None or (dropout < 1.0 and _names(rng, q) is not None))
    )


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Saved]:
    """See `ops.attention`."""
    sources = _sources(mask, k)
    assert sources is not None
    n, length, source = len(sources), q.shape[-2], k.shape[-2]
    steps = np.arange(n)
    spans = Spans(steps * length, np.full(n, length), steps * source, sources)
    if rng is not None and dropout > 0.0:
        names = _names(rng, q)
        assert names is not None
        rng = rng.at(names)
    bits = dropout_of(dropout, rng)
    out, saved = attend(_rows(q), _rows(k), _rows(v), spans, causal, scale, bits)
    return _heads(out, q.shape), Saved(saved, q.shape, k.shape)


def attention_backward(dout: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """Return dq, dk, dv; keys in the padding get zeros."""
    rows, q_shape, k_shape = saved
    check_gradient(dout, (*q_shape[:-1], rows.v.shape[-1]))
    dq = np.empty(rows.q.shape, np.float32)
    dk, dv = np.zeros(rows.k.shape, np.float32), np.zeros(rows.v.shape, np.float32)
    attend_backward(_rows(dout), rows, dq, dk, dv)
    return _heads(dq, q_shape), _heads(dk, k_shape), _heads(dv, k_shape)


def _rows(x: Array) -> Array:
    """(…, H, L, D) -> (N · L, H, D), a view if it stood so before it was split into heads."""
    heads, length, width = x.shape[-3:]
    rows = x.reshape(-1, heads, length, width).swapaxes(1, 2).reshape(-1, heads, width)
    return rows if plain(rows) else np.array(rows, np.float32, order="C")


def _heads(rows: Array, shape: tuple[int, ...]) -> Array:
    """(N · L, H, D) -> (…, H, L, D), the inverse."""
    *lead, heads, length, _ = shape
    return rows.reshape(*lead, length, heads, rows.shape[-1]).swapaxes(-2, -3)


def _sources(mask: Array | None, k: Array) -> Array | None:
    """Return the keys of each sequence that the mask leaves, (N,); None if it is no padding."""
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


def _names(rng: Rng, q: Array) -> Array | None:
    """Return the names of the rows (N · L,), if they name queries and not heads too."""
    rows = rng.rows
    if rows is None or rows.dtype != np.uint32 or rows.ndim > q.ndim - 1:
        return None
    if rows.ndim > 1 and rows.shape[-2] != 1:
        return None
    by_query = rows.reshape(*rows.shape[:-2], rows.shape[-1])
    try:
        return np.array(np.broadcast_to(by_query, (*q.shape[:-3], q.shape[-2]))).reshape(-1)
    except ValueError:
        return None

"""Attention inside each sequence of packed rows: pads, attends and packs again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.core.array import Array, like, namespace
from pellucid.core.batch import pack_rows, pad_rows
from pellucid.core.rng import Rng
from pellucid.ops.attention import Saved as AttentionSaved
from pellucid.ops.attention import attention, attention_backward


class Saved(NamedTuple):
    cu_q: np.ndarray
    cu_k: np.ndarray
    attention: AttentionSaved


def packed_attention(
    q: Array,
    k: Array,
    v: Array,
    cu_q: np.ndarray,
    cu_k: np.ndarray,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
    softcap: float | None = None,
) -> tuple[Array, Saved]:
    """Return `attention` of the queries of sequence n over the keys of sequence n, for every n.

    q: (T, H, D) packed by cu_q (N + 1,), k: (U, H, D) and v: (U, H, Dv) packed by cu_k; out:
    (T, H, Dv). A sequence without keys gives zeros. `mask` broadcasts to (N, H, L, S), the scores
    of the padded batch (L and S the longest): bool means True = not allowed, float is added.
    `rng.rows`, if set, is (T,). `softcap` as in `attention`.
    Raises `ValueError` when cu_q and cu_k hold different numbers of sequences.

    >>> x = np.array([[[1.0]], [[2.0]], [[3.0]]])  # a sequence of one row, then one of two
    >>> cu = np.array([0, 1, 3])
    >>> packed_attention(x, x, x, cu, cu, causal=True)[0][:2, 0, 0]
    array([1., 2.])
    """
    if len(cu_q) != len(cu_k):
        raise ValueError(
            f"queries hold {len(cu_q) - 1} sequences, keys {len(cu_k) - 1}; they must be the same"
        )
    if rng is not None and rng.rows is not None:
        rng = rng.at(pad_rows(rng.rows, cu_q)[:, None, :])
    out, saved = attention(
        _heads(q, cu_q),
        _heads(k, cu_k),
        _heads(v, cu_k),
        mask=_without_padding(mask, cu_k, q),
        causal=causal,
        scale=scale,
        dropout=dropout,
        rng=rng,
        softcap=softcap,
    )
    return _rows(out, cu_q), Saved(cu_q, cu_k, saved)


def packed_attention_backward(
    dout: Array, saved: Saved, dweights: Array | None = None
) -> tuple[Array, Array, Array]:
    """Return dq (T, H, D), dk (U, H, D), dv (U, H, Dv).

    `dweights` (N, H, L, S) adds a gradient that reached the weights by another path.
    """
    cu_q, cu_k, inner = saved
    dq, dk, dv = attention_backward(_heads(dout, cu_q), inner, dweights)
    return _rows(dq, cu_q), _rows(dk, cu_k), _rows(dv, cu_k)


def _heads(rows: Array, cu_seqlens: np.ndarray) -> Array:
    """(T, H, D) -> (N, H, L, D)."""
    return namespace(rows).permute_dims(pad_rows(rows, cu_seqlens), (0, 2, 1, 3))


def _rows(x: Array, cu_seqlens: np.ndarray) -> Array:
    """(N, H, L, D) -> (T, H, D)."""
    return pack_rows(namespace(x).permute_dims(x, (0, 2, 1, 3)), cu_seqlens)


def _without_padding(mask: Array | None, cu_k: np.ndarray, q: Array) -> Array | None:
    """Return the mask with the keys past the end of each sequence forbidden."""
    lengths = np.diff(cu_k)
    if not len(lengths):  # no sequences, no scores
        return None
    longest = int(lengths.max())
    if int(cu_k[-1]) == longest * len(lengths):
        return mask
    past = like((np.arange(longest) >= lengths[:, None])[:, None, None, :], q)
    if mask is None:
        return past
    xp = namespace(q, mask)
    if mask.dtype == xp.bool:
        return mask | past
    return xp.where(past, xp.asarray(-float("inf"), dtype=mask.dtype), mask)

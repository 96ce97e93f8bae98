"""Attention inside each sequence of a packed batch: pads, attends and packs again."""

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
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Saved]:
    """Return `attention` of the queries of sequence n over the keys of sequence n, for every n.

    q: (T, H, D) packed by cu_q (N + 1,), k: (U, H, D) and v: (U, H, Dv) packed by cu_k; out:
    (T, H, Dv). A sequence without keys gives zeros. `rng.rows`, if set, is (T,).
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
    xp = namespace(q, k, v)
    lengths = np.diff(cu_k)
    padding = np.arange(int(lengths.max(initial=0))) >= lengths[:, None]
    if rng is not None and rng.rows is not None:
        rng = rng.at(pad_rows(rng.rows, cu_q)[:, None, :])
    out, saved = attention(
        xp.permute_dims(pad_rows(q, cu_q), (0, 2, 1, 3)),
        xp.permute_dims(pad_rows(k, cu_k), (0, 2, 1, 3)),
        xp.permute_dims(pad_rows(v, cu_k), (0, 2, 1, 3)),
        mask=like(padding[:, None, None, :], q),
        causal=causal,
        scale=scale,
        dropout=dropout,
        rng=rng,
    )
    return pack_rows(xp.permute_dims(out, (0, 2, 1, 3)), cu_q), Saved(cu_q, cu_k, saved)


def packed_attention_backward(dout: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """Return dq (T, H, D), dk (U, H, D), dv (U, H, Dv)."""
    cu_q, cu_k, inner = saved
    xp = namespace(dout)
    dout_padded = xp.permute_dims(pad_rows(dout, cu_q), (0, 2, 1, 3))
    dq, dk, dv = attention_backward(dout_padded, inner)
    return (
        pack_rows(xp.permute_dims(dq, (0, 2, 1, 3)), cu_q),
        pack_rows(xp.permute_dims(dk, (0, 2, 1, 3)), cu_k),
        pack_rows(xp.permute_dims(dv, (0, 2, 1, 3)), cu_k),
    )

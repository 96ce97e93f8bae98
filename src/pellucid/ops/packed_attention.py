"""Attention inside each sequence of packed rows. The reference pads them and calls `attention`."""

from typing import Annotated, NamedTuple

import numpy as np

from pellucid.core.array import Array, namespace
from pellucid.core.batch import pack_rows, pad_rows
from pellucid.core.rng import Rng
from pellucid.ops.attention import Saved as AttentionSaved
from pellucid.ops.attention import attention, attention_backward
from pellucid.ops.rule import EVERYTHING, Rule, bounds, forbidden, places
from pellucid.ops.rules.mask import Mask


class Saved(NamedTuple):
    cu_q: np.ndarray
    cu_k: np.ndarray
    attention: AttentionSaved


def packed_attention(
    q: Annotated[Array, "T H D"],
    k: Annotated[Array, "U H D"],
    v: Annotated[Array, "U H Dv"],
    cu_q: Annotated[np.ndarray, "N+1"],
    cu_k: Annotated[np.ndarray, "N+1"],
    *,
    rule: Rule = EVERYTHING,
    offset: np.ndarray | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Annotated[Array, "T H Dv"], Saved]:
    """Compute `attention` within each sequence n: its queries over its own keys and values.

    Sequence n has the rows cu_q[n] … cu_q[n + 1] − 1 of q, and cu_k[n] … cu_k[n + 1] − 1 of k and
    v. Without keys it gives zeros. A mask of the `rule` broadcasts to (N, H, L, S), the scores of
    the padded batch (L and S the longest lengths). `offset` (N,) is the number of keys of each
    sequence before its first query, 0 by default. `rng.rows`, if set, is (T,). `scale`, `dropout`
    and errors are those of `attention`. Also raises `ValueError` when cu_q and cu_k have different
    lengths.

    >>> from pellucid.ops import rules
    >>> x = np.array([[[1.0]], [[2.0]], [[3.0]]])  # a sequence of one row, then one of two
    >>> cu = np.array([0, 1, 3])
    >>> packed_attention(x, x, x, cu, cu, rule=rules.causal)[0][:2, 0, 0]
    array([1., 2.])
    """
    if len(cu_q) != len(cu_k):
        raise ValueError(
            f"queries hold {len(cu_q) - 1} sequences, keys {len(cu_k) - 1}; they must be the same"
        )
    if rng is not None and rng.rows is not None:
        rng = rng.at(pad_rows(rng.rows, cu_q)[:, None, :])
    out, saved = attention(
        padded_heads(q, cu_q),
        padded_heads(k, cu_k),
        padded_heads(v, cu_k),
        rule=_without_padding(rule, cu_q, cu_k, offset),
        offset=offset,
        scale=scale,
        dropout=dropout,
        rng=rng,
    )
    return packed_heads(out, cu_q), Saved(cu_q, cu_k, saved)


def packed_attention_backward(dout: Annotated[Array, "T H Dv"], saved: Saved) -> tuple[Array, ...]:
    """Return dq, dk, dv, and the gradients of the rule's parameters, if it has any."""
    cu_q, cu_k, inner = saved
    dq, dk, dv, *learnt = attention_backward(padded_heads(dout, cu_q), inner)
    return packed_heads(dq, cu_q), packed_heads(dk, cu_k), packed_heads(dv, cu_k), *learnt


def padded_heads(rows: Array, cu_seqlens: np.ndarray) -> Array:
    """Pad rows (T, H, D) to (N, H, L, D)."""
    return namespace(rows).permute_dims(pad_rows(rows, cu_seqlens), (0, 2, 1, 3))


def packed_heads(x: Array, cu_seqlens: np.ndarray) -> Array:
    """Pack (N, H, L, D) to rows (T, H, D)."""
    return pack_rows(namespace(x).permute_dims(x, (0, 2, 1, 3)), cu_seqlens)


def _without_padding(
    rule: Rule, cu_q: np.ndarray, cu_k: np.ndarray, offset: np.ndarray | None
) -> Rule:
    """Return the rule for the padded batch: its bounds become a mask that also forbids padding."""
    length, keys = (int(np.diff(cu).max(initial=0)) for cu in (cu_q, cu_k))
    whole = (int(cu_q[-1]), int(cu_k[-1])) == (length * (len(cu_q) - 1), keys * (len(cu_k) - 1))
    if whole and not rule.allowed:
        return rule
    first, last = (pad_rows(x, cu_q) for x in bounds(rule, places(cu_q, cu_k, offset)))
    masks = tuple(part for part in rule.allowed if part.mask is not None)
    return Rule((Mask(forbidden(first, last, keys)[:, None]), *masks), rule.score)

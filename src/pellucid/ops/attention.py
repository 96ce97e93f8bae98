"""Scaled dot-product attention: softmax(Q Kᵀ / √d_k) V."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.core.array import Array, like, namespace, own_number
from pellucid.core.rng import Rng, mix
from pellucid.ops.dropout import Saved as DropoutSaved
from pellucid.ops.dropout import dropout as drop
from pellucid.ops.dropout import dropout_backward
from pellucid.ops.softmax import Saved as SoftmaxSaved
from pellucid.ops.softmax import softmax, softmax_backward


class Saved(NamedTuple):
    q: Array
    k: Array
    v: Array
    scale: float
    probabilities: Array  # after the softmax
    weights: Array  # after dropout: what multiplies V
    dropout: DropoutSaved
    slope: Array | None = None  # of the soft cap: 1 − tanh²


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
    softcap: float | None = None,
) -> tuple[Array, Saved]:
    """Return the values of the keys that each query asks for, weighted by how well they match.

        1.  A = scale · Q Kᵀ,  with a soft cap c:  A = c tanh(scale · Q Kᵀ / c);  (+ mask)
        2.  P = softmax(A),  W = dropout(P)
        3.  Z = W V                         (…, L, Dv)

    q: (…, L, D), k: (…, S, D), v: (…, S, Dv). `scale` is 1 / √D unless given;
    queries of no width, D = 0, attend to all keys alike. `mask` broadcasts to
    (…, L, S): bool means True = not allowed, float is added in the dtype of q. `causal` forbids
    key s > query l. Entries of q and k with mean 0 and variance 1 give q·k the standard deviation
    √D, and 1 / √D makes it 1 again (3.2.1, footnote 4).
    A query with every key forbidden (True or −inf) gets zero output and gives zero gradient.
    `softcap` keeps the scores within (−c, c), before the mask (Gemma Team 2024, Gemma 2, 2).
    Dropout draws for each query, key and head: `rng.rows`, if set, names the queries (it broadcasts
    to (…, L)), and a head's name is its place on the third axis from the end.

    Raises `ValueError` on shapes that do not conform.
    Source: Vaswani et al. 2017, 3.2.1; article 000.

    >>> import numpy as np
    >>> q = k = v = np.eye(3)[None]
    >>> attention(q, k, v, causal=True)[0][0, 0]
    array([1., 0., 0.])
    """
    xp = namespace(q, k, v, mask)
    _check(q, k, v)
    scale = max(q.shape[-1], 1) ** -0.5 if scale is None else own_number(scale)
    a = scale * (q @ xp.matrix_transpose(k))  # 1
    slope = None
    if softcap is not None:
        tanh = xp.tanh(a / own_number(softcap))
        a, slope = own_number(softcap) * tanh, 1.0 - tanh * tanh
    a = _forbid(a, mask, causal)
    probabilities, _ = softmax(a)  # 2
    weights, dropped = drop(probabilities, dropout, _by_head(rng, a.shape))
    out = weights @ v  # 3
    return out, Saved(q, k, v, scale, probabilities, weights, dropped, slope)


def attention_backward(
    dout: Array, saved: Saved, dweights: Array | None = None
) -> tuple[Array, Array, Array]:
    """Return dq, dk, dv; `dweights` adds a gradient that reached the weights by another way.

    3.  dV = Wᵀ dZ,  dW = dZ Vᵀ
    2.  dP = dropout's backward of dW,  dA = P ⊙ (dP − Σ_s dP ⊙ P)
    1.  dQ = scale · dA K,  dK = scale · dAᵀ Q, dA first times the soft cap's 1 − tanh²
    """
    q, k, v, scale, probabilities, weights, dropped, slope = saved
    xp = namespace(dout, q)
    dv = xp.matrix_transpose(weights) @ dout  # 3: out = weights @ v
    dw = dout @ xp.matrix_transpose(v)
    if dweights is not None:
        dw = dw + dweights
    dp = dropout_backward(dw, dropped)  # 2: weights = dropout(softmax(a))
    da = softmax_backward(dp, SoftmaxSaved(probabilities))
    if slope is not None:
        da = da * slope
    dq = scale * (da @ k)  # 1: a = scale * q @ k.T
    dk = scale * (xp.matrix_transpose(da) @ q)
    return dq, dk, dv


def score_gradient(dout: Array, saved: Saved, dweights: Array | None = None) -> tuple[Array, Array]:
    """Return (dweights, dscores): the gradients at steps 2 and 1 themselves, to be looked at."""
    v, probabilities, dropped = saved.v, saved.probabilities, saved.dropout
    xp = namespace(dout, v)
    dw = dout @ xp.matrix_transpose(v)
    if dweights is not None:
        dw = dw + dweights
    return dw, softmax_backward(dropout_backward(dw, dropped), SoftmaxSaved(probabilities))


def causal_mask(length: int, source_length: int) -> np.ndarray:
    """Return (L, S) bool, True where key s lies after query l.

    >>> causal_mask(2, 3)
    array([[False,  True,  True],
           [False, False,  True]])
    """
    return np.arange(source_length) > np.arange(length)[:, None]


def _forbid(a: Array, mask: Array | None, causal: bool) -> Array:
    xp = namespace(a)
    never = xp.full_like(a, -float("inf"))
    if mask is not None:
        _check_mask(mask.shape, a.shape)
        if mask.dtype == xp.bool:
            a = xp.where(mask, never, a)
        else:
            a = a + xp.astype(mask, a.dtype, copy=False)
    if causal:
        a = xp.where(like(causal_mask(a.shape[-2], a.shape[-1]), a), never, a)
    return a


def _by_head(rng: Rng | None, shape: tuple[int, ...]) -> Rng | None:
    """Name the rows of the score matrix: the query's name, and the head it stands in."""
    if rng is None or len(shape) < 3:
        return rng
    head = mix(np.arange(shape[-3], dtype=np.uint32) + np.uint32(1))[:, None]
    rows = rng.row_hash(shape[:-1]) if rng.rows is None else rng.rows
    return rng.at(mix(rows ^ head))


def _check(q: Array, k: Array, v: Array) -> None:
    fit = min(q.ndim, k.ndim, v.ndim) >= 2
    fit = fit and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]
    if not fit or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(
            f"attention expects q (…, L, D), k (…, S, D), v (…, S, Dv), the axes in front equal; "
            f"got q {q.shape}, k {k.shape}, v {v.shape}"
        )


def _check_mask(mask: tuple[int, ...], scores: tuple[int, ...]) -> None:
    padded = (1,) * (len(scores) - len(mask)) + tuple(mask)
    if len(padded) > len(scores) or any(
        m not in (1, s) for m, s in zip(padded, scores, strict=True)
    ):
        raise ValueError(f"the mask {tuple(mask)} does not broadcast to the scores {tuple(scores)}")

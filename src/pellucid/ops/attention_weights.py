"""The attention weights, inside each sequence of packed rows, as an output of their own."""

from typing import Annotated, NamedTuple

import numpy as np

from pellucid.core.array import Array, namespace
from pellucid.core.rng import Rng
from pellucid.ops.attention import Saved as AttentionSaved
from pellucid.ops.attention import rule_backward
from pellucid.ops.dropout import dropout_backward
from pellucid.ops.packed_attention import packed_attention, packed_heads
from pellucid.ops.rule import EVERYTHING, Rule
from pellucid.ops.softmax import Saved as SoftmaxSaved
from pellucid.ops.softmax import softmax_backward


class Saved(NamedTuple):
    cu_q: np.ndarray
    cu_k: np.ndarray
    attention: AttentionSaved
    average: bool


def attention_weights(
    q: Annotated[Array, "T H D"],
    k: Annotated[Array, "U H D"],
    cu_q: Annotated[np.ndarray, "N+1"],
    cu_k: Annotated[np.ndarray, "N+1"],
    *,
    average: bool = False,
    rule: Rule = EVERYTHING,
    offset: np.ndarray | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Annotated[Array, "N … L S"], Saved]:
    """Return the attention weights W = dropout(softmax(rule(scale · Q Kᵀ))) of packed rows.

    The arguments are those of `packed_attention`, which returns W V. W is (N, H, L, S), L and S the
    longest lengths, with zeros in the padding; if `average`, its mean over heads, (N, L, S).

    >>> x, cu = np.array([[[1.0]], [[1.0]]]), np.array([0, 2])
    >>> attention_weights(x, x, cu, cu, average=True)[0]
    array([[[0.5, 0.5],
            [0.5, 0.5]]])
    """
    _, saved = packed_attention(  # one column for V, since the product W V is not used
        q,
        k,
        k[..., :1],
        cu_q,
        cu_k,
        rule=rule,
        offset=offset,
        scale=scale,
        dropout=dropout,
        rng=rng,
    )
    w = saved.attention.weights
    y = namespace(w).mean(w, axis=1) if average else w
    return y, Saved(cu_q, cu_k, saved.attention, average)


def attention_weights_backward(dw: Annotated[Array, "N … L S"], saved: Saved) -> tuple[Array, ...]:
    """Return dq (T, H, D), dk (U, H, D), and the gradients of the rule's parameters.

    With `average`, every head first receives dW / H. Then

    dP = dropout's backward of dW,  dA = P ⊙ (dP − Σ_s dP ⊙ P) through the rule,
    dQ = scale · dA K,  dK = scale · dAᵀ Q
    """
    cu_q, cu_k, inner, average = saved
    xp, p = namespace(dw), inner.probabilities
    if average:
        dw = xp.broadcast_to((dw / p.shape[1])[:, None, ...], p.shape)
    dp = dropout_backward(dw, inner.dropout)
    da, *learnt = rule_backward(softmax_backward(dp, SoftmaxSaved(p)), dp, inner)
    dq = inner.scale * (da @ inner.k)
    dk = inner.scale * (xp.matrix_transpose(da) @ inner.q)
    return packed_heads(dq, cu_q), packed_heads(dk, cu_k), *learnt

"""Scaled dot-product attention: softmax(Q Kᵀ / √d_k) V."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from pellucid.core.array import Array, namespace, own_number
from pellucid.core.rng import Rng, mix
from pellucid.ops.dropout import Saved as DropoutSaved
from pellucid.ops.dropout import dropout as drop
from pellucid.ops.dropout import dropout_backward
from pellucid.ops.rule import EVERYTHING, Rule, applied, applied_backward
from pellucid.ops.softmax import Saved as SoftmaxSaved
from pellucid.ops.softmax import softmax, softmax_backward


class Saved(NamedTuple):
    q: Array
    k: Array
    v: Array
    scale: float
    probabilities: Array  # after the softmax
    sink: Array | None  # (…, L, 1), the probability of the rule's sink
    weights: Array  # after dropout: they multiply V
    dropout: DropoutSaved
    rule: Rule
    chain: list[Any]  # what the rule's parts saved


def attention(
    q: Annotated[Array, "… L D"],
    k: Annotated[Array, "… S D"],
    v: Annotated[Array, "… S Dv"],
    *,
    rule: Rule = EVERYTHING,
    mask: Array | None = None,
    causal: bool = False,
    offset: np.ndarray | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Annotated[Array, "… L Dv"], Saved]:
    """Return each query's average of the values, weighted by the softmax of its scores.

        1.  A = rule(scale · Q Kᵀ)
        2.  P = softmax(A),  W = dropout(P)
        3.  Z = W V                         (…, L, Dv)

    `scale` is 1 / √D by default: if the entries of q and k have mean 0 and variance 1, q·k has the
    standard deviation √D, and dividing by it gives 1 again (3.2.1, footnote 4). With D = 0 a query
    attends to all keys equally.
    The third axis from the end, if there is one, is the heads, and N is the product of those in
    front of it. `rule` says which keys a query may attend to, and how its scores change
    (`ops.rules`). `mask` and `causal` are short for `rules.mask` (broadcasts to (…, L, S); bool
    True = not allowed, float = added to the scores) and `rules.causal` (forbids keys after the
    query). `offset` (N,) is the number of keys of each sequence before its query 0, by default 0.
    A query whose scores are all −inf after the rule gets zero output and zero gradient.
    Dropout draws a bit for each query, key and head, and none without `rng`. `rng.rows`, if set,
    has a hash (`core.rng.row_keys`) for each query, and broadcasts to (…, L).

    Raises `ValueError` if q, k, v, the mask or a causal rule's `offset` have shapes that do not
    fit, or `dropout` is not between 0 and 1; `TypeError` if `rule` is no rule or `mask` no array of
    bools or floats.
    Source: Vaswani et al. 2017, 3.2.1; article 000.

    >>> import numpy as np
    >>> q = k = v = np.eye(3)[None]
    >>> attention(q, k, v, causal=True)[0][0, 0]
    array([1., 0., 0.])
    """
    xp = namespace(q, k, v)  # a mask may be on the host
    _check(q, k, v)
    rule = whole_rule(rule, mask, causal)
    scale = max(q.shape[-1], 1) ** -0.5 if scale is None else own_number(scale)
    a = scale * (q @ xp.matrix_transpose(k))  # 1
    a, chain = applied(rule, a, offset)
    probabilities, sink = _softmax(a, rule)  # 2
    weights, dropped = drop(probabilities, dropout, _by_head(rng, a.shape))
    out = weights @ v  # 3
    return out, Saved(q, k, v, scale, probabilities, sink, weights, dropped, rule, chain)


def attention_backward(
    dout: Annotated[Array, "… L Dv"],
    saved: Saved,
    dweights: Annotated[Array, "* L S"] | None = None,
) -> tuple[Array, ...]:
    """Return dq, dk, dv, and the gradients of the rule's parameters, if it has any.

    3.  dV = Wᵀ dZ,  dW = dZ Vᵀ
    2.  dP = dropout's backward of dW,  dA = P ⊙ (dP − Σ_s dP ⊙ P)
    1.  dA through the rule;  dQ = scale · dA K,  dK = scale · dAᵀ Q

    `dweights` is a further gradient of the weights W, if they are used elsewhere too.
    """
    q, k, v, scale, weights = saved.q, saved.k, saved.v, saved.scale, saved.weights
    xp = namespace(dout, q)
    dv = xp.matrix_transpose(weights) @ dout  # 3: out = weights @ v
    dw = dout @ xp.matrix_transpose(v)
    if dweights is not None:
        dw = dw + dweights
    dp = dropout_backward(dw, saved.dropout)  # 2: weights = dropout(softmax(a))
    da = softmax_backward(dp, SoftmaxSaved(saved.probabilities))
    da, *dparameters = rule_backward(da, dp, saved)  # 1: a = rule(scale * q @ k.T)
    dq = scale * (da @ k)
    dk = scale * (xp.matrix_transpose(da) @ q)
    return dq, dk, dv, *dparameters


def rule_backward(
    da: Annotated[Array, "… L S"], dp: Annotated[Array, "… L S"], saved: Saved
) -> tuple[Array, ...]:
    """Return the gradients of scale · Q Kᵀ and of the rule's parameters, given dA and dP.

    A sink has no value, so its dP is 0 and its dA = P_sink (0 − Σ_s dP ⊙ P). That equals −Σ_s dA,
    but the latter sum would lose digits by cancellation.
    """
    p, sink, chain = saved.probabilities, saved.sink, saved.chain
    if sink is not None:
        xp = namespace(dp, p)
        chain = [*chain[:-1], -sink * xp.sum(dp * p, axis=-1, keepdims=True)]
    return applied_backward(saved.rule, da, chain)


def whole_rule(rule: Rule, mask: Array | None, causal: bool) -> Rule:
    """Return the rule combined with `mask` and, if `causal`, with the causal rule.

    Raises `TypeError` if `rule` is no `Rule`, or `mask` no array of bools or floats.
    """
    if not isinstance(rule, Rule):
        raise TypeError(
            f"rule must be one of ops.rules, got {rule!r}; a function is called first, with what "
            "it has learnt"
        )
    if mask is None and not causal:
        return rule
    from pellucid.ops import rules  # here, so that importing this module stays fast

    if causal:
        rule = rules.causal & rule
    return rule if mask is None else rule & rules.mask(mask)


def score_gradient(
    dout: Annotated[Array, "… L Dv"],
    saved: Saved,
    dweights: Annotated[Array, "* L S"] | None = None,
) -> tuple[Annotated[Array, "… L S"], Annotated[Array, "… L S"]]:
    """Return dW and dA, for inspection: the gradients of the weights and of the scores.

    W are the weights after dropout, A the scores after the rule. `dweights` is a further gradient
    of the weights W, if they are used elsewhere too.
    """
    v, probabilities, dropped = saved.v, saved.probabilities, saved.dropout
    xp = namespace(dout, v)
    dw = dout @ xp.matrix_transpose(v)
    if dweights is not None:
        dw = dw + dweights
    return dw, softmax_backward(dropout_backward(dw, dropped), SoftmaxSaved(probabilities))


def causal_mask(length: int, source_length: int) -> Annotated[np.ndarray, "L S"]:
    """Return the causal mask, (L, S) bool, True where key s is after query l.

    >>> causal_mask(2, 3)
    array([[False,  True,  True],
           [False, False,  True]])
    """
    return np.arange(source_length) > np.arange(length)[:, None]


def _softmax(a: Array, rule: Rule) -> tuple[Array, Array | None]:
    """Return the probabilities P, and those of the sinks, (…, L, 1), or None without sinks."""
    sinks = [part.parameters[0] for part in rule.score if part.last]
    if not sinks:
        return softmax(a)[0], None
    xp = namespace(a, *sinks)
    column = xp.astype(xp.reshape(sinks[0], (-1, 1, 1)), a.dtype, copy=False)
    column = column if a.ndim > 2 else column[0]
    column = xp.broadcast_to(column, (*a.shape[:-1], 1))
    p, _ = softmax(xp.concat([a, column], axis=-1))
    return p[..., :-1], p[..., -1:]


def _by_head(rng: Rng | None, shape: tuple[int, ...]) -> Rng | None:
    """Return an rng whose row keys are those of the score matrix: one per query and head."""
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

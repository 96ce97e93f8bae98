"""The output layer and R-Drop's loss: two readings of every token, and how far they are apart."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.core.array import Array, namespace, own_number
from pellucid.ops.cross_entropy import cross_entropy, cross_entropy_backward
from pellucid.ops.linear import linear, linear_backward
from pellucid.ops.softmax import log_softmax, log_softmax_backward

CHUNK = 512  # pairs of rows whose logits are held at once


class Saved(NamedTuple):
    x: Array
    weight: Array
    bias: Array | None
    target: Array
    alpha: float
    label_smoothing: float


def linear_r_drop(
    x: Array,
    weight: Array,
    bias: Array | None,
    target: Array,
    *,
    alpha: float = 1.0,
    label_smoothing: float = 0.0,
) -> tuple[Array, Saved]:
    """Return the mean loss of two readings of T tokens, and α/2 times how far they are apart.

        1.  p_t = softmax(x_t Wᵀ + b), q_t = softmax(x_{T+t} Wᵀ + b)
        2.  ½ Σ_t [cross_entropy(p_t, target_t) + cross_entropy(q_t, target_t)]
        3.  + α/4 Σ_t [KL(p_t ‖ q_t) + KL(q_t ‖ p_t)], together Σ_v (p_v − q_v)(log p_v − log q_v)

    x: (2T, E), the rows of one batch read twice, each time under another draw of dropout; weight:
    (V, E), bias: (V,) or None, target: (T,) integers. It is half of the paper's loss, so that α = 0
    is the cross-entropy of T tokens, and a learning rate keeps its meaning.

    Raises `ValueError` unless x has two rows for each target.
    Source: Liang et al. 2021 (R-Drop), equations 1 to 3.

    >>> import numpy as np
    >>> loss, _ = linear_r_drop(np.ones((4, 3)), np.ones((5, 3)), None, np.array([0, 4]))
    >>> bool(np.isclose(loss, 2 * np.log(5)))  # two readings that agree
    True
    """
    if x.shape[0] != 2 * target.shape[0]:
        raise ValueError(
            f"linear_r_drop expects two rows for each target: {2 * target.shape[0]}, got "
            f"{x.shape[0]}"
        )
    xp = namespace(x, weight, bias, target)
    alpha = own_number(alpha)
    total = xp.zeros((), dtype=x.dtype, device=x.device)
    for first, second in _chunks(x):
        apart = []
        for rows in (first, second):  # 1
            logits, _ = linear(x[rows, ...], weight, bias)
            loss, _ = cross_entropy(
                logits, target[first, ...], label_smoothing=label_smoothing, reduction="sum"
            )
            total = total + 0.5 * loss  # 2
            apart.append(log_softmax(logits)[0])
        log_p, log_q = apart
        difference = _difference(log_p, log_q)
        total = total + 0.25 * alpha * xp.sum((xp.exp(log_p) - xp.exp(log_q)) * difference)  # 3
    return total, Saved(x, weight, bias, target, alpha, label_smoothing)


def linear_r_drop_backward(dloss: Array, saved: Saved) -> tuple[Array, Array, Array | None]:
    """Return dx, dweight, dbias; each chunk's logits are computed a second time.

    With d = log p − log q, line 3 has dlog p = α/4 (p (d + 1) − q) and dlog q the same with p and q
    exchanged.
    """
    x, weight, bias, target, alpha, label_smoothing = saved
    xp = namespace(x, weight)
    dx: tuple[list[Array], list[Array]] = ([], [])
    dweight = xp.zeros_like(weight)
    dbias = None if bias is None else xp.zeros_like(bias)
    for first, second in _chunks(x):
        logits, inputs, logs = [], [], []
        for rows in (first, second):
            z, linear_saved = linear(x[rows, ...], weight, bias)
            logits.append(z)
            inputs.append(linear_saved)
            logs.append(log_softmax(z))
        (log_p, _), (log_q, _) = logs
        difference = _difference(log_p, log_q)
        p, q = xp.exp(log_p), xp.exp(log_q)
        dlogs = (p * (difference + 1.0) - q, q * (1.0 - difference) - p)  # 3
        for i in range(2):
            _, loss_saved = cross_entropy(
                logits[i], target[first, ...], label_smoothing=label_smoothing, reduction="sum"
            )
            dlogits = cross_entropy_backward(0.5 * dloss, loss_saved) + log_softmax_backward(  # 2
                0.25 * alpha * dloss * dlogs[i], logs[i][1]
            )
            dx_rows, dweight_rows, dbias_rows = linear_backward(dlogits, inputs[i])  # 1
            dx[i].append(dx_rows)
            dweight = dweight + dweight_rows
            dbias = None if dbias is None else dbias + dbias_rows
    return (xp.concat([*dx[0], *dx[1]]) if dx[0] else xp.zeros_like(x)), dweight, dbias


def _difference(log_p: Array, log_q: Array) -> Array:
    """log p − log q, 0 where they are equal: a token that both readings exclude adds nothing."""
    xp = namespace(log_p)
    zero = xp.zeros_like(log_p)
    equal = log_p == log_q
    return xp.where(equal, zero, log_p) - xp.where(equal, zero, log_q)


def _chunks(x: Array) -> list[tuple[slice, slice]]:
    tokens = x.shape[0] // 2
    starts = range(0, tokens, CHUNK)
    return [
        (slice(start, end), slice(tokens + start, tokens + end))
        for start, end in ((start, min(start + CHUNK, tokens)) for start in starts)
    ]

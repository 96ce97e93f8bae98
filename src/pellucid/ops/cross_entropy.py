"""Cross-entropy of logits and target classes or distributions, with label smoothing."""

from math import prod
from typing import Annotated, NamedTuple

import numpy as np

from pellucid.core.array import Array, like, namespace, own_number
from pellucid.ops.softmax import LogSaved, log_softmax, log_softmax_backward


class Saved(NamedTuple):
    log_p: LogSaved
    wanted: Array  # (T, V): t times the class weights; 0 in rows that are ignored
    norm: Array  # the divisor of reduction "mean"
    reduction: str
    shape: tuple[int, ...]


def cross_entropy(
    logits: Annotated[Array, "… V"],
    target: Array,
    *,
    weight: Annotated[Array, "V"] | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Array, Saved]:
    """Return the cross-entropy −Σ_v w_v t_v log softmax(logits)_v over the last axis, size V.

        1.  t = (1 − ε) [v = target] + ε / V
        2.  log p = log softmax(logits)
        3.  loss = −Σ_v w_v t_v log p_v

    logits: (…, V). target: (…) integers in [0, V), or probabilities (…, V), which replace
    [v = target] and get no gradient. Rows whose class number is `ignore_index` do not count: their
    loss is 0. With probabilities it must be negative. `weight` w: (V,), 1 by default. ε is
    `label_smoothing`. `reduction`: "none" returns a loss per row, (…); "sum" their sum; "mean" the
    sum divided by the total weight of the target classes (without `weight`, the number of rows that
    count), or for probabilities by the number of rows. If that divisor is 0, the mean is NaN and
    its gradient 0.

    Raises `IndexError` for a class outside [0, V), `TypeError` for logits that are no floats,
    `ValueError` for targets that do not fit the logits and for an option that is not allowed.
    Source: Szegedy et al. 2016, 7 (label smoothing); torch.nn.functional.cross_entropy.

    >>> loss, _ = cross_entropy(np.zeros((2, 4)), np.array([1, 3]))
    >>> bool(np.isclose(loss, np.log(4)))
    True
    """
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f'reduction must be "none", "sum" or "mean", got {reduction!r}')
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must lie between 0 and 1, got {label_smoothing}")
    xp = namespace(logits, target, weight)
    if not xp.isdtype(logits.dtype, "real floating"):
        raise TypeError(
            f"cross_entropy expects logits of float32 or float64, got {logits.dtype}; in integers "
            "weights and probabilities would be rounded off"
        )
    if not logits.ndim:
        raise ValueError("cross_entropy expects logits (…, V), V classes wide; got a single number")
    label_smoothing = own_number(label_smoothing)
    rows = xp.reshape(logits, (prod(logits.shape[:-1]), logits.shape[-1]))
    chosen, kept, norm = _chosen(logits, target, ignore_index)  # 1
    wanted = (1.0 - label_smoothing) * chosen + label_smoothing / max(rows.shape[1], 1) * kept
    if weight is not None:
        weight = xp.astype(weight, logits.dtype, copy=False)
        wanted = wanted * weight
        if target.shape != logits.shape:
            norm = xp.sum(chosen * weight)

    log_p, saved_log_p = log_softmax(rows)  # 2
    # a class with t = 0 adds 0, even where its log-probability is −inf
    losses = -xp.sum(wanted * xp.where(wanted == 0, xp.zeros_like(log_p), log_p), axis=-1)  # 3
    saved = Saved(saved_log_p, wanted, norm, reduction, logits.shape)
    if reduction == "none":
        return xp.reshape(losses, logits.shape[:-1]), saved
    total = xp.sum(losses)
    return (total if reduction == "sum" else _divided(total, norm, float("nan"))), saved


def cross_entropy_backward(dloss: Array, saved: Saved) -> Annotated[Array, "… V"]:
    """Return dlogits, for each row d (p Σ_v w_v t_v − w ⊙ t) with p = softmax(logits).

    d is dloss, divided as the loss is by `reduction`. For class numbers without `weight` it is
    d (p − t), because Σ_v t_v = 1, and 0 in rows that do not count.
    """
    log_p, wanted, norm, reduction, shape = saved
    xp = namespace(wanted)
    per_row = dloss
    if reduction == "none":
        per_row = xp.reshape(dloss, (wanted.shape[0], 1))
    elif reduction == "mean":
        per_row = _divided(dloss, norm, 0.0)
    dlog_p = -per_row * wanted  # 3
    return xp.reshape(log_softmax_backward(dlog_p, log_p), shape)  # 2


def _chosen(logits: Array, target: Array, ignore_index: int) -> tuple[Array, Array, Array]:
    """Return [v = target] (T, V), a mask of the rows that count (T, 1), and their number.

    Targets that are probabilities are returned instead of [v = target]; then all rows count.
    """
    xp = namespace(logits, target)
    classes = logits.shape[-1]
    if target.shape == logits.shape and xp.isdtype(target.dtype, "real floating"):
        if ignore_index >= 0:
            raise ValueError(
                f"ignore_index {ignore_index} names a class number, but the targets are "
                "probabilities; give class numbers, or zero the rows to leave out yourself"
            )
        chosen = xp.reshape(xp.astype(target, logits.dtype), (prod(target.shape[:-1]), classes))
        kept = xp.ones_like(chosen[:, :1])
        return chosen, kept, xp.sum(kept)
    if target.shape != logits.shape[:-1] or not xp.isdtype(target.dtype, "integral"):
        raise ValueError(
            "cross_entropy expects logits (…, V) and targets (…) of integers, or probabilities "
            f"(…, V); got logits {logits.shape} and targets {target.shape} of {target.dtype}"
        )
    numbers = like(np.arange(classes), target)
    column = xp.astype(xp.reshape(target, (prod(target.shape), 1)), numbers.dtype)
    counts = column != ignore_index
    _check_range(xp.where(counts, column, xp.zeros_like(column)), classes)
    hit = (column == numbers) & counts
    chosen, kept = xp.astype(hit, logits.dtype), xp.astype(counts, logits.dtype)
    return chosen, kept, xp.sum(kept)


def _divided(total: Array, norm: Array, otherwise: float) -> Array:
    """Return total / norm, or `otherwise` where norm is 0."""
    xp = namespace(norm)
    empty = norm == 0
    mean = total / xp.where(empty, xp.ones_like(norm), norm)
    return xp.where(empty, xp.full_like(mean, otherwise), mean)


def _check_range(target: Array, classes: int) -> None:
    xp = namespace(target)
    if target.shape[0] and (int(xp.min(target)) < 0 or int(xp.max(target)) >= classes):
        raise IndexError(
            f"targets must lie in [0, {classes}), got values from {int(xp.min(target))} to "
            f"{int(xp.max(target))}; mark rows to leave out with ignore_index"
        )

"""Cross-entropy of logits against the right class, with label smoothing."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.array import Array, namespace
from pellucid.ops.softmax import LogSaved, log_softmax, log_softmax_backward


class Saved(NamedTuple):
    log_p: LogSaved
    soft_target: Array  # (T, V): what each row is asked to be, 0 where the row is ignored
    norm: Array | float  # what a mean divides by
    reduction: str
    shape: tuple[int, ...]


def cross_entropy(
    logits: Array,
    target: Array,
    *,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Array, Saved]:
    """Return −Σ_v t_v log softmax(logits)_v, t = (1 − ε) [v = target] + ε / V.

    logits: (…, V), target: (…) integers. Rows whose target is `ignore_index` count for nothing.
    `weight` (V,) multiplies each class's term. `reduction`: "none" gives (…), "sum" a number,
    "mean" the sum divided by the total weight of the targets (without `weight`: their number).
    The mean over no row at all is NaN, as in torch. Raises `ValueError` for anything else.
    Source: Szegedy et al. 2016, 7 (label smoothing); torch.nn.functional.cross_entropy.

    >>> import numpy as np
    >>> loss, _ = cross_entropy(np.zeros((2, 4)), np.array([1, 3]))
    >>> bool(np.isclose(loss, np.log(4)))
    True
    """
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f'reduction must be "none", "sum" or "mean", got {reduction!r}')
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must lie between 0 and 1, got {label_smoothing}")
    if logits.shape[:-1] != target.shape:
        raise ValueError(
            f"cross_entropy expects logits (…, V) and target (…); got {logits.shape} and "
            f"{target.shape}"
        )
    xp = namespace(logits, target, weight)
    classes = logits.shape[-1]
    rows = xp.reshape(logits, (-1, classes))
    flat = xp.reshape(target, (-1,))
    kept = flat != ignore_index
    _check_range(xp.where(kept, flat, xp.zeros_like(flat)), classes)
    one_hot = xp.astype(flat[:, None] == xp.arange(classes, dtype=flat.dtype), logits.dtype)
    soft = (1.0 - label_smoothing) * one_hot + label_smoothing / classes
    if weight is not None:
        soft, one_hot = soft * weight, one_hot * weight
    soft = xp.where(kept[:, None], soft, xp.zeros_like(soft))

    log_p, saved_log_p = log_softmax(rows)
    # a class with no weight in the target adds 0 even where its log-probability is −inf
    terms = xp.where(soft == 0, xp.zeros_like(soft), soft * log_p)
    losses = -xp.sum(terms, axis=-1)
    norm = xp.sum(xp.where(kept[:, None], one_hot, xp.zeros_like(one_hot)))
    saved = Saved(saved_log_p, soft, norm, reduction, logits.shape)
    if reduction == "none":
        return xp.reshape(losses, target.shape), saved
    total = xp.sum(losses)
    return (total if reduction == "sum" else total / norm), saved


def cross_entropy_backward(dloss: Array, saved: Saved) -> Array:
    """Return dlogits; for one row and weight 1 that is dloss (softmax(logits) − t)."""
    log_p, soft, norm, reduction, shape = saved
    xp = namespace(soft)
    if reduction == "none":
        per_row = xp.reshape(dloss, (-1, 1))
    else:
        per_row = dloss if reduction == "sum" else dloss / norm
    dlog_p = -per_row * soft
    return xp.reshape(log_softmax_backward(dlog_p, log_p), shape)


def _check_range(target: Array, classes: int) -> None:
    xp = namespace(target)
    if target.shape[0] and (int(xp.min(target)) < 0 or int(xp.max(target)) >= classes):
        raise IndexError(
            f"targets must lie in [0, {classes}), got values from {int(xp.min(target))} to "
            f"{int(xp.max(target))}; mark rows to leave out with ignore_index"
        )

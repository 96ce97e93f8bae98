"""The output projection and the cross-entropy as one op, with few rows of logits at a time.

The logits (T, V) are the largest array of a training step. They are computed for `CHUNK` rows at
a time, in forward and again in backward.
"""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace
from pellucid.ops.cross_entropy import cross_entropy, cross_entropy_backward
from pellucid.ops.linear import linear, linear_backward

CHUNK = 1024  # rows of logits held in memory at a time


class Saved(NamedTuple):
    x: Array
    weight: Array
    bias: Array | None
    target: Array
    ignore_index: int
    label_smoothing: float


def linear_cross_entropy(
    x: Annotated[Array, "T E"],
    weight: Annotated[Array, "V E"],
    bias: Annotated[Array, "V"] | None,
    target: Annotated[Array, "T"],
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[Annotated[Array, ""], Saved]:
    """Return the cross-entropy of the logits x Wᵀ + b, summed over rows, in nats.

    `target`, `ignore_index`, `label_smoothing` and errors are those of `cross_entropy`.

    >>> import numpy as np
    >>> loss, _ = linear_cross_entropy(np.ones((2, 3)), np.ones((5, 3)), None, np.array([0, 4]))
    >>> bool(np.isclose(loss, 2 * np.log(5)))
    True
    """
    xp = namespace(x, weight, bias, target)
    total = xp.sum(x[:0, ...])
    for rows in _chunks(x):
        logits, _ = linear(x[rows, ...], weight, bias)
        loss, _ = cross_entropy(
            logits,
            target[rows, ...],
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction="sum",
        )
        total = total + loss
    return total, Saved(x, weight, bias, target, ignore_index, label_smoothing)


def linear_cross_entropy_backward(
    dloss: Annotated[Array, ""], saved: Saved
) -> tuple[Annotated[Array, "T E"], Annotated[Array, "V E"], Annotated[Array, "V"] | None]:
    """Return dx, dweight, dbias (None without bias).

    The logits are computed again, `CHUNK` rows at a time.
    """
    x, weight, bias, target, ignore_index, label_smoothing = saved
    xp = namespace(x, weight)
    dx = []
    dweight = xp.zeros_like(weight)
    dbias = None if bias is None else xp.zeros_like(bias)
    for rows in _chunks(x):
        logits, linear_saved = linear(x[rows, ...], weight, bias)
        _, loss_saved = cross_entropy(
            logits,
            target[rows, ...],
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction="sum",
        )
        dlogits = cross_entropy_backward(dloss, loss_saved)
        dx_rows, dweight_rows, dbias_rows = linear_backward(dlogits, linear_saved)
        dx.append(dx_rows)
        dweight = dweight + dweight_rows
        dbias = None if dbias is None else dbias + dbias_rows
    return (xp.concat(dx) if dx else xp.zeros_like(x)), dweight, dbias


def _chunks(x: Array) -> list[slice]:
    starts = range(0, x.shape[0], CHUNK)
    return [slice(start, min(start + CHUNK, x.shape[0])) for start in starts]

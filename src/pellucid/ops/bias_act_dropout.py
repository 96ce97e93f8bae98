"""The middle of the feed-forward network: dropout(activation(x + b))."""

from math import prod
from typing import Annotated, Any, NamedTuple

from pellucid.core.array import Array, namespace
from pellucid.core.rng import Rng
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.dropout import Saved as DropoutSaved
from pellucid.ops.dropout import dropout as drop
from pellucid.ops.dropout import dropout_backward


class Saved(NamedTuple):
    activation: str
    inner: Any
    dropout: DropoutSaved
    has_bias: bool


def bias_act_dropout(
    x: Annotated[Array, "… F"],
    bias: Annotated[Array, "F"] | None,
    *,
    activation: str = "relu",
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Saved]:
    """Return dropout(activation(x + bias)); x: (…, F), bias: (F,) or None.

    A gated activation takes x (…, 2F) and bias (2F,), and returns (…, F). Without `rng` nothing is
    dropped. Raises `ValueError` unless `activation` is a key of `ACTIVATIONS` and `dropout` between
    0 and 1. Source: Vaswani et al. 2017, 3.3.

    >>> import numpy as np
    >>> bias_act_dropout(np.array([1.0, -3.0]), np.array([1.0, 1.0]))[0]
    array([2., 0.])
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {activation!r}")
    shifted = x if bias is None else x + bias
    y, inner = ACTIVATIONS[activation].op.forward(shifted)
    y, dropped = drop(y, dropout, rng)
    return y, Saved(activation, inner, dropped, bias is not None)


def bias_act_dropout_backward(
    dy: Array, saved: Saved
) -> tuple[Annotated[Array, "… F"], Annotated[Array, "F"] | None]:
    """Return dx and dbias (the sum of dx over all rows; None without bias)."""
    activation, inner, dropped, has_bias = saved
    xp = namespace(dy)
    dx = ACTIVATIONS[activation].op.backward(dropout_backward(dy, dropped), inner)
    rows = xp.reshape(dx, (prod(dx.shape[:-1]), dx.shape[-1]))
    return dx, xp.sum(rows, axis=0) if has_bias else None

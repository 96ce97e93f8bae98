"""The residual step of a post-norm layer: LayerNorm(residual + dropout(x))."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.core.array import Array
from pellucid.core.rng import Rng
from pellucid.ops.dropout import Saved as DropoutSaved
from pellucid.ops.dropout import dropout as drop
from pellucid.ops.dropout import dropout_backward
from pellucid.ops.layer_norm import Saved as NormSaved
from pellucid.ops.layer_norm import layer_norm, layer_norm_backward


class Saved(NamedTuple):
    dropout: DropoutSaved
    norm: NormSaved


def add_dropout_norm(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    eps: float = 1e-5,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Saved]:
    """Return LayerNorm(residual + dropout(x)); all (…, E). Source: Vaswani et al. 2017, 3.1, 5.4.

    >>> import numpy as np
    >>> add_dropout_norm(np.array([1.0, 3.0]), np.array([0.0, -4.0]), eps=0.0)[0]
    array([ 1., -1.])
    """
    dropped, dropout_saved = drop(x, dropout, rng)
    y, norm_saved = layer_norm(residual + dropped, weight, bias, eps)
    return y, Saved(dropout_saved, norm_saved)


def add_dropout_norm_backward(
    dy: Array, saved: Saved
) -> tuple[Array, Array, Array | None, Array | None]:
    """Return dx, dresidual, dweight, dbias; the sum passes its gradient to both sides."""
    dsum, dweight, dbias = layer_norm_backward(dy, saved.norm)
    return dropout_backward(dsum, saved.dropout), dsum, dweight, dbias

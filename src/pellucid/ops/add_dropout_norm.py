"""The residual step of a post-norm layer: norm(residual + dropout(x)) as one op."""

from typing import Annotated, Any, NamedTuple

from pellucid.core.array import Array
from pellucid.core.rng import Rng
from pellucid.ops.dropout import Saved as DropoutSaved
from pellucid.ops.dropout import dropout as drop
from pellucid.ops.dropout import dropout_backward
from pellucid.ops.norms import NORMS


class Saved(NamedTuple):
    norm: str
    dropout: DropoutSaved
    inner: Any


def add_dropout_norm(
    x: Annotated[Array, "… E"],
    residual: Annotated[Array, "… E"],
    weight: Annotated[Array, "E|1"] | None = None,
    bias: Annotated[Array, "E"] | None = None,
    *,
    norm: str = "layer_norm",
    eps: float = 1e-5,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Annotated[Array, "… E"], Saved]:
    """Return norm(residual + dropout(x)); x, residual and the result are (…, E).

    `weight`, `bias` and `eps` are those of the norm, `dropout` and `rng` those of `ops.dropout`
    (without `rng` nothing is dropped). Raises `ValueError` unless `norm` is a key of `NORMS` and
    `dropout` between 0 and 1. Source: Vaswani et al. 2017, 3.1, 5.4.

    >>> import numpy as np
    >>> add_dropout_norm(np.array([1.0, 3.0]), np.array([0.0, -4.0]), eps=0.0)[0]
    array([ 1., -1.])
    """
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {sorted(NORMS)}, got {norm!r}")
    dropped, dropout_saved = drop(x, dropout, rng)
    y, inner = NORMS[norm].op.forward(residual + dropped, weight, bias, eps)
    return y, Saved(norm, dropout_saved, inner)


def add_dropout_norm_backward(
    dy: Annotated[Array, "… E"], saved: Saved
) -> tuple[
    Annotated[Array, "… E"],
    Annotated[Array, "… E"],
    Annotated[Array, "E|1"] | None,
    Annotated[Array, "E"] | None,
]:
    """Return dx, dresidual, dweight, dbias; the last two are None for parameters not given.

    The sum passes the gradient of the norm's input to both terms, to x through the dropout.
    """
    dsum, dweight, dbias = NORMS[saved.norm].op.backward(dy, saved.inner)
    return dropout_backward(dsum, saved.dropout), dsum, dweight, dbias

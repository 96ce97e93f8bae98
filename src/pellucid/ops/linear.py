"""Linear map: y = x Wᵀ + b."""

from math import prod
from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace


class Saved(NamedTuple):
    x: Array
    weight: Array
    has_bias: bool


def linear(
    x: Annotated[Array, "… E"],
    weight: Annotated[Array, "F E"],
    bias: Annotated[Array, "F"] | None = None,
) -> tuple[Annotated[Array, "… F"], Saved]:
    """Return x Wᵀ + b: x (…, E), W (F, E), b (F,) or None give (…, F).

    Raises `ValueError` for other shapes. torch.nn.functional.linear computes the same.

    >>> import numpy as np
    >>> linear(np.ones((2, 3)), np.ones((4, 3)), np.zeros(4))[0].shape
    (2, 4)
    """
    if weight.ndim != 2:
        raise ValueError(f"linear expects a weight of shape (F, E), got {tuple(weight.shape)}")
    if x.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            f"linear expects input of width {weight.shape[1]} (its weight is {weight.shape}), "
            f"got shape {x.shape}; the last axis must be the features"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"linear expects a bias of shape {tuple(weight.shape[:1])}, got {tuple(bias.shape)}"
        )
    xp = namespace(x, weight, bias)
    rows = _rows(x)  # all leading axes as one, so that there is one matrix product
    y = rows @ weight.T
    if bias is not None:
        y = y + bias
    return xp.reshape(y, (*x.shape[:-1], weight.shape[0])), Saved(x, weight, bias is not None)


def linear_backward(
    dy: Annotated[Array, "… F"], saved: Saved
) -> tuple[Annotated[Array, "… E"], Annotated[Array, "F E"], Annotated[Array, "F"] | None]:
    """Return dx = dy W, dW = dyᵀ x and db = Σ dy, summed over all rows; db None without b."""
    x, weight, has_bias = saved
    xp = namespace(dy, x)
    dy_rows, x_rows = _rows(dy), _rows(x)
    dx = xp.reshape(dy_rows @ weight, x.shape)
    dweight = dy_rows.T @ x_rows
    dbias = xp.sum(dy_rows, axis=0) if has_bias else None
    return dx, dweight, dbias


def _rows(x: Array) -> Array:
    return namespace(x).reshape(x, (prod(x.shape[:-1]), x.shape[-1]))

"""Normalisation to one learnt length over the last axis."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace, narrowed, own_number, widened


class Saved(NamedTuple):
    x_hat: Array
    inverse_length: Array
    weight: Array | None
    has_bias: bool


def scale_norm(
    x: Annotated[Array, "… E"],
    weight: Annotated[Array, "1"] | None = None,
    bias: Annotated[Array, "E"] | None = None,
    eps: float = 1e-5,
) -> tuple[Annotated[Array, "… E"], Saved]:
    """Return y = g x̂ (+ β) over the last axis, E wide: every row has the length |g|.

        1.  x̂ = x / √(Σ x² + ε)
        2.  y = g x̂ + β

    g is the weight, β the bias. Dtype of `x`. A row whose Σ x² is beyond the dtype gives NaN.
    Source: Nguyen & Salazar 2019, 2.2 (no bias, ε = 0).

    >>> import numpy as np
    >>> scale_norm(np.array([3.0, -4.0]), np.array([10.0]), eps=0.0)[0]
    array([ 6., -8.])
    """
    xp = namespace(x, weight, bias)
    wide = widened(x)
    square = xp.sum(wide * wide, axis=-1, keepdims=True)  # 1
    inverse_length = 1.0 / xp.sqrt(square + own_number(eps))
    nan = xp.full_like(square, float("nan"))
    inverse_length = xp.where(xp.isinf(square), nan, inverse_length)
    x_hat = wide * inverse_length
    y = x_hat if weight is None else x_hat * weight  # 2
    if bias is not None:
        y = y + bias
    return narrowed(y, x), Saved(x_hat, inverse_length, weight, bias is not None)


def scale_norm_backward(
    dy: Annotated[Array, "… E"], saved: Saved
) -> tuple[Annotated[Array, "… E"], Annotated[Array, "1"] | None, Annotated[Array, "E"] | None]:
    """Return dx, dg = Σ dy ⊙ x̂ over all numbers and dβ = Σ dy over all rows.

    2.  dx̂ = g dy
    1.  dx = (dx̂ − x̂ Σ_e dx̂ ⊙ x̂) / √(Σ x² + ε): what is along x is taken away
    """
    x_hat, inverse_length, weight, has_bias = saved
    xp = namespace(dy, x_hat)
    wide = widened(dy)
    dx_hat = wide if weight is None else wide * weight  # 2: y = g * x_hat + beta
    along = xp.sum(dx_hat * x_hat, axis=-1, keepdims=True)  # 1: x_hat = x * inverse_length
    dx = narrowed((dx_hat - x_hat * along) * inverse_length, dy)
    dweight = None if weight is None else narrowed(xp.reshape(xp.sum(wide * x_hat), (1,)), dy)
    rows = xp.reshape(wide, (-1, wide.shape[-1]))
    return dx, dweight, narrowed(xp.sum(rows, axis=0), dy) if has_bias else None

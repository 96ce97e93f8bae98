"""Root-mean-square normalisation over the last axis."""

import math
from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace, narrowed, own_number, widened


class Saved(NamedTuple):
    x_hat: Array
    inverse_rms: Array
    weight: Array | None
    has_bias: bool


def rms_norm(
    x: Annotated[Array, "… E"],
    weight: Annotated[Array, "E"] | None = None,
    bias: Annotated[Array, "E"] | None = None,
    eps: float = 1e-5,
) -> tuple[Annotated[Array, "… E"], Saved]:
    """Return y = γ ⊙ x̂ (+ β) over the last axis, size E: layer normalisation without the mean.

        1.  s = (1/E) Σ x²
        2.  x̂ = x / √(s + ε)
        3.  y = γ ⊙ x̂ + β

    γ is the weight, β the bias. x, γ, β and y have one float dtype; float16 and bfloat16 are
    computed in float32. A row whose s overflows gives NaN.
    Source: Zhang & Sennrich 2019; torch.nn.functional.rms_norm (no bias).

    >>> import numpy as np
    >>> rms_norm(np.array([3.0, -3.0]), eps=0.0)[0]
    array([ 1., -1.])
    """
    xp = namespace(x, weight, bias)
    wide = widened(x)
    square = xp.mean(wide * wide, axis=-1, keepdims=True)  # 1
    inverse_rms = 1.0 / xp.sqrt(square + own_number(eps))
    inverse_rms = xp.where(xp.isinf(square), xp.full_like(square, float("nan")), inverse_rms)
    x_hat = wide * inverse_rms  # 2
    y = x_hat  # 3
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return narrowed(y, x), Saved(x_hat, inverse_rms, weight, bias is not None)


def rms_norm_backward(
    dy: Annotated[Array, "… E"], saved: Saved
) -> tuple[Annotated[Array, "… E"], Annotated[Array, "E"] | None, Annotated[Array, "E"] | None]:
    """Return dx, dγ = Σ dy ⊙ x̂ and dβ = Σ dy, the sums over all rows; None without γ or β.

    With g = dy ⊙ γ the gradient at x̂ (step 3), and m(·) the mean over the last axis:

        2.  every x receives g / √(s + ε), and ds = −½ Σ g ⊙ x̂ / (s + ε)
        1.  every x receives ds · 2 x / E = −x̂ · m(g ⊙ x̂) / √(s + ε)

    so dx = (g − x̂ ⊙ m(g ⊙ x̂)) / √(s + ε).
    """
    x_hat, inverse_rms, weight, has_bias = saved
    xp = namespace(dy, x_hat)
    given, dy = dy, widened(dy)
    rows = (math.prod(dy.shape[:-1]), dy.shape[-1])
    dbias = xp.sum(xp.reshape(dy, rows), axis=0) if has_bias else None  # 3
    g, dweight = dy, None
    if weight is not None:
        dweight = xp.sum(xp.reshape(dy * x_hat, rows), axis=0)
        g = dy * weight
    mean_gx = xp.mean(g * x_hat, axis=-1, keepdims=True)  # 2, 1
    dx = (g - x_hat * mean_gx) * inverse_rms
    dweight = None if dweight is None else narrowed(dweight, given)
    dbias = None if dbias is None else narrowed(dbias, given)
    return narrowed(dx, given), dweight, dbias

"""Layer normalisation over the last axis."""

import math
from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace, narrowed, own_number, widened

NEARLY_CONSTANT = 2.0**-24
"""Below this σ²/μ² the mean is corrected: its rounding error is then not small compared with σ."""


class Saved(NamedTuple):
    x_hat: Array
    inverse_std: Array
    weight: Array | None
    has_bias: bool


def layer_norm(
    x: Annotated[Array, "… E"],
    weight: Annotated[Array, "E"] | None = None,
    bias: Annotated[Array, "E"] | None = None,
    eps: float = 1e-5,
) -> tuple[Annotated[Array, "… E"], Saved]:
    """Return layer normalisation over the last axis, size E: y = γ ⊙ x̂ + β.

        1.  μ = (1/E) Σ x; for a nearly constant row also + (1/E) Σ (x − μ), the rounding error
        2.  σ² = (1/E) Σ (x − μ)²
        3.  x̂ = (x − μ) / √(σ² + ε)
        4.  y = γ ⊙ x̂ + β

    γ is the weight, β the bias. x, γ, β and y have one float dtype; float16 and bfloat16 are
    computed in float32. A row whose σ² overflows (in float32 from x of about 1e19 on) gives NaN.
    Source: Ba, Kiros, Hinton 2016; article 000.

    >>> import numpy as np
    >>> layer_norm(np.array([1.0, 3.0]), eps=0.0)[0]
    array([-1.,  1.])
    """
    xp = namespace(x, weight, bias)
    wide = widened(x)
    mu = xp.mean(wide, axis=-1, keepdims=True)  # 1
    centred = wide - mu
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    nearly_constant = variance < NEARLY_CONSTANT * mu * mu
    left = xp.mean(centred, axis=-1, keepdims=True)
    centred = centred - xp.where(nearly_constant, left, xp.zeros_like(left))
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)  # 2
    inverse_std = 1.0 / xp.sqrt(variance + own_number(eps))
    # Make an overflow visible as NaN; 1 / √∞ = 0 would silently give a row of β.
    inverse_std = xp.where(xp.isinf(variance), xp.full_like(variance, float("nan")), inverse_std)
    x_hat = centred * inverse_std  # 3
    y = x_hat  # 4
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return narrowed(y, x), Saved(x_hat, inverse_std, weight, bias is not None)


def layer_norm_backward(
    dy: Annotated[Array, "… E"], saved: Saved
) -> tuple[Annotated[Array, "… E"], Annotated[Array, "E"] | None, Annotated[Array, "E"] | None]:
    """Return dx, dγ = Σ dy ⊙ x̂ and dβ = Σ dy, the sums over all rows; None without γ or β.

    With g = dy ⊙ γ the gradient at x̂ (step 4), and m(·) the mean over the last axis:

        3.  dσ² = −½ Σ g ⊙ x̂ / (σ² + ε); every x receives g / √(σ² + ε)
        2.  every x receives dσ² · 2 (x − μ) / E  =  −x̂ · m(g ⊙ x̂) / √(σ² + ε)
        1.  dμ = −Σ g / √(σ² + ε), since σ² adds nothing (Σ (x − μ) = 0); every x receives dμ / E

    so dx = (g − m(g) − x̂ ⊙ m(g ⊙ x̂)) / √(σ² + ε). (The derivation in article 000 omits dy and two
    of the sums.)
    """
    x_hat, inverse_std, weight, has_bias = saved
    xp = namespace(dy, x_hat)
    given, dy = dy, widened(dy)
    rows = (math.prod(dy.shape[:-1]), dy.shape[-1])
    dbias = xp.sum(xp.reshape(dy, rows), axis=0) if has_bias else None  # 4
    g, dweight = dy, None
    if weight is not None:
        dweight = xp.sum(xp.reshape(dy * x_hat, rows), axis=0)
        g = dy * weight
    mean_g = xp.mean(g, axis=-1, keepdims=True)  # 3, 2, 1
    mean_gx = xp.mean(g * x_hat, axis=-1, keepdims=True)
    dx = (g - mean_g - x_hat * mean_gx) * inverse_std
    dweight = None if dweight is None else narrowed(dweight, given)
    dbias = None if dbias is None else narrowed(dbias, given)
    return narrowed(dx, given), dweight, dbias

"""GELU (Gaussian error linear unit), exact or with the tanh approximation."""

import math
from typing import Annotated, NamedTuple

from pellucid.core.array import Array, erf, namespace, narrowed, widened

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715
# Beyond ±40 Φ is exactly 0 or 1 and φ is 0, in float64 too; much further out x³ would overflow, and
# the formulas would give inf · 0.
_TAIL = 40.0


class Saved(NamedTuple):
    x: Array
    approximate: str


def gelu(
    x: Annotated[Array, "…"], approximate: str = "none"
) -> tuple[Annotated[Array, "…"], Saved]:
    """Return x Φ(x), Φ the cumulative normal distribution; shape and dtype of a float `x`.

        approximate = "none":  ½ x (1 + erf(x / √2))
        approximate = "tanh":  ½ x (1 + tanh(u)),  u = √(2/π) (x + 0.044715 x³)

    +inf gives +inf; −inf gives −0, the limit. float16 and bfloat16 are computed in float32. Raises
    `ValueError` on another `approximate`.
    Source: Hendrycks & Gimpel 2016; article 000 uses the tanh form.

    >>> import numpy as np
    >>> gelu(np.array([0.0, 100.0]))[0]
    array([  0., 100.])
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'gelu expects approximate "none" or "tanh", got {approximate!r}')
    xp, wide = namespace(x), widened(x)
    z = xp.clip(wide, -_TAIL, _TAIL)
    gate = 1.0 + (erf(z * math.sqrt(0.5)) if approximate == "none" else xp.tanh(_u(z)))
    y = 0.5 * xp.maximum(wide, xp.full_like(wide, -_TAIL)) * gate
    return narrowed(y, x), Saved(x, approximate)


def gelu_backward(dy: Annotated[Array, "…"], saved: Saved) -> Annotated[Array, "…"]:
    """Return the gradient dx.

    none:  dy (Φ(x) + x φ(x)),  φ(x) = exp(−x²/2) / √(2π)
    tanh:  dy (½ (1 + tanh u) + ½ x (1 − tanh² u) u′),  u′ = √(2/π) (1 + 3 · 0.044715 x²)
    """
    x, approximate = saved
    xp = namespace(dy, x)
    z = xp.clip(widened(x), -_TAIL, _TAIL)
    if approximate == "none":
        density = xp.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return narrowed(dy * (0.5 * (1.0 + erf(z * math.sqrt(0.5))) + z * density), x)
    t = xp.tanh(_u(z))
    slope = _SQRT_2_OVER_PI * (1.0 + 3.0 * _CUBIC * z * z)
    return narrowed(dy * (0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * slope), x)


def _u(x: Array) -> Array:
    return _SQRT_2_OVER_PI * (x + _CUBIC * x * x * x)

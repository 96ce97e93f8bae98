"""GELU, exact and in the tanh form, and its relative SiLU."""

from __future__ import annotations

import math
from typing import NamedTuple

from pellucid.core.array import Array, erf, namespace, narrowed, widened

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715
# Beyond it the gate Φ is exactly 0 or 1 and its slope φ is 0, in float64 too; further out x³ would
# overflow and the formulas come to inf · 0.
_TAIL = 40.0


class Saved(NamedTuple):
    x: Array
    approximate: str


def gelu(x: Array, approximate: str = "none") -> tuple[Array, Saved]:
    """Return x Φ(x), Φ the normal distribution function; shape and dtype of `x`.

        approximate = "none":  ½ x (1 + erf(x / √2))
        approximate = "tanh":  ½ x (1 + tanh(u)),  u = √(2/π) (x + 0.044715 x³)

    +inf gives +inf; −inf gives −0, the limit. float16 is computed in float32. Raises `ValueError`
    on another `approximate`.
    Source: Hendrycks & Gimpel 2016; seed 000 uses the tanh form.

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


def gelu_backward(dy: Array, saved: Saved) -> Array:
    """Return dx.

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


_SILU_TAIL = 1000.0  # beyond it exp(−|x|) is exactly 0, in float64 too


class SiluSaved(NamedTuple):
    x: Array


def _sigmoid(x: Array) -> Array:
    xp = namespace(x)
    e = xp.exp(-xp.abs(x))  # at most 1, so that neither tail overflows
    return xp.where(x < 0, e, xp.ones_like(e)) / (1.0 + e)


def silu(x: Array) -> tuple[Array, SiluSaved]:
    """Return x σ(x), σ the logistic function; shape and dtype of `x`.

    +inf gives +inf; −inf gives −0, the limit. Source: Elfwing et al. 2017.

    >>> import numpy as np
    >>> silu(np.array([0.0, 50.0]))[0]
    array([ 0., 50.])
    """
    xp = namespace(x)
    return xp.maximum(x, xp.full_like(x, -_SILU_TAIL)) * _sigmoid(x), SiluSaved(x)


def silu_backward(dy: Array, saved: SiluSaved) -> Array:
    """Return dx = dy σ(x) (1 + x (1 − σ(x)))."""
    (x,) = saved
    z = namespace(dy, x).clip(x, -_SILU_TAIL, _SILU_TAIL)
    s = _sigmoid(z)
    return dy * s * (1.0 + z * (1.0 - s))

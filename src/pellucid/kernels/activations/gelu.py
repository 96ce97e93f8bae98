"""Exact GELU; see `ops.gelu`. Beyond ±40, Φ is taken as 0 or 1, as in the reference op."""

import math

import numpy as np

from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import clip, exp, normal

_HALF, _TAIL = np.float32(0.5), np.float32(40.0)
_INVERSE_SQRT_2_PI = np.float32(1.0 / math.sqrt(2.0 * math.pi))


@inner(always_inline=True)
def value(x):
    """Return x Φ(x), Φ the cumulative normal distribution."""
    return (-_TAIL if x < -_TAIL else x) * normal(clip(x, _TAIL))


@inner(always_inline=True)
def slope(x):
    """Return Φ(x) + x φ(x), φ the normal density."""
    z = clip(x, _TAIL)
    return normal(z) + z * exp(-_HALF * z * z) * _INVERSE_SQRT_2_PI

"""GELU with the tanh approximation; see `ops.gelu`.

As there, the x in u is clipped to ±40, and the factor x of `value` only from below, to −40.

It uses the logistic function, σ(2u) = ½ (1 + tanh u), which has no cancellation for negative u.
"""

import math

import numpy as np

from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import clip, logistic

_ONE, _TAIL = np.float32(1.0), np.float32(40.0)
_TWICE_SQRT_2_OVER_PI = np.float32(2.0 * math.sqrt(2.0 / math.pi))
_CUBIC, _THREE = np.float32(0.044715), np.float32(3.0)


@inner()
def value(x):
    """Return x σ(2u), u = √(2/π) (x + 0.044715 x³)."""
    return (-_TAIL if x < -_TAIL else x) * logistic(_twice_u(clip(x, _TAIL)))[0]


@inner()
def slope(x):
    """Return σ(2u) + x σ(2u) (1 − σ(2u)) · 2u′, u′ = √(2/π) (1 + 3 · 0.044715 x²)."""
    z = clip(x, _TAIL)
    s, rest = logistic(_twice_u(z))
    return s + z * s * rest * _TWICE_SQRT_2_OVER_PI * (_ONE + _THREE * _CUBIC * z * z)


@inner()
def _twice_u(z):
    """Return 2u."""
    return _TWICE_SQRT_2_OVER_PI * (z + _CUBIC * z * z * z)

"""GELU in the tanh form; see `ops.gelu`. Beyond ±40 the gate is 0 or 1, as in the reference op.

Written with the logistic function, ½ (1 + tanh u) = σ(2u), which does not cancel for negative u.
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
    return _TWICE_SQRT_2_OVER_PI * (z + _CUBIC * z * z * z)

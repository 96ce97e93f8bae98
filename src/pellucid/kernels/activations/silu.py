"""SiLU; see `ops.silu`. x below −1000 counts as −1000, in the slope also x above 1000 as 1000."""

import numpy as np

from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import clip, logistic

_ONE, _TAIL = np.float32(1.0), np.float32(1000.0)


@inner()
def value(x):
    """Return x σ(x), σ the logistic function."""
    return (-_TAIL if x < -_TAIL else x) * logistic(x)[0]


@inner()
def slope(x):
    """Return σ(x) (1 + x (1 − σ(x)))."""
    z = clip(x, _TAIL)
    s, rest = logistic(z)
    return s * (_ONE + z * rest)

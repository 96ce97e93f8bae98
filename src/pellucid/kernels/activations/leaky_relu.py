"""Leaky ReLU with the slope 0.01; see `ops.leaky_relu`."""

import numpy as np

from pellucid.kernels.backend.compile import inner

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_SLOPE = np.float32(0.01)


@inner()
def value(x):
    """Return x where x > 0, else 0.01 x."""
    return x if x > _ZERO else _SLOPE * x


@inner()
def slope(x):
    """Return 1 where x > 0, else 0.01."""
    return _ONE if x > _ZERO else _SLOPE

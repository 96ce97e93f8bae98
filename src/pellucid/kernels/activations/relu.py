"""ReLU; see `ops.relu`."""

import numpy as np

from pellucid.kernels.backend.compile import inner

_ZERO = np.float32(0.0)


@inner()
def value(x):
    """Return max(0, x); NaN stays NaN."""
    return _ZERO if x <= _ZERO else x


@inner()
def gradient_from_output(dy, y):
    """Return dy where y > 0, else 0: y is 0 if x was not positive or y was dropped."""
    return dy if y > _ZERO else _ZERO

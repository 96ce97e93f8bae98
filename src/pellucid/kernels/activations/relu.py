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
    """Return dx: y is 0 exactly if x was negative or y was dropped."""
    return dy if y > _ZERO else _ZERO

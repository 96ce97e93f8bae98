"""silu(x)."""

from pellucid.kernels.activations import SILU, _value
from pellucid.kernels.backend.compile import inner


@inner()
def value(x):
    """silu(x)."""
    return _value(x, SILU)

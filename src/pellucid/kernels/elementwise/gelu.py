"""gelu(x)."""

from pellucid.kernels.activations import GELU, _value
from pellucid.kernels.backend.compile import inner


@inner()
def value(x):
    """gelu(x)."""
    return _value(x, GELU)

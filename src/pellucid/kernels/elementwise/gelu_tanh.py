"""gelu_tanh(x)."""

from pellucid.kernels.activations import GELU_TANH, _value
from pellucid.kernels.backend.compile import inner


@inner()
def value(x):
    """gelu_tanh(x)."""
    return _value(x, GELU_TANH)

"""leaky_relu(x)."""

from pellucid.kernels.activations import LEAKY_RELU, _value
from pellucid.kernels.backend.compile import inner


@inner()
def value(x):
    """leaky_relu(x)."""
    return _value(x, LEAKY_RELU)

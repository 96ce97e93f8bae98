"""The fused kernels, each in a file named after its op; `core.dispatch` finds them there.

Importing this package imports no compiler.
"""

from importlib.util import find_spec

from pellucid.kernels.backend import built
from pellucid.kernels.backend.compile import compiling

__all__ = ["AVAILABLE", "compiling"]

AVAILABLE = find_spec("numba") is not None or built.level() is not None
"""Whether there are kernels for NumPy's arrays: built ones, or Numba, which compiles them."""

"""Fused kernels for NumPy arrays, each in a file named after its op; `core.dispatch` runs them.

Importing this package does not import a compiler.
"""

from importlib.util import find_spec

from pellucid.kernels.backend import built
from pellucid.kernels.backend.compile import compiling

__all__ = ["AVAILABLE", "compiling"]

AVAILABLE = find_spec("numba") is not None or built.level() is not None
"""Whether there are kernels for NumPy's arrays: built ones, or Numba, which compiles them."""

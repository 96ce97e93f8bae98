"""New arrays inside a kernel."""

from __future__ import annotations

from pellucid.kernels.backend.compile import numbas

empty = numbas("pellucid.kernels.backend.numba_text.empty")
"""empty(shape, dtype), as `np.empty`."""

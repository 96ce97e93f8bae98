"""The mathematics: every function with its derivative right under it, and no state anywhere.

`f(x, …) -> (y, saved)` and `f_backward(dy, saved) -> dx, …`. The arrays alone give the dtype: a
number (a scale, a probability) is made Python's float, because NumPy's float64 would widen float32.
NumPy adds float16 up in float16, so that `nn` refuses it; here only GELU and LayerNorm widen it.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_STUB = Path(__file__).with_suffix(".pyi")
_HOMES = {
    alias.name: str(line.module)
    for line in ast.parse(_STUB.read_text(encoding="utf-8")).body
    if isinstance(line, ast.ImportFrom)
    for alias in line.names
}
"""The page of every function: the stub is the one table, for type checkers too."""

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import a function's page when it is first used, so that one page alone loads little else."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pellucid.ops' has no attribute {name!r}")
    function = getattr(import_module(_HOMES[name]), name)
    globals()[name] = function
    return function


class _Ops(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a page sets the module under the name of its function.
        if not (isinstance(value, ModuleType) and name in _HOMES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Ops

"""Import llvmlite, or a placeholder if it is not installed (all kernels are then `built`)."""

import importlib
from typing import Any


class _Absent:
    """Placeholder for llvmlite's types and functions, which modules mention when imported."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()


try:
    VERSION: Any = importlib.import_module("llvmlite").__version__
    binding: Any = importlib.import_module("llvmlite.binding")
    ir: Any = importlib.import_module("llvmlite.ir")
except ModuleNotFoundError:
    VERSION, binding, ir = None, _Absent(), _Absent()

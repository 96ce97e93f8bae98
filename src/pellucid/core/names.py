"""The public names of a package, read from its stub file, which type checkers read as well."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def exported(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return the `__all__` and `__getattr__` of a package whose stub (.pyi) imports its names.

    A name is imported when it is first used, so that importing the package stays fast.

    >>> from pellucid import ops
    >>> names, attribute = exported("pellucid.ops", ops.__file__)
    >>> "softmax" in names, attribute("softmax").__module__
    (True, 'pellucid.ops.softmax')
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {
        alias.name: str(line.module)
        for line in stub.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }

    class Package(ModuleType):
        def __dir__(self) -> list[str]:  # what completion in a notebook offers
            return sorted({*super().__dir__(), *homes})

        def __setattr__(self, name: str, value: Any) -> None:
            # Importing pellucid.ops.softmax sets the attribute `softmax` of the package to that
            # module, which would hide the function of the same name.
            own = isinstance(value, ModuleType) and homes.get(name) == value.__name__
            super().__setattr__(name, getattr(value, name) if own else value)

    sys.modules[package].__class__ = Package

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(homes), attribute

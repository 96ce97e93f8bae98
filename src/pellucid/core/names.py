"""The public names of a package: its stub is the one table, for type checkers and for Python."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def exported(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return a package's `__all__` and `__getattr__`, by the imports of its stub.

    A name is imported when it is first used, so that one module alone loads little else.

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
            # Python puts a module here when it is first imported; one that has the name of what it
            # holds would hide that.
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

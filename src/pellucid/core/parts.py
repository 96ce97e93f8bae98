"""Registries of parts (activations, norms, optimizers, …), and how users add parts of their own.

A `Registry` has parts by name: `ACTIVATIONS`, `NORMS`, `POSITIONS`, `FUNCTIONS`, `OPTIMIZERS`,
`SCHEDULES`, `METRICS`, `CORPORA` or `TASKS`. A user's file or module adds parts when it is
imported. It is named by `--import`, by the environment variable PELLUCID_IMPORT (inherited by child
processes), or by an entry point "pellucid.parts" of an installed package. A model folder only names
its parts, and a run folder the files that it was started with: reading either runs no code.
"""

import os
import sys
import traceback
from collections.abc import Hashable
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from pellucid.core.errors import UsageError

T = TypeVar("T")

VARIABLE = "PELLUCID_IMPORT"
"""Environment variable: files and modules, separated as the folders of PATH are."""
GIVE = "`import` FILE reads a Python file that defines it"


def use(part: str) -> None:
    """Import a user's Python file or module, and name it to processes that this one starts.

    They import it when a name is not in a `Registry`. Raises `UsageError` if the import fails; it
    names the file or module, and in a file the line that failed.
    """
    if part.endswith(".py"):
        part = str(Path(part).absolute())
    read(part)
    if part not in (parts := imported()):
        os.environ[VARIABLE] = os.pathsep.join([*parts, part])


class Registry(dict[str, T]):
    """A dict of parts by name. For an unknown name it first imports the user's parts, once.

    Iterating over it does not import them.

    >>> shapes = Registry(relu=1)
    >>> shapes["relu"], "rel" in shapes, shapes.get("rel")
    (1, False, None)
    """

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, Hashable):
            return False
        if not super().__contains__(name):
            read_all()
        return super().__contains__(name)

    def __missing__(self, name: str) -> T:
        if name in self:
            return self[name]
        raise KeyError(name)

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the part of this name, or the default."""
        return super().get(name, default) if name in self else default

    def find(self, name: str, setting: str) -> T:
        """Return the part of this name; `setting` is the setting that had the name, for the error.

        Raises `UsageError` listing the known names if there is no such part.

        >>> Registry(relu=1).find("relu", "activation_function")
        1
        """
        from pellucid.core.settings import nearest  # here, because that module imports this one

        if name not in self:
            known = ", ".join(self) or "none"
            raise UsageError(
                f"{setting} = {name!r} is not known{nearest(name, self)}; there are: {known}. "
                + GIVE
            )
        return self[name]


def imported() -> list[str]:
    """Return the user's files and modules that PELLUCID_IMPORT names."""
    return [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]


def imports() -> tuple[str, ...]:
    """Return `imported` as a tuple; paths below the current folder are relative to it."""
    here, parts = Path.cwd(), map(Path, imported())
    return tuple(str(p.relative_to(here) if p.is_relative_to(here) else p) for p in parts)


@cache
def read_all() -> None:
    """Import the parts that PELLUCID_IMPORT names, and those of installed packages, once."""
    from importlib.metadata import entry_points

    for part in imported():
        read(part)
    for point in entry_points(group="pellucid.parts"):
        point.load()


@cache
def read(part: str) -> None:
    """Import a module, or a Python file by its path.

    A second call with the same text does nothing. Raises `UsageError` for an `Exception` in the
    import; the next call then tries again.
    """
    path = Path(part)
    try:
        if not part.endswith(".py"):
            import_module(part)
            return
        spec = spec_from_file_location(f"pellucid_part_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None  # it ends in .py
        if (folder := str(path.parent)) not in sys.path:  # so that it can import its neighbours
            sys.path.append(folder)
        module = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        trace = traceback.extract_tb(error.__traceback__)
        lines = [at.lineno for at in trace if at.filename == part]
        where = f"{part}, line {lines[-1]}" if lines else part
        raise UsageError(f"`import` {where}: {type(error).__name__}: {error}") from error

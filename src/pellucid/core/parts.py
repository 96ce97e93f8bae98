"""Parts of a user's own: files and modules that put them into the registries when they are read.

A `Registry` has parts by name: `ACTIVATIONS`, `NORMS`, `FUNCTIONS`, `OPTIMIZERS`, `METRICS`,
`CORPORA` or `TASKS`. Parts come from `--import`, from PELLUCID_IMPORT, which processes that a
command starts inherit, and from the entry points "pellucid.parts" of installed packages. A model
folder only names them, and a run the files that it was started with: reading one runs no code.
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
    """Read a Python file or import a module, now and in processes that this one starts.

    Raises `UsageError` naming what is missing, or the line that failed.
    """
    if part.endswith(".py"):
        part = str(Path(part).absolute())
    read(part)
    if part not in (parts := imported()):
        os.environ[VARIABLE] = os.pathsep.join([*parts, part])


class Registry(dict[str, T]):
    """Parts by name. The user's own are read before the answer about a name is no.

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
        """Return a part, or the default."""
        return super().get(name, default) if name in self else default

    def find(self, name: str, setting: str) -> T:
        """Return a part by its name. Raises `UsageError` naming the setting and what there is.

        >>> Registry(relu=1).find("relu", "activation_function")
        1
        """
        from pellucid.core.settings import nearest  # whose names ask here for parts

        if name not in self:
            known = ", ".join(self) or "none"
            raise UsageError(
                f"{setting} = {name!r} is not known{nearest(name, self)}; there are: {known}. "
                + GIVE
            )
        return self[name]


def imported() -> list[str]:
    """Return the files and modules in use."""
    return [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]


def imports() -> tuple[str, ...]:
    """Return the files, as they are named from here, and modules in use."""
    here, parts = Path.cwd(), map(Path, imported())
    return tuple(str(p.relative_to(here) if p.is_relative_to(here) else p) for p in parts)


@cache
def read_all() -> None:
    """Read the parts that PELLUCID_IMPORT names and those of installed packages."""
    from importlib.metadata import entry_points

    for part in imported():
        read(part)
    for point in entry_points(group="pellucid.parts"):
        point.load()


@cache
def read(part: str) -> None:
    """Read a Python file or import a module, once, in this process."""
    path = Path(part)
    try:
        if not part.endswith(".py"):
            import_module(part)
            return
        spec = spec_from_file_location(f"pellucid_part_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None  # it ends in .py
        if (folder := str(path.parent)) not in sys.path:  # the files beside it, as Python's own
            sys.path.append(folder)
        module = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        trace = traceback.extract_tb(error.__traceback__)
        lines = [at.lineno for at in trace if at.filename == part]
        where = f"{part}, line {lines[-1]}" if lines else part
        raise UsageError(f"`import` {where}: {type(error).__name__}: {error}") from error

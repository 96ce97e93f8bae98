"""Parts of a user's own: files and modules that put them into the registries when they are read.

A registry is a dict by name: `ACTIVATIONS`, `NORMS`, `FUNCTIONS`, `OPTIMIZERS`, `METRICS`,
`CORPORA` or `TASKS`. Parts come from `--import`, from PELLUCID_IMPORT, which processes that a
command starts inherit, and from the entry points "pellucid.parts" of installed packages. A model
folder only names them: reading one runs no code.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Hashable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from pellucid.core.errors import UsageError

T = TypeVar("T")

VARIABLE = "PELLUCID_IMPORT"
"""Of the environment: files and modules, between them what separates the folders of PATH."""


def use(part: str) -> None:
    """Read a Python file or import a module, now and in processes that this one starts.

    Raises `UsageError` naming what is missing, or the line that failed.
    """
    if part.endswith(".py"):
        part = str(Path(part).absolute())
    _read(part)
    parts = os.environ.get(VARIABLE, "").split(os.pathsep)
    if part not in parts:
        os.environ[VARIABLE] = os.pathsep.join(filter(None, [*parts, part]))


def find(registry: Mapping[str, T], name: str, setting: str) -> T:
    """Return a part by its name. Raises `UsageError` naming the setting and what there is.

    >>> find({"relu": 1}, "relu", "activation_function")
    1
    """
    from pellucid.core.settings import nearest  # which asks here for parts

    if not has(registry, name):
        known = ", ".join(registry) or "none"
        raise UsageError(
            f"{setting} = {name!r} is not known{nearest(name, registry)}; there are: {known}. "
            "`--import FILE` reads a Python file that defines it"
        )
    return registry[name]


def has(registry: Mapping[str, Any], name: object) -> bool:
    """Return whether a registry has a part; the user's are read before the answer is no."""
    if not isinstance(name, Hashable):
        return False
    if name not in registry:
        read_all()
    return name in registry


@cache
def read_all() -> None:
    """Read the parts that PELLUCID_IMPORT names and those of installed packages."""
    from importlib.metadata import entry_points

    for part in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        _read(part)
    for point in entry_points(group="pellucid.parts"):
        point.load()


@cache
def _read(part: str) -> None:
    path = Path(part)
    try:
        if not part.endswith(".py"):
            import_module(part)
            return
        spec = spec_from_file_location(f"pellucid_part_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None  # it ends in .py
        module = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        trace = traceback.extract_tb(error.__traceback__)
        lines = [at.lineno for at in trace if at.filename == part]
        where = f"{part}, line {lines[-1]}" if lines else part
        raise UsageError(f"--import {where}: {type(error).__name__}: {error}") from error

"""Errors that the user can fix. The command line prints their message and no traceback."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any


class UserError(Exception):
    """Something the user can fix: the message says what was expected, what came, what to do.

    The command line exits with 1.
    """


class UsageError(UserError):
    """Wrong use of a command or of a setting. The command line exits with 2."""


def optional(
    module: str, message: str, error: type[UserError] = UserError, *, extra: str | None = None
) -> Any:
    """Import a module that not every installation has, or raise `error` with the message.

    The message of a module that is installed but cannot be imported also says why. With `extra`,
    the extra of Pellucid that has the module, it says how to install that.

    >>> optional("math", "the standard library is not installed").pi > 3
    True
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        install = f": pip install '{installable(extra)}'" if extra else ""
        absent = isinstance(cause, ModuleNotFoundError) and module.startswith(cause.name or module)
        why = "" if absent else f" ({cause})"
        raise error(f"{message}{install}{why}") from None


def installable(extra: str) -> str:
    """Return what pip installs to add an extra: this checkout, or else the published package."""
    checkout = Path(__file__).parents[3]
    if not (checkout / "pyproject.toml").is_file():
        return f"pellucid[{extra}]"
    return f"{'.' if checkout == Path.cwd() else checkout}[{extra}]"

"""Faults that the user can mend. The command line prints their message; no traceback is shown."""

from __future__ import annotations

import importlib
from typing import Any


class UserError(Exception):
    """Something the user can mend: the message says what was expected, what came, what to do.

    The command line exits with 1.
    """


class UsageError(UserError):
    """Wrong use of a command or of a setting. The command line exits with 2."""


def optional(module: str, message: str, fault: type[UserError] = UserError) -> Any:
    """Import a module that not every installation has, or raise `fault` with the message.

    A module that is there and cannot be imported has its own words added.

    >>> optional("math", "the standard library is not installed").pi > 3
    True
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and module.startswith(error.name or module)
        raise fault(message if absent else f"{message} ({error})") from None

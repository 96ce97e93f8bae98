"""Errors that the user can fix. The command line prints their message and no traceback."""

import importlib
import shlex
import sys
from contextlib import suppress
from typing import Any


class UserError(Exception):
    """Something the user can fix: the message says what was expected, what came, what to do.

    The command line exits with 1.
    """


class UsageError(UserError):
    """Wrong use of a command or of a setting. The command line exits with 2."""


EXTRAS = {
    "train": ("filelock", "pooch", "rapidfuzz", "threadpoolctl", "tokenizers", "tomli_w"),
    "cli": ("rich", "tyro"),
    "kernels": ("llvmlite", "numba"),
}
"""The modules that an extra installs, of those that are imported without a message of their own."""


def optional(
    module: str, message: str, error: type[UserError] = UserError, *, extra: str | None = None
) -> Any:
    """Import a module that not every installation has, or raise `error` with the message.

    The message of a module that is installed but cannot be imported also says why. With `extra`,
    the extra of Pellucid that has the module, it says how to install what that requires.

    >>> optional("math", "the standard library is not installed").pi > 3
    True
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        how = f": {install(extra, module)}" if extra else ""
        absent = isinstance(cause, ModuleNotFoundError) and module.startswith(cause.name or module)
        why = "" if absent else f" ({cause})"
        raise error(f"{message}{how}{why}") from None


def without(error: ModuleNotFoundError) -> str:
    """Say how to install a module that is not there; "" where no extra of Pellucid has it.

    >>> without(ModuleNotFoundError(name="tyro.conf")).startswith("this needs tyro, which is not")
    True
    """
    module = str(error.name).partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra is None:
        return ""
    return f"this needs {module}, which is not installed: {install(extra, module)}"


def install(extra: str, module: str = "") -> str:
    """Return the command that installs what an extra requires, the package of `module` first."""
    name = module.partition(".")[0]
    return pip_install(*sorted(_requirements(extra), key=lambda line: not line.startswith(name)))


def pip_install(*packages: str) -> str:
    """Return the command that installs packages for the Python that runs, from any folder."""
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


def _requirements(extra: str) -> list[str]:
    """Return the packages of an extra by name: Pellucid itself may be on no index."""
    from importlib.metadata import PackageNotFoundError, requires

    known: list[str] = []
    with suppress(PackageNotFoundError):  # run from its sources
        known = requires("pellucid") or []
    mark = f"extra == '{extra}'"
    found = [line.removesuffix(mark) for line in known if line.endswith(mark)]
    found = [line.removesuffix("; ").removesuffix(" and ").replace("'", '"') for line in found]
    if "pellucid[train]" in found:  # of the command line, which all the others have
        found = [*found, *_requirements("train")]
    found = [line for line in found if not line.startswith("pellucid[")]
    return found or [f"pellucid[{extra}]"]

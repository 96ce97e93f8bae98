"""Errors that the user can fix. The command line prints the message without a traceback."""

import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class UserError(Exception):
    """An error that the user can fix: the message says what was expected, what came, what to do.

    The command line exits with code 1.
    """


class UsageError(UserError):
    """Wrong use of a command or of a setting. The command line exits with code 2."""


@contextmanager
def raised_as(error: type[UserError], *caught: type[Exception], where: str = "") -> Iterator[None]:
    """Raise the errors `caught` in a `with` as another one; where: what goes before the message."""
    try:
        yield
    except caught as cause:
        raise error(f"{where}: {cause}" if where else str(cause)) from None


EXTRAS = {
    "train": ("filelock", "pooch", "rapidfuzz", "threadpoolctl", "tokenizers", "tomli_w"),
    "cli": ("rich", "tyro"),
    "kernels": ("llvmlite", "numba"),
}
"""For each extra of Pellucid, the modules it installs that are imported without a check.

When one of them is missing, `without` turns the `ModuleNotFoundError` into a message.
"""


def optional(
    module: str, message: str, error: type[UserError] = UserError, *, extra: str | None = None
) -> Any:
    """Import an optional module; if that fails, raise `error` with the message.

    For a module that is installed but cannot be imported, the message also says why. `extra` names
    the extra of Pellucid that requires the module: the message then gives its install command.

    >>> optional("math", "the standard library is not installed").pi > 3
    True
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        how = f": {install(extra, module)}" if extra else ""
        absent = isinstance(cause, ModuleNotFoundError)
        absent = absent and f"{module}.".startswith(f"{cause.name or module}.")
        why = "" if absent else f" ({cause})"
        raise error(f"{message}{how}{why}") from None


def without(error: ModuleNotFoundError) -> str:
    """Return a message that says how to install a missing module; "" if no extra requires it.

    >>> without(ModuleNotFoundError(name="tyro.conf")).startswith("this needs tyro, which is not")
    True
    """
    module = str(error.name).partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra is None:
        return ""
    return f"this needs {module}, which is not installed: {install(extra, module)}"


def install(extra: str, module: str = "") -> str:
    """Return the `pip install` command for an extra's packages.

    With `module`, the package of that name, if there is one, comes first; of the others only those
    that are not installed are named.
    """
    from importlib.metadata import distributions

    name = module.partition(".")[0]
    there = {str(each.name).lower().replace("_", "-") for each in distributions()}
    wanted = sorted(_requirements(extra), key=lambda line: not line.startswith(name))
    missing = [x for x in wanted if x.startswith(name) or re.split(r"[^\w.-]", x)[0] not in there]
    return pip_install(*(missing or wanted))


def pip_install(*packages: str) -> str:
    """Return the `pip install` command for these packages and the running Python."""
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


def _requirements(extra: str) -> list[str]:
    """Return the packages that an extra requires.

    They are named one by one, since `pip install 'pellucid[extra]'` needs Pellucid on an index.
    """
    from importlib.metadata import PackageNotFoundError, requires

    known: list[str] = []
    with suppress(PackageNotFoundError):  # run from its sources
        known = requires("pellucid") or []
    mark = f"extra == '{extra}'"
    found = [line.removesuffix(mark) for line in known if line.endswith(mark)]
    found = [line.removesuffix("; ").removesuffix(" and ").replace("'", '"') for line in found]
    if "pellucid[train]" in found:  # the extra `cli`, which others contain, contains `train`
        found = [*found, *_requirements("train")]
    found = [line for line in found if not line.startswith("pellucid[")]
    return found or [f"pellucid[{extra}]"]

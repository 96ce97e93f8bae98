"""Where machine code is kept, and when it is out of date.

The stamp is a digest of code: of the kernel's own module and of every kernel module that it
imports, directly or not, without comments, docstrings and line numbers. So neither a comment nor an
update that touches no kernel compiles anything again, and an edit of another file that the kernel
calls does. A damaged file is as good as none.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.kernels.backend.machine_code import TARGET

_log = logging.getLogger(__name__)

_PACKAGES = ("pellucid.kernels", "pellucid.compiled")
"""Where code that is compiled comes from; other modules are called from Python only."""
_BYTES = 32  # of a file's digest


@cache
def folder() -> Path | None:
    """Return the folder of machine code; None where there is none that can be written.

    It is NUMBA_CACHE_DIR, else the package's `__pycache__`, else the user's cache folder.
    """
    own = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    users = Path(home) if home else Path("~/.cache").expanduser()
    package = Path(__file__).parents[1] / "__pycache__"
    for path in [Path(own)] if own else [package, users / "pellucid"]:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK | os.X_OK):
            return path
    _log.warning(
        "there is no folder to cache the compiled kernels in, so they are compiled again at every "
        "start; set NUMBA_CACHE_DIR to a folder that can be written"
    )
    return None


class Entry(NamedTuple):
    """A kernel in the cache: a file for each name and processor, behind a digest of all of it.

    The digest is also of the kernel's code and of LLVM's version: machine code with a wrong bit
    would be run.
    """

    name: str
    digest: str

    def load(self) -> tuple[list[str], bytes] | None:
        """Return what was saved; None where there is no sound file of this code."""
        path = self._path()
        try:
            # a device would be read for ever
            saved = path.read_bytes() if path is not None and path.is_file() else b""
        except OSError:
            return None
        content = saved[_BYTES:]
        if saved[:_BYTES] != self._sum(content):
            return None
        calls, _, code = content.partition(b"\n")
        return calls.decode().split(), code

    def save(self, calls: list[str], code: bytes) -> None:
        """Keep machine code and the names of what it calls; a reader finds all of it or none."""
        path = self._path()
        if path is None:
            return
        content = " ".join(calls).encode() + b"\n" + code
        own = path.with_suffix(f".{os.getpid()}")
        try:
            own.write_bytes(self._sum(content) + content)
            own.replace(path)
        except OSError as error:
            _log.debug("%s: a kernel cannot be kept: %s", path, error)

    def _path(self) -> Path | None:
        where = folder()
        number = hashlib.blake2b(repr((self.name, TARGET[1:])).encode(), digest_size=8).hexdigest()
        return where and where / f"{'.'.join(self.name.split('.')[2:]) or self.name}.{number}.o"

    def _sum(self, content: bytes) -> bytes:
        made_of = f"{self.digest} {TARGET[0]}\n".encode()
        return hashlib.blake2b(made_of + content, digest_size=_BYTES).digest()


def code_digest(modules: frozenset[str]) -> str:
    """Return a digest of the code of modules and of the kernel modules that they import.

    Raises `OSError` where there is no source code.
    """
    seen: dict[str, str] = {}
    left = sorted(modules)
    while left:
        name = left.pop()
        if name not in seen:
            seen[name], imported = _read(name)
            left += imported
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


@cache
def _read(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a module's code, and the kernel modules that it imports."""
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    imported = tuple(sorted(set(_imports(tree.body))))
    _strip_docstrings(tree)
    return hashlib.sha256(repr(_outline(tree)).encode()).hexdigest(), imported


def _outline(node: Any) -> Any:
    """Return a tree of code as lists, alike in every version of Python: without empty fields."""
    if isinstance(node, ast.AST):
        fields = [(name, _outline(value)) for name, value in ast.iter_fields(node)]
        return type(node).__name__, [field for field in fields if field[1] not in (None, [])]
    return [_outline(one) for one in node] if isinstance(node, list) else node


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the kernel modules that a module's statements import; ours are imported absolutely."""
    for statement in body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            names = [f"{statement.module}.{alias.name}" for alias in statement.names]
        else:
            continue
        for name in names:
            if name.startswith(_PACKAGES):
                # `from package import module`, else `from module import function`
                yield name if name in sys.modules else name.rpartition(".")[0]


def _strip_docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> None:
    match node.body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            node.body = rest or [ast.Pass()]
    for statement in node.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            _strip_docstrings(statement)

"""Cache the machine code of kernels on disk, and detect when it is out of date.

An entry is valid for a digest of code: that of the kernel's module and of all kernel modules that
it imports, directly or not, without comments, docstrings and line numbers. So a changed comment
does not compile anything again, and a change in a file that the kernel calls does. A damaged file
is ignored.
"""

import ast
import hashlib
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.kernels.backend.machine_code import TARGET

_log = logging.getLogger(__name__)

_PACKAGES = ("pellucid.kernels", "pellucid.compiled")
"""Where code that is compiled comes from; other modules are called from Python only."""
_COMPILER = "pellucid.kernels.backend.numba_text"
"""Module of the compiler, whose source counts for every kernel although none imports it."""
_BYTES = 32  # of a file's digest
_KNOWN = "sources"


@cache
def folder() -> Path | None:
    """Return the folder for machine code; None if no folder can be written.

    If NUMBA_CACHE_DIR is set, only that folder is tried. Otherwise it is the `__pycache__` of
    `pellucid.kernels`, or if that cannot be written, `pellucid` in the user's cache folder. The
    folder is made if needed.
    """
    own = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    paths = [Path(own)] if own else [Path(__file__).parents[1] / "__pycache__"]
    if not own:
        with suppress(RuntimeError):  # a user without a home: no HOME, and in no password file
            paths.append((Path(home) if home else Path.home() / ".cache") / "pellucid")
    for path in paths:
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
    """A kernel's place in the cache, a file for each kernel and processor.

    The file begins with a checksum of its content, of the code's digest and of LLVM's version,
    since damaged or outdated machine code must not run.
    """

    name: str
    digest: str

    def load(self) -> tuple[list[str], bytes] | None:
        """Return the names of the kernels it calls, and its machine code; None if not cached."""
        content = _load(self._file(), self._made_of())
        if content is None:
            return None
        calls, _, code = content.partition(b"\n")
        return calls.decode().split(), code

    def save(self, calls: list[str], code: bytes) -> None:
        """Store machine code, and the names of the kernels that it calls."""
        _keep(self._file(), self._made_of(), " ".join(calls).encode() + b"\n" + code)

    def _file(self) -> str:
        number = hashlib.blake2b(repr((self.name, TARGET[1:])).encode(), digest_size=8).hexdigest()
        return f"{'.'.join(self.name.split('.')[2:]) or self.name}.{number}.o"

    def _made_of(self) -> str:
        return f"{self.digest} {TARGET[0]}"


def _load(name: str, made_of: str) -> bytes | None:
    """Read a file of the cache; return None if it is missing, damaged or of other code."""
    where = folder()
    path = where and where / name
    try:
        # a device would be read for ever
        saved = path.read_bytes() if path is not None and path.is_file() else b""
    except OSError:
        return None
    content = saved[_BYTES:]
    return content if saved[:_BYTES] == _sum(made_of, content) else None


def _keep(name: str, made_of: str, content: bytes) -> None:
    """Write a file of the cache atomically: a checksum of `made_of` and the content, then it.

    `made_of` is the text that the content depends on. A failure is only logged.
    """
    where = folder()
    if where is None:
        return
    path = where / name
    own = path.with_suffix(f".{os.getpid()}")
    try:
        own.write_bytes(_sum(made_of, content) + content)
        own.replace(path)
    except OSError as error:
        _log.debug("%s: cannot be kept: %s", path, error)
        with suppress(OSError):
            own.unlink(missing_ok=True)


def _sum(made_of: str, content: bytes) -> bytes:
    """Return the checksum of a file of the cache."""
    return hashlib.blake2b(f"{made_of}\n".encode() + content, digest_size=_BYTES).digest()


def code_digest(modules: frozenset[str]) -> str:
    """Return a digest of the code of modules, and of the kernel modules that they import.

    Raises `OSError` if there is no source code.
    """
    seen: dict[str, str] = {}
    left, known = [*sorted(modules), _COMPILER], len(_known())
    while left:
        name = left.pop()
        if name not in seen:
            seen[name], imported = _read(name)
            left += imported
    if len(_known()) > known:
        _keep(_KNOWN, _KNOWN, json.dumps(_known()).encode())
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


@cache
def _known() -> dict[str, tuple[str, list[str]]]:
    """Return cached results of `_read`, by file digest.

    This halves the time of a start.
    """
    found: dict[str, tuple[str, list[str]]] = json.loads(_load(_KNOWN, _KNOWN) or b"{}")
    return found


@cache
def _read(name: str) -> tuple[str, list[str]]:
    """Return the digest of a module's code, and the kernel modules that it imports."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise OSError(f"{name} has no source code")
    source = Path(spec.origin).read_bytes()
    number = hashlib.blake2b(source, digest_size=_BYTES).hexdigest()
    if number not in _known():
        tree = ast.parse(source)
        imported = sorted(set(_imports(tree.body)))
        _strip_docstrings(tree)
        digest = hashlib.sha256(repr(_outline(tree)).encode()).hexdigest()
        _known()[number] = digest, imported
    return _known()[number]


def _outline(node: Any) -> Any:
    """Convert a syntax tree to nested lists, the same in every version of Python.

    Empty fields, by which the versions differ, are left out.
    """
    if isinstance(node, ast.AST):
        fields = [(name, _outline(value)) for name, value in ast.iter_fields(node)]
        return type(node).__name__, [field for field in fields if field[1] not in (None, [])]
    return [_outline(one) for one in node] if isinstance(node, list) else node


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the kernel modules that a module imports (always by absolute names)."""
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
    """Remove the docstrings of a module, its classes and its functions from the tree."""
    match node.body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            node.body = rest or [ast.Pass()]
    for statement in node.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            _strip_docstrings(statement)

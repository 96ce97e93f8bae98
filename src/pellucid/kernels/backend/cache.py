"""Where compiled kernels are kept, and when one is out of date.

Numba stamps a cached kernel with the time and size of its source file and finds it by its line, so
a comment recompiles a whole file, and an edit of another file that the kernel calls goes unnoticed.
Here the stamp is a digest of code: of the kernel's own module and of every kernel module that
it imports, directly or not, without comments, docstrings and line numbers.

A kernel that is not in the cache, or whose file is damaged, is compiled from the text that comes
with the package, if its digest is the same, else from its source.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

from pellucid.kernels.backend import prepared

_PACKAGES = ("pellucid.kernels", "pellucid.compiled")
"""Where code that is compiled comes from; other modules are called from Python only."""
_DIGEST = 32  # bytes


class _Files(IndexDataCacheFile):
    """A file for each signature and processor, behind a digest of Numba's version, code and bytes.

    Numba runs what its files hold, machine code with a wrong bit too, and looks them up in an
    index, which may be damaged as well. Here a file's name says what it is for.
    """

    def save(self, key: Any, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._path(key)) as file:
            file.write(self._digest(content) + content)

    def load(self, key: Any) -> Any:
        """Return what was saved; None where there is no sound file of this code and this Numba."""
        try:
            saved = self._path(key).read_bytes()
        except OSError:
            return None
        digest, content = saved[:_DIGEST], saved[_DIGEST:]
        return pickle.loads(content) if digest == self._digest(content) else None

    def _path(self, key: Any) -> Path:
        number = hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()
        return Path(self._data_path(self._data_name(int(number, 16))))

    def _digest(self, content: bytes) -> bytes:
        made_by = f"{self._version} {self._source_stamp}".encode()
        return hashlib.blake2b(made_by + content, digest_size=_DIGEST).digest()


class Uncached(NullCache):
    """No cache: a kernel is compiled at every start, from prepared text where there is one."""

    def __init__(self, f: Callable[..., Any], digest: str) -> None:
        self._key = full_name(f), digest

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return prepared.load(*self._key, target_context)


class KernelCache(FunctionCache):
    """Numba's cache of one function; `missing` is called where it does not have a signature.

    `digest` is that of its code. Raises `RuntimeError` where Numba finds no folder that can be
    written.
    """

    def __init__(self, f: Callable[..., Any], digest: str, missing: Callable[[], None]) -> None:
        super().__init__(f)
        python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        name = f"{f.__module__.rpartition('.')[2]}.{f.__qualname__}.{python}"
        self._cache_file = _Files(self._cache_path, name.replace("<", "").replace(">", ""), digest)
        self._key, self._missing = (full_name(f), digest), missing

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        """The signature and the processor; the code is in the stamp."""
        return sig, codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None:
            self._missing()
            found = prepared.load(*self._key, target_context)
            if found is not None:
                self.save_overload(sig, found)
        return found


def full_name(f: Callable[..., Any]) -> str:
    """Return the module and name of a kernel's function; every kernel has its own."""
    return f"{f.__module__}.{f.__qualname__}"


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
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imported


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

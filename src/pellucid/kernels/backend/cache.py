"""Where compiled kernels are kept, and when one is out of date.

Numba stamps a cached kernel with the time and size of its source file and finds it by its line, so
a comment recompiles a whole file, and an edit of another file that the kernel calls goes unnoticed.
Here the stamp is a digest of code: of the kernel's own module and of every kernel module that
it imports, directly or not, without comments, docstrings and line numbers.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pickle import UnpicklingError
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

_PACKAGES = ("pellucid.kernels", "pellucid.compiled")
"""Where code that is compiled comes from; other modules are called from Python only."""


class _Index(IndexDataCacheFile):  # type: ignore[misc]
    """Numba's index of the kernels of one function, which may name records of another version."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, EOFError, ImportError, UnpicklingError):
            return {}


class KernelCache(FunctionCache):
    """Numba's cache of one function; `missing` is called where it does not have a signature.

    `modules` names where the function's code comes from. Raises `RuntimeError` where Numba finds
    no folder that can be written, `OSError` where there is no source code.
    """

    def __init__(
        self, f: Callable[..., Any], modules: frozenset[str], missing: Callable[[], None]
    ) -> None:
        super().__init__(f)
        python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        name = f"{f.__module__.rpartition('.')[2]}.{f.__qualname__}.{python}"
        self._cache_file = _Index(
            self._cache_path, name.replace("<", "").replace(">", ""), code_digest(modules)
        )
        self._missing = missing

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        """The signature and the processor; the code is in the stamp."""
        return sig, codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None:
            self._missing()
        return found


def code_digest(modules: frozenset[str]) -> str:
    """Return a digest of the code of modules and of the kernel modules that they import."""
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

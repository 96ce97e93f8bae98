"""How a kernel is compiled: for this processor, once, before its first call.

Every kernel states its signature, so nothing is compiled that is not used and a wrong dtype is an
error instead of another compilation. Numba makes text in LLVM's language of it (`numba_text`),
which comes with the package for the kernels of the recipes (`prepared`); LLVM makes machine code of
the text (`machine_code`), which is kept (`cache`).
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.kernels.backend.machine_code import Value

compiling = threading.RLock()
"""Held while kernels are imported or compiled; Numba compiles in one thread at a time anyway.

A fork waits for it. A child has only the thread that forked: a lock that another thread held in
that moment (this one, Numba's or that of a module being imported) would stay locked for ever.
"""

_log = logging.getLogger(__name__)
_held: list[Any] = []


def _before_fork() -> None:
    compiling.acquire()
    numba = sys.modules.get("numba.core.compiler_lock")
    # after ours, as everywhere; a program may compile functions of its own
    theirs = getattr(numba, "global_compiler_lock", None)
    if theirs is not None:
        theirs.acquire()
    _held.append(theirs)


def _after_fork() -> None:
    theirs = _held.pop()
    if theirs is not None:
        theirs.release()
    compiling.release()


# The hooks before a fork run last registered first. logging's takes its lock, which an import that
# we wait for may need: ours must come before it, and so be registered after it, at its import.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )

FAST = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})
"""Reordering allowed in sums, so that they vectorise. inf and NaN keep their meaning."""
EXACT = frozenset({"contract"})
"""Operations stay in the order written; a product may be fused into the sum that takes it."""

named: dict[str, Kernel] = {}
"""The functions that kernels call by their names."""


class RefusedError(Exception):
    """Numba cannot compile a function; the message says why."""


class NoCompilerError(RefusedError):
    """Numba is not installed."""


class Inner:
    """A function that kernels call. Numba learns of it only when a kernel is compiled from source.

    So a process that finds its kernels in the cache does without Numba, whose import takes longer
    than a short answer.
    """

    def __init__(self, f: Callable[..., Any], make: Callable[[], Any]) -> None:
        self.py_func, self._make = f, make
        self.__module__ = f.__module__

    @cached_property
    def made(self) -> Any:
        """Numba's version of the function."""
        return self._make()


_ANY = "kernels that this command is the first to need"


@cache
def announce(what: str = _ANY) -> None:
    """Say once that kernels are compiled; where they cannot be kept, the cache has said so."""
    from pellucid.kernels.backend import cache, prepared

    if cache.folder() is None:
        return
    why = prepared.lacking() if what == _ANY else None
    if why is None:
        _log.info("compiling %s; they are kept", what)
    else:
        _log.info("compiling kernels, up to a minute, once: %s", why)


class Kernel:
    """A function of arrays and numbers, for one signature; it runs without the GIL.

    Python calls it, or another kernel does by its name. It is compiled, or loaded from the cache,
    when it is first called. A call raises `TypeError` for an array of another type than the
    signature's, and `MemoryError` when there is no memory.

    `signature` are the types of its arguments, in Numba's words or records; it returns nothing.
    """

    about = _ANY
    """The name in the message that something is compiled."""

    def __init__(
        self, f: Callable[..., Any], signature: tuple[Any, ...], flags: frozenset[str] = FAST
    ) -> None:
        self.function, self.signature, self._flags = f, signature, flags
        self._compiled: Callable[..., int] | None = None
        self._plain = False
        """Whether it takes no records, as most do."""

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """The types of its arguments."""
        from pellucid.kernels.backend.machine_code import kinds

        return kinds(*self.signature)

    @cached_property
    def values(self) -> list[Value]:
        """The types of its arguments, with each record replaced by its fields."""
        from pellucid.kernels.backend.machine_code import values

        return values(self.arguments)

    @property
    def name(self) -> str:
        """The module and name of the function; unique for every kernel."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def body(self) -> Callable[..., Any]:
        """Return the Python function that is compiled."""
        return self.function

    def __call__(self, *args: Any) -> None:
        compiled = self._compiled or self.compile()
        status = compiled(*(args if self._plain else _parts(args)))
        if status:
            self._again(status, _parts(args))

    def compile(self) -> Callable[..., int]:
        """Return its compiled function; the first call compiles it or loads it from the cache."""
        with compiling:
            if self._compiled is None:
                self._plain = len(self.values) == len(self.arguments)
                self._compiled = self._load()
            return self._compiled

    def _load(self) -> Callable[..., int]:
        from pellucid.kernels.backend import built, cache, machine_code

        address = built.address(f"{self.name}.entry")
        if address is not None:
            return machine_code.called(address)
        if find_spec("numba") is None:
            raise NoCompilerError("compiling a function of scores needs Numba: pip install numba")
        entry = cache.Entry(self.name, cache.code_digest(modules_of(self.function)))
        saved = entry.load()
        if saved is None:
            announce(self.about)
            saved = self._compile(entry.digest)
            entry.save(*saved)
        calls, code = saved
        for callee in calls:
            named[callee].compile()
        return machine_code.function(self.name, code)

    def _compile(self, digest: str) -> tuple[list[str], bytes]:
        """Return the names of the kernels that it calls, and its machine code."""
        from pellucid.kernels.backend import machine_code, prepared

        module = machine_code.parsed(prepared.text(self.name, digest) or self.text())
        calls = [f.name for f in module.functions if f.is_declaration and f.name in named]
        return calls, machine_code.compiled(module, machine_code.entry(self.name, self.values))

    def text(self) -> str:
        """Return the function in LLVM's language, made of its source and optimised."""
        from pellucid.kernels.backend import machine_code, numba_text

        # Numba makes many objects that live on; looking through them for garbage takes a tenth.
        collecting = gc.isenabled()
        gc.disable()
        try:
            text = numba_text.text(self.body(), self.arguments, self._flags, self.name)
            return machine_code.optimized(text)
        finally:
            if collecting:
                gc.enable()

    def _again(self, status: int, args: list[Any]) -> None:
        """Call it with NumPy's own arrays in the place of a subclass's, or raise an error."""
        from pellucid.kernels.backend import machine_code

        own = machine_code.own_arrays(args)
        if status == machine_code.REFUSED and own is not None:
            status = self.compile()(*own)
        if status == machine_code.REFUSED:
            raise TypeError(f"{self.name}: {machine_code.wrong(self.values, args)}")
        if status:
            raise MemoryError("a kernel ran out of memory")


def _parts(values: Iterable[Any]) -> list[Any]:
    """Return the values, with each record replaced by its fields."""
    parts = []
    for value in values:
        if isinstance(value, tuple):
            parts += _parts(value)
        else:
            parts.append(value)
    return parts


def modules_of(f: Callable[..., Any]) -> frozenset[str]:
    """Return the modules of a function, of those that its closure holds, and so on."""
    f = getattr(f, "py_func", f)
    inside = [cell.cell_contents for cell in getattr(f, "__closure__", None) or ()]
    inside = [one for one in inside if callable(one) or isinstance(one, Inner)]
    return frozenset({f.__module__}).union(*map(modules_of, inside))


def variant(f: Any, name: str) -> Any:
    """Return one of several functions made by the same lines, under a separate name."""
    f.__qualname__ = f"{f.__name__}.{name}"
    return f


def kernel(*signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of the function below, given the types of its arguments."""
    return lambda f: Kernel(f, signature)


def inner(
    flags: frozenset[str] = FAST, signature: Any = None, always_inline: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Mark a function that only kernels call; it is compiled into them.

    Without a signature it is compiled again for every kind of argument, 0 and 1 being kinds too,
    and into every kernel. With one, it is compiled once, for the first kernel that calls it, cached
    like a kernel, and never inlined. A long function that LLVM would rather call than inline keeps
    a loop from vectorising: `always_inline` it.
    """

    def linked(f: Callable[..., Any]) -> Inner:
        return Inner(f, lambda: _numba_text().inner(f, flags, always_inline))

    def by_name(f: Callable[..., Any]) -> Inner:
        kernel = Kernel(f, signature if isinstance(signature, tuple) else (signature,), flags)
        named[kernel.name] = kernel
        return Inner(f, lambda: _numba_text().by_name(f, kernel.name, kernel.arguments))

    return linked if signature is None else by_name


def instruction(result: Any, *takes: Any) -> Callable[[Callable[..., Any]], Inner]:
    """Make an operation inside kernels of f(builder, *values), which emits it.

    `takes` are the types of its arguments, None for any; a function returns the one type or the
    other by Numba's types of what is given, and `result` may be one too. Of an array the address of
    its first number is what f gets.
    """
    return lambda f: Inner(f, lambda: _numba_text().instruction(f, result, takes))


def numbas(function: str) -> Inner:
    """Return a function of Numba, or of `numba_text`, that kernels can call by this dotted name."""
    module, _, name = function.rpartition(".")
    return Inner(numbas, lambda: getattr(importlib.import_module(module), name))


empty = numbas("pellucid.kernels.backend.numba_text.empty")
"""A new array inside a kernel: empty(shape, dtype), as `np.empty`."""


def _numba_text() -> Any:
    return importlib.import_module("pellucid.kernels.backend.numba_text")

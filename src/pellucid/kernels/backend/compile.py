"""Compile kernels: functions of arrays and numbers, compiled for this processor when first called.

Every kernel states its signature, so that a wrong dtype is an error and not another compilation.
Numba translates a kernel to LLVM's language (`numba_text`); for the kernels of the recipes that
text comes with the package (`prepared`). LLVM translates the text to machine code
(`machine_code`), which is cached on disk (`cache`). A wheel may contain the machine code (`built`).
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
    """Take the compile lock, and Numba's, so that no other thread holds them during a fork."""
    compiling.acquire()
    numba = sys.modules.get("numba.core.compiler_lock")
    # after ours, as everywhere; a program may compile functions of its own
    theirs = getattr(numba, "global_compiler_lock", None)
    if theirs is not None:
        theirs.acquire()
    _held.append(theirs)


def _after_fork() -> None:
    """Release the locks that `_before_fork` has taken."""
    theirs = _held.pop()
    if theirs is not None:
        theirs.release()
    compiling.release()


# Hooks before a fork run in reverse order of registration. The hook of `logging` takes a lock that
# an import in another thread may need, so ours must run before it: it is registered after it.
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
    """A function that kernels call, translated by Numba only when a kernel is compiled.

    So a process that finds its kernels in the cache need not import Numba. That import takes longer
    than to generate a short answer.
    """

    def __init__(self, f: Callable[..., Any], make: Callable[[], Any]) -> None:
        self.py_func, self._make = f, make
        self.__module__ = f.__module__

    @cached_property
    def made(self) -> Any:
        """The function as Numba's object, made at first use."""
        return self._make()


_ANY = "kernels that this command is the first to need"


@cache
def announce(what: str = _ANY) -> None:
    """Log, once for each `what`, that kernels are being compiled and why.

    Not if there is no folder for them, since the cache has then logged a warning already.
    """
    from pellucid.kernels.backend import cache, prepared

    if cache.folder() is None:
        return
    why = prepared.lacking() if what == _ANY else None
    if why is None:
        _log.info("compiling %s; they are kept", what)
    else:
        _log.info("compiling kernels, up to a minute, once: %s", why)


class Kernel:
    """A compiled function of arrays and numbers with one signature.

    It runs without the GIL.

    It is compiled, or loaded from the cache, when first called, from Python or by name from another
    kernel. A call raises `TypeError` for an array of another type than in the signature, and
    `MemoryError` if there is not enough memory. It returns nothing.

    `signature` has the types of its arguments: in Numba's notation, or records of named tuples.
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
        """The types of its arguments, parsed."""
        from pellucid.kernels.backend.machine_code import kinds

        return kinds(*self.signature)

    @cached_property
    def values(self) -> list[Value]:
        """The types of its arguments, with each record replaced by the types of its fields."""
        from pellucid.kernels.backend.machine_code import values

        return values(self.arguments)

    @property
    def name(self) -> str:
        """The module and name of the function, which are unique for every kernel."""
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
        """Return the compiled function.

        The first call compiles it, or loads it from the built library or the cache. Raises
        `RefusedError` if Numba cannot compile it, `NoCompilerError` if that needs Numba and it is
        not installed.
        """
        with compiling:
            if self._compiled is None:
                self._plain = len(self.values) == len(self.arguments)
                self._compiled = self._load()
            return self._compiled

    def _load(self) -> Callable[..., int]:
        """Load the function from the built library or the cache, or compile and cache it."""
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
        """Compile it; return the names of the kernels that it calls, and its machine code."""
        from pellucid.kernels.backend import machine_code, prepared

        module = machine_code.parsed(prepared.text(self.name, digest) or self.text())
        calls = [f.name for f in module.functions if f.is_declaration and f.name in named]
        return calls, machine_code.compiled(module, machine_code.entry(self.name, self.values))

    def text(self) -> str:
        """Translate its source to LLVM's language; return the optimised text."""
        from pellucid.kernels.backend import machine_code, numba_text

        # Numba makes many long-lived objects; garbage collection would take a tenth of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            text = numba_text.text(self.body(), self.arguments, self._flags, self.name)
            return machine_code.optimized(text)
        finally:
            if collecting:
                gc.enable()

    def _again(self, status: int, args: list[Any]) -> None:
        """Handle a failed call: retry with subclass arrays converted to `np.ndarray`, or raise."""
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
    """Return the modules of a function and of all functions in its closure, recursively."""
    f = getattr(f, "py_func", f)
    inside = [cell.cell_contents for cell in getattr(f, "__closure__", None) or ()]
    inside = [one for one in inside if callable(one) or isinstance(one, Inner)]
    return frozenset({f.__module__}).union(*map(modules_of, inside))


def variant(f: Any, name: str) -> Any:
    """Give a function made by a factory its own name, so that its kernels are distinguished."""
    f.__qualname__ = f"{f.__name__}.{name}"
    return f


def kernel(*signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator that makes a `Kernel` of a function, given the types of its arguments."""
    return lambda f: Kernel(f, signature)


def inner(
    flags: frozenset[str] = FAST, signature: Any = None, always_inline: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for a function that only kernels call.

    It is compiled into them.

    Without a signature it is compiled into every kernel, separately for each combination of
    argument types (constants 0 and 1 are types of their own). With a signature it is compiled once,
    when a kernel first calls it, cached like a kernel, and never inlined. `always_inline` forces
    inlining of a long function, whose call would keep a loop from being vectorised. `flags` are
    LLVM's fast-math flags.
    """

    def linked(f: Callable[..., Any]) -> Inner:
        return Inner(f, lambda: _numba_text().inner(f, flags, always_inline))

    def by_name(f: Callable[..., Any]) -> Inner:
        kernel = Kernel(f, signature if isinstance(signature, tuple) else (signature,), flags)
        named[kernel.name] = kernel
        return Inner(f, lambda: _numba_text().by_name(f, kernel.name, kernel.arguments))

    return linked if signature is None else by_name


def instruction(result: Any, *takes: Any) -> Callable[[Callable[..., Any]], Inner]:
    """Return a decorator that makes a kernel operation of f(builder, *values).

    f emits LLVM code for the operation. `result` and `takes` are the types of the result and the
    arguments; None accepts any type, and a function computes the type from Numba's types of the
    arguments. For an array, f gets the address of its first number.
    """
    return lambda f: Inner(f, lambda: _numba_text().instruction(f, result, takes))


def numbas(function: str) -> Inner:
    """Return an `Inner` for a function of Numba (or `numba_text`), given its dotted name."""
    module, _, name = function.rpartition(".")
    return Inner(numbas, lambda: getattr(importlib.import_module(module), name))


empty = numbas("pellucid.kernels.backend.numba_text.empty")
"""A new array inside a kernel: empty(shape, dtype), as `np.empty`."""


def _numba_text() -> Any:
    """Import `numba_text`, and with it Numba, only when something is compiled."""
    return importlib.import_module("pellucid.kernels.backend.numba_text")

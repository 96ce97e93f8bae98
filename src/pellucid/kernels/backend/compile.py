"""How a kernel is compiled: for this processor, once, before its first call.

Every kernel states its signature, so nothing is compiled that is not used and a wrong dtype is an
error instead of another compilation. The machine code is cached next to the source file, or where
Numba finds a folder that it can write; where there is none, it is compiled again at every start.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit

from pellucid.kernels.backend import precompile
from pellucid.kernels.backend.cache import KernelCache, Uncached, code_digest
from pellucid.kernels.backend.compiling import compiling
from pellucid.kernels.backend.inner_code import InnerCompiler, KernelCompiler, call_by_symbol

_log = logging.getLogger(__name__)

FAST = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})
"""What may be done to sums, so that they vectorise. inf and NaN keep their meaning."""
EXACT = frozenset({"contract"})
"""Operations stay in the order written; a product may be fused into the sum that takes it."""


@cache
def _announce() -> None:
    _log.info("compiling the kernels for this processor; this happens once and takes some seconds")


@cache
def _warn_uncached() -> None:
    _log.warning(
        "Numba has no folder to cache the compiled kernels in, so they are compiled again at every "
        "start; set NUMBA_CACHE_DIR to a folder that can be written"
    )


class Kernel:
    """A function of arrays and numbers for one signature; it runs without the GIL.

    It is compiled, or loaded from the cache, when it is first called. `signature` is Numba's, as a
    string or an object.
    """

    def __init__(self, f: Callable[..., Any], signature: Any) -> None:
        self._f, self._signature = f, signature
        self._compiled: Any = None

    @property
    def name(self) -> str:
        """The file and the function, as `precompile` names a kernel."""
        return f"{self._f.__module__.rpartition('.')[2]}.{self._f.__qualname__}"

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            self.compile()
        return self._compiled(*args)

    def compile(self) -> None:
        """Compile it, or load it from the cache, if that has not been done."""
        with compiling:
            self._compiled = self._compiled or self._compile()

    def body(self) -> Callable[..., Any]:
        """Return what is compiled."""
        return self._f

    def _compile(self) -> Any:
        dispatcher = njit(**_options(FAST))(self.body())
        return _compiled(dispatcher, self._f, self._signature, self._missing)

    def _missing(self) -> None:
        _announce()
        precompile.begin(self.name)


def _options(flags: frozenset[str]) -> dict[str, Any]:
    return {
        "nogil": True,
        "fastmath": set(flags),
        "error_model": "numpy",
        "no_cfunc_wrapper": True,  # nobody calls them from C, and it would be compiled too
        "pipeline_class": KernelCompiler,
    }


def _compiled(
    dispatcher: Any, f: Callable[..., Any], signature: Any, missing: Callable[[], None]
) -> Any:
    """Compile for one signature, or load it from the cache, where it has f's name.

    `missing` is called before it is compiled for the cache.
    """
    try:
        digest = code_digest(_modules(f))
        dispatcher._cache = KernelCache(f, digest, missing)
    except OSError:  # no source
        _warn_uncached()
    except RuntimeError:  # no locator of Numba's has a place for it
        _warn_uncached()
        dispatcher._cache = Uncached(f, digest)
    # Numba makes many objects that live on; looking through them for garbage takes a tenth.
    collecting = gc.isenabled()
    gc.disable()
    try:
        dispatcher.compile(signature)
    finally:
        if collecting:
            gc.enable()
    dispatcher.disable_compile()
    return dispatcher


def _modules(f: Callable[..., Any]) -> frozenset[str]:
    """Return the modules of a function, of those that its closure holds, and so on."""
    f = getattr(f, "py_func", f)
    inside = [cell.cell_contents for cell in f.__closure__ or ()]
    return frozenset({f.__module__}).union(*(_modules(g) for g in inside if callable(g)))


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of the function below."""
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
    options = _options(flags) | {"forceinline": always_inline}
    if signature is None:
        inlined: Callable[[Callable[..., Any]], Any] = njit(
            **options | {"pipeline_class": InnerCompiler}
        )
        return inlined
    options["no_cpython_wrapper"] = True
    return lambda f: _when_called(njit(**options)(f), f, signature)


def _when_called(dispatcher: Any, f: Callable[..., Any], signature: Any) -> Any:
    """Compile a function for its one signature when a kernel that calls it is typed or loaded."""
    resolve = dispatcher.get_call_template

    def load() -> None:
        if not dispatcher.overloads:
            _compiled(dispatcher, f, signature, _announce)
            (compiled,) = dispatcher.overloads.values()
            call_by_symbol(f, compiled)

    def get_call_template(args: Any, kws: Any) -> Any:
        load()
        return resolve(args, kws)

    dispatcher.get_call_template, dispatcher.load = get_call_template, load
    return dispatcher

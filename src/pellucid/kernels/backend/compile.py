"""How a kernel is compiled: for this processor, once, ahead of its first call.

Every kernel states its signature, so nothing is compiled that is not used and a wrong dtype is an
error instead of another compilation. The machine code is cached next to the source file, or where
Numba finds a folder that it can write; where there is none, it is compiled anew at every start.
Numba's own cache looks at one file only: an edit to another would leave its callers stale. So the
key of ours holds a digest of all files of this folder.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

from pellucid.kernels.backend import precompile

_log = logging.getLogger(__name__)

FAST = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})
"""What may be done to sums, so that they vectorise. inf and NaN keep their meaning."""
EXACT = frozenset({"contract"})
"""Operations stay in the order written; a product may be fused into the sum that takes it."""


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    package = Path(__file__).parents[2]
    for path in sorted([*package.glob("kernels/**/*.py"), *package.glob("compiled/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _announce() -> None:
    _log.info("compiling the kernels for this processor; this happens once and takes some seconds")


@cache
def _uncached() -> None:
    _log.warning(
        "Numba has no folder to cache the compiled kernels in, so they are compiled anew at every "
        "start; set NUMBA_CACHE_DIR to a folder that can be written"
    )


class _Cache(FunctionCache):
    def __init__(self, f: Callable[..., Any], missing: Callable[[], None]) -> None:
        super().__init__(f)
        self._missing = missing

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return sig, codegen.magic_tuple(), _sources()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None:
            self._missing()
        return found


class Kernel:
    """A function of arrays and numbers for one signature; it runs without the GIL.

    It is compiled, or fetched from the cache, when it is first called.
    """

    def __init__(self, f: Callable[..., Any], signature: str | tuple[Any, ...]) -> None:
        self._f, self._signature = f, signature
        self._lock = threading.Lock()
        self._compiled: Any = None

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            self.ready()
        return self._compiled(*args)

    def ready(self) -> None:
        """Compile it, or fetch it from the cache, if that has not been done."""
        with self._lock:
            self._compiled = self._compiled or self._compile()

    def body(self) -> Callable[..., Any]:
        """Return what is compiled."""
        return self._f

    def _compile(self) -> Any:
        dispatcher = njit(**_options(FAST))(self.body())
        return _compiled(dispatcher, self._f, self._signature, self._missing)

    def _missing(self) -> None:
        _announce()
        precompile.begin(f"{self._f.__module__.rsplit('.', 1)[-1]}.{self._f.__name__}")


def _options(flags: frozenset[str]) -> dict[str, Any]:
    return {
        "nogil": True,
        "fastmath": set(flags),
        "error_model": "numpy",
        "no_cfunc_wrapper": True,  # nobody calls them from C, and it is compiled too
    }


def _compiled(
    dispatcher: Any,
    f: Callable[..., Any],
    signature: str | tuple[Any, ...],
    missing: Callable[[], None],
) -> Any:
    """Compile for one signature, or fetch it from the cache, where it lies under f's name.

    `missing` is called before it is compiled for the cache.
    """
    try:
        dispatcher._cache = _Cache(f, missing)
    except RuntimeError:  # no locator of Numba's has a place for it
        _uncached()
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher


def kernel(signature: str | tuple[Any, ...]) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of the function below; the signature as text or Numba's types."""
    return lambda f: Kernel(f, signature)


def inner(
    flags: frozenset[str] = FAST, signature: str | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Mark a function that only kernels call; it is compiled into them.

    Without a signature it is compiled anew for every kind of argument, 0 and 1 being kinds too.
    With one, it is compiled where it is defined and cached like a kernel.
    """
    options = _options(flags)
    if signature is None:
        inlined: Callable[[Callable[..., Any]], Any] = njit(**options)
        return inlined
    return lambda f: _compiled(njit(**options)(f), f, signature, _announce)

"""The threads that help with a kernel call, and kernels whose work is cut into parts.

Numba's own thread layers are not used: one is not thread-safe, another does not survive a fork. How
the work is cut must never depend on the number of threads: parts write to places of their own, and
partial sums are added in the order of the parts, so the result has the same bits whoever did which
part.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
from numba import njit

from pellucid.core.machine import processors
from pellucid.kernels.backend.compile import Kernel, inner
from pellucid.kernels.backend.share import WORDS, serve, share, this_call

# About a millisecond: longer than what lies between two kernels, short enough to be no burden.
_PATIENCE = 20_000
_LINE = 8  # words in a line of the cache
_ALL = -1  # in the place of a part: all of them


def available() -> int:
    """Return how many threads kernels use: PELLUCID_THREADS, else the processors of this process.

    An OMP_NUM_THREADS that is set is an upper limit, as for BLAS.
    """
    wanted = os.environ.get("PELLUCID_THREADS") or os.environ.get("OMP_NUM_THREADS")
    if wanted and wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return processors()


class _Pool:
    """Workers that wait in `share.serve`, and sleep when nothing comes."""

    def __init__(self) -> None:
        self._words = np.zeros(WORDS + _LINE, np.int64)
        self.address = -(-self._words.ctypes.data // (8 * _LINE)) * (8 * _LINE)
        workers = available() - 1
        self._beds: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(workers)]
        self._asleep = [False] * workers
        for i in range(workers):
            name = f"pellucid-kernel-{i + 1}"
            threading.Thread(target=self._work, args=(i,), name=name, daemon=True).start()

    def _work(self, i: int) -> None:
        last = 0
        while True:
            last = serve(self.address, last, _PATIENCE)
            self._asleep[i] = True
            self._beds[i].get()

    def wake(self) -> None:
        """Wake every worker that sleeps; it comes in time for this call or the next."""
        for i, asleep in enumerate(self._asleep):
            if asleep:
                self._asleep[i] = False
                self._beds[i].put(None)


_pool: _Pool | None = None
_starting = threading.Lock()


def _forget() -> None:
    """After a fork the child has the objects but not the threads: it starts its own."""
    global _pool, _starting
    _pool, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def pool() -> int:
    """Return the address of the pool, its workers awake."""
    global _pool
    if _pool is None:
        with _starting:
            _pool = _pool or _Pool()
    _pool.wake()
    return _pool.address


class SharedKernel(Kernel):
    """A kernel f(part, parts, *arguments); a call (parts, *arguments) does every part."""

    def __call__(self, parts: int, *arguments: Any) -> None:
        super().__call__(pool() if parts > 1 else 0, _ALL, parts, *arguments)

    def body(self) -> Callable[..., Any]:
        """Return what is compiled: f, written into a function that shares out its own calls."""
        _, _, *names = inspect.signature(self._f).parameters
        given = ", ".join(names)
        scope: dict[str, Any] = {
            "f": njit(inline="always")(self._f),
            "share": share,
            "this_call": this_call,
            "__name__": self._f.__module__,
        }
        exec(
            f"def run(pool, part, parts, {given}):\n"
            f"    if part == {_ALL}:\n"
            f"        share(pool, parts, this_call())\n"
            f"    else:\n"
            f"        f(part, parts, {given})\n",
            scope,
        )
        run: Callable[..., Any] = scope["run"]
        return run


def shared(signature: str) -> Callable[[Callable[..., Any]], SharedKernel]:
    """Make a `SharedKernel` of the function below; the signature is that of its arguments.

    Numba compiles no functions of any number of arguments, hence the `exec`.
    """
    return lambda f: SharedKernel(f, f"void(i8,i8,i8,{signature})")


def count(work: int, smallest: int, most: int = 8) -> int:
    """Return into how many parts to cut: at most `most`, none with less than `smallest` to do.

    >>> count(10, 4)
    2
    """
    return max(1, min(most, work // smallest))


@inner()
def span(part, parts, rows):
    """Return where a part's rows begin and end."""
    return rows * part // parts, rows * (part + 1) // parts

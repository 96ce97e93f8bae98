"""The executor that runs a study by default, and how many processes this machine has room for."""

import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import ParamSpec, TypeVar

from pellucid.core.errors import optional
from pellucid.kernels.backend.machine import processors

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS = 3
"""Processes that one call may lose before it fails."""
PATIENCE = 60.0
"""Seconds in which a process whose parent died finishes its step and saves."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PELLUCID_THREADS")
CGROUP = Path("/sys/fs/cgroup")


class FreshProcesses(ThreadPoolExecutor):
    """Run each call in a fresh process with one thread: one that dies ends one call only."""

    def submit(self, f: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a process for this call when it is its turn, and another one if that dies."""
        return super().submit(_in_process, functools.partial(f, *args, **kwargs))


def _in_process(f: Callable[[], T]) -> T:
    for _ in range(ATTEMPTS):
        with ProcessPoolExecutor(1, get_context("spawn"), _detach) as pool:
            try:
                return pool.submit(_call, f).result()
            except BrokenExecutor as error:
                died = f"{type(error).__name__}: {error}"
    raise RuntimeError(died)


def _call(f: Callable[[], T]) -> T:
    result = f()
    if (parent := parent_process()) is not None and not parent.is_alive():
        os._exit(1)  # the reader of the result has gone
    return result


def _detach() -> None:
    """Let only the parent receive Ctrl-C; save and stop when the parent dies for any reason."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    if hasattr(os, "setsid"):
        os.setsid()
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        signal.raise_signal(signal.SIGTERM)  # os.kill would end it at once on Windows
        time.sleep(PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def affordable(gigabytes: float) -> int:
    """Return how many runs of this size there are processors and free memory for, at least 1.

    A container's limits count as the machine's own do. Raises `UserError` where the package that
    knows the memory is missing.
    """
    message = "choosing how many runs go at a time needs psutil; set `workers`"
    free = optional("psutil", message, extra="lab").virtual_memory().available
    for limit, stat, used in (
        ("memory.max", "memory.stat", "anon"),
        ("memory/memory.limit_in_bytes", "memory/memory.stat", "total_rss"),  # version 1
    ):
        with suppress(OSError, ValueError, KeyError):  # no container, or one without a limit
            counts = dict(line.split() for line in (CGROUP / stat).read_text().splitlines())
            free = min(free, int((CGROUP / limit).read_text()) - int(counts[used]))
    return max(1, min(processors(), int(free / (gigabytes * 1e9))))

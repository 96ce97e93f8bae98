"""The executor that runs a study by default, and how many processes this machine has room for."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import ParamSpec, TypeVar

from pellucid.core.errors import optional

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 60.0
"""Seconds in which a process whose parent died finishes its step and saves."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PELLUCID_THREADS")
CGROUP = Path("/sys/fs/cgroup")


class FreshProcesses(Executor):
    """Run each call in a fresh process with one thread: one that dies ends one call only."""

    def submit(self, f: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a process for this call. The future raises `BrokenExecutor` if it dies."""
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_detach)
        with one_thread():
            future: Future[T] = pool.submit(_call, functools.partial(f, *args, **kwargs))
        pool.shutdown(wait=False)
        return future


def _call(f: Callable[[], T]) -> T:
    result = f()
    if (parent := parent_process()) is not None and not parent.is_alive():
        os._exit(1)  # the reader of the result has gone
    return result


def _detach() -> None:
    """Let only the parent receive Ctrl-C; save and stop when the parent dies for any reason."""
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Set the environment in which a new process loads BLAS."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def affordable(gigabytes: float) -> int:
    """Return how many runs of this size there are processors and free memory for, at least 1.

    A container's limits count as the machine's own do. Raises `UserError` where the packages that
    know them are missing.
    """
    message = "choosing how many runs go at a time needs {}; set --workers"
    processors = optional("loky", message.format("loky"), extra="lab").cpu_count()
    free = optional("psutil", message.format("psutil"), extra="lab").virtual_memory().available
    for limit, stat, used in (
        ("memory.max", "memory.stat", "anon"),
        ("memory/memory.limit_in_bytes", "memory/memory.stat", "total_rss"),  # version 1
    ):
        with suppress(OSError, ValueError, KeyError):  # no container, or one without a limit
            counts = dict(line.split() for line in (CGROUP / stat).read_text().splitlines())
            free = min(free, int((CGROUP / limit).read_text()) - int(counts[used]))
    return max(1, min(int(processors), int(free / (gigabytes * 1e9))))

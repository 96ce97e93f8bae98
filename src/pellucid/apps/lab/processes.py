"""The default executor of a study, and how many processes the machine can run."""

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
"""How often a call is tried if its process dies."""
PATIENCE = 60.0
"""Seconds that a process has to finish its step and save after its parent died."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PELLUCID_THREADS")
CGROUP = Path("/sys/fs/cgroup")


class FreshProcesses(ThreadPoolExecutor):
    """Executor that runs each call in a new process with one thread.

    A process that dies, for example for want of memory, ends only its own call.
    """

    def submit(self, f: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedule a call.

        It runs in a new process, and again in another one if that dies: at most `ATTEMPTS` times.
        If all die, the future raises `RuntimeError`.
        """
        return super().submit(_in_process, functools.partial(f, *args, **kwargs))


def _in_process(f: Callable[[], T]) -> T:
    """Run `f` in a new process, up to `ATTEMPTS` times.

    Raises `RuntimeError` if all die.
    """
    for _ in range(ATTEMPTS):
        with ProcessPoolExecutor(1, get_context("spawn"), _detach) as pool:
            try:
                return pool.submit(_call, f).result()
            except BrokenExecutor as error:
                died = f"{type(error).__name__}: {error}"
    raise RuntimeError(died)


def _call(f: Callable[[], T]) -> T:
    """Run `f` in the new process; end the process if the parent died meanwhile."""
    result = f()
    if (parent := parent_process()) is not None and not parent.is_alive():
        os._exit(1)  # the reader of the result has gone
    return result


def _detach() -> None:
    """Set up a new process: one thread, no Ctrl-C, SIGTERM if the parent dies.

    SIGTERM makes a run save and stop. Ctrl-C reaches the parent alone, which then stops the runs.
    """
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
    """Return how many runs the processors and the free memory allow, at least 1.

    gigabytes: the memory of one run. The limits of a container count too. Raises `UserError` if
    psutil, which reads the free memory, is not installed.
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

"""Kernels whose work is divided into tasks, and the threads that run them.

Numba's own thread layers are not used: one is not thread-safe, another does not survive a fork. The
division must never depend on the number of threads: every task writes to its own places, and
partial sums are added in the order of the tasks, so the result has the same bits whichever thread
ran which task.
"""

import inspect
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import numpy as np

from pellucid.kernels.backend.allocator import keep_freed_memory
from pellucid.kernels.backend.compile import Kernel, inner
from pellucid.kernels.backend.machine import processors
from pellucid.kernels.backend.thread_pool import WORDS, run_tasks, this_call, work

# Nanoseconds before a worker sleeps: longer than the pause between two kernels.
_PATIENCE = 800_000
_LINE = 8  # 64-bit words in a cache line
_ALL = -1  # in the place of a task: all of them
_FEW = 8  # tasks: a thread that comes late to a kernel still finds some


def available() -> int:
    """Return how many threads kernels use: PELLUCID_THREADS, else the processors of this process.

    An OMP_NUM_THREADS that is set is an upper limit, as for BLAS.
    """
    wanted = os.environ.get("PELLUCID_THREADS") or os.environ.get("OMP_NUM_THREADS")
    if wanted and wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return processors()


class _Pool:
    """Workers that wait in `thread_pool.work`, and sleep when no job comes."""

    def __init__(self) -> None:
        keep_freed_memory()
        self._words = np.zeros(WORDS + _LINE, np.int64)
        self.address = -(-self._words.ctypes.data // (8 * _LINE)) * (8 * _LINE)
        self.threads = available()
        workers = self.threads - 1
        self._wakers: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(workers)]
        self._asleep = [False] * workers
        for i in range(workers):
            name = f"pellucid-kernel-{i + 1}"
            threading.Thread(target=self._work, args=(i,), name=name, daemon=True).start()

    def _work(self, i: int) -> None:
        last = np.zeros(1, np.int64)
        while True:
            work(self.address, last, _PATIENCE)
            self._asleep[i] = True
            self._wakers[i].get()

    def wake(self) -> None:
        """Wake every sleeping worker; it joins this call or the next."""
        if True not in self._asleep:  # with many workers the loop would cost more than a kernel
            return
        for i, asleep in enumerate(self._asleep):
            if asleep:
                self._asleep[i] = False
                self._wakers[i].put(None)


_pool: _Pool | None = None
_count: int | None = None
_starting = threading.Lock()


def _reset_after_fork() -> None:
    """Start with no pool: after a fork the child has the objects but not the threads."""
    global _pool, _count, _starting
    _pool, _count, _starting = None, None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def pool() -> int:
    """Return the address of the pool, with its workers awake."""
    global _pool
    if _pool is None:
        with _starting:
            _pool = _pool or _Pool()
    _pool.wake()
    return _pool.address


class ParallelKernel(Kernel):
    """A kernel f(task, tasks, *arguments); a call (tasks, *arguments) runs every task.

    A kernel of several stages is f(task, *ends, *arguments). Stage i has the tasks ends[i − 1] to
    ends[i] − 1, and begins when all tasks of stage i − 1 are done. The last end is the number of
    tasks.
    """

    def __init__(self, f: Callable[..., Any], signature: tuple[Any, ...], stages: int = 1) -> None:
        super().__init__(f, signature)
        self.stages = stages

    def __call__(self, *arguments: Any) -> None:
        """Run all tasks. The first arguments are the ends of the stages, then come those of f."""
        stages = self.stages
        super().__call__(pool() if arguments[stages - 1] > stages else 0, _ALL, *arguments)

    def body(self) -> Callable[..., Any]:
        """Return the function to compile: f inside a function that distributes the tasks."""
        from numba import njit

        _, *names = inspect.signature(self.function).parameters
        arguments = ", ".join(names)
        scope: dict[str, Any] = {
            "f": njit(inline="always")(self.function),
            "run_tasks": run_tasks,
            "this_call": this_call,
            "__name__": self.function.__module__,
        }
        ends = ["0", *names[: self.stages]]
        run_stages = "".join(
            f"        code, data = this_call({first})\n"
            f"        run_tasks(pool, {end} - {first}, code, data)\n"
            for first, end in pairwise(ends)
        )
        exec(
            f"def run(pool, task, {arguments}):\n"
            f"    if task == {_ALL}:\n"
            f"{run_stages}"
            f"    else:\n"
            f"        f(task, {arguments})\n",
            scope,
        )
        run: Callable[..., Any] = scope["run"]
        return run


def parallel(*arguments: Any, stages: int = 1) -> Callable[[Callable[..., Any]], ParallelKernel]:
    """Make a `ParallelKernel` of the function below, given the types of its arguments.

    Numba compiles no functions of any number of arguments, hence the `exec`.
    """
    numbers = 2 + stages  # pool, task and the ends
    return lambda f: ParallelKernel(f, ("i8," * numbers, *arguments), stages)


def count() -> int:
    """Return how many threads kernels run on, the caller's among them.

    It is read once, as the pool is made once: the environment takes longer than a small kernel.
    """
    global _count
    if _pool is not None:
        return _pool.threads
    if _count is None:
        _count = available()
    return _count


def most_tasks() -> int:
    """Return how many tasks are worth making: two for each thread, and at least 8.

    Only for kernels whose tasks write apart from each other. Where partial sums are added, their
    number decides the bits, and must not depend on the threads.
    """
    return max(_FEW, 2 * count())


def task_count(work: int, smallest: int, most: int | None = None) -> int:
    """Return how many tasks to make: at most `most`, none with less than `smallest` work.

    Unless it is given, `most` is `most_tasks()`.

    >>> task_count(10, 4)
    2
    """
    if work < 2 * smallest:
        return 1
    return max(1, min(most_tasks() if most is None else most, work // smallest))


@inner()
def slice_of(task, tasks, rows):
    """Return where a task's slice of the rows begins and ends."""
    return rows * task // tasks, rows * (task + 1) // tasks

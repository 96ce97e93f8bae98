"""Parallel kernels, whose work is divided into tasks, and the threads that run the tasks.

Numba's thread layers are not used: one is not thread-safe, another does not survive a fork. Results
must not depend on the number of threads: every task writes to places of its own, and partial sums
are added in the order of the tasks, so that it does not matter which thread runs which task.
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
    """Return the number of threads to use.

    It is PELLUCID_THREADS, or OMP_NUM_THREADS if that is not set. If neither is set, or the one
    that counts is no whole number above 0, it is the number of processors that this process may
    use.
    """
    wanted = os.environ.get("PELLUCID_THREADS") or os.environ.get("OMP_NUM_THREADS")
    if wanted and wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return processors()


class _Pool:
    """The worker threads, which wait in `thread_pool.work`, and sleep when no job comes."""

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
        """Run worker i: work on jobs, sleep until woken, and so on for ever."""
        last = np.zeros(1, np.int64)
        while True:
            work(self.address, last, _PATIENCE)
            self._asleep[i] = True
            self._wakers[i].get()

    def wake(self) -> None:
        """Wake all sleeping workers; they join this call or the next."""
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
    """Discard the pool after a fork, because the child process has no worker threads."""
    global _pool, _count, _starting
    _pool, _count, _starting = None, None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def pool() -> int:
    """Return the address of the pool's fields.

    Starts the pool, or wakes its workers, if needed.
    """
    global _pool
    if _pool is None:
        with _starting:
            _pool = _pool or _Pool()
    _pool.wake()
    return _pool.address


class ParallelKernel(Kernel):
    """A kernel f(task, tasks, *arguments) that runs as parallel tasks 0 … tasks − 1.

    It is called as kernel(tasks, *arguments). A kernel with several stages is
    f(task, *ends, *arguments), called as kernel(*ends, *arguments): stage i has the tasks
    ends[i − 1] … ends[i] − 1, and begins when all tasks of stage i − 1 are done. The last end is
    the number of tasks.
    """

    def __init__(self, f: Callable[..., Any], signature: tuple[Any, ...], stages: int = 1) -> None:
        super().__init__(f, signature)
        self.stages = stages

    def __call__(self, *arguments: Any) -> None:
        """Run all tasks; the arguments are the end of each stage, then the arguments of f."""
        stages = self.stages
        super().__call__(pool() if arguments[stages - 1] > stages else 0, _ALL, *arguments)

    def body(self) -> Callable[..., Any]:
        """Return the function to compile: it runs the tasks of all stages, or one task of f."""
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
    """Return a decorator that makes a `ParallelKernel` of a function, given its argument types.

    The types of task and ends are added. `stages` is the number of stages.
    """
    numbers = 2 + stages  # pool, task and the ends
    return lambda f: ParallelKernel(f, ("i8," * numbers, *arguments), stages)


def count() -> int:
    """Return the number of threads on which kernels run, including the caller.

    It is computed once: to read the environment takes longer than a small kernel.
    """
    global _count
    if _pool is not None:
        return _pool.threads
    if _count is None:
        _count = available()
    return _count


def most_tasks() -> int:
    """Return the maximum useful number of tasks: two for each thread, and at least 8.

    Only for kernels whose tasks write to separate places. With partial sums, the number of tasks
    determines the bits of the result, so it must not depend on the number of threads.
    """
    return max(_FEW, 2 * count())


def task_count(work: int, smallest: int, most: int | None = None) -> int:
    """Return the number of tasks for an amount of work, with at least `smallest` work in each.

    It is 1 for less work than that, and at most `most`, by default `most_tasks()`.

    >>> task_count(10, 4)
    2
    """
    if work < 2 * smallest:
        return 1
    return max(1, min(most_tasks() if most is None else most, work // smallest))


@inner()
def slice_of(task, tasks, rows):
    """Return the begin and end of a task's slice of the rows."""
    return rows * task // tasks, rows * (task + 1) // tasks

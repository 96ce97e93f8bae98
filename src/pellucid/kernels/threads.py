"""A few threads that share out the parts of one kernel call.

Kernels run without the GIL, so plain threads are enough; Numba's own thread layers are not used
(one is not thread-safe, another does not survive a fork). How the work is cut into parts must never
depend on the number of threads: parts write to places of their own, and partial sums are added in
the order of the parts, so the result has the same bits whoever did which part.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue

Task = Callable[[int], None]


def available() -> int:
    """Return how many threads kernels use: PELLUCID_THREADS, else the processors of this process.

    An OMP_NUM_THREADS that is set is an upper limit, as for BLAS.
    """
    wanted = os.environ.get("PELLUCID_THREADS") or os.environ.get("OMP_NUM_THREADS")
    if wanted and wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Call:
    """One call: parts are taken in order by whoever is free."""

    def __init__(self, task: Task, parts: int) -> None:
        self.task, self.parts = task, parts
        self.next = count()
        self.left = count(1)
        self.finished = threading.Lock()
        self.finished.acquire()
        self.error: BaseException | None = None

    def work(self) -> None:
        for part in self.next:
            if part >= self.parts:
                return
            try:
                self.task(part)
            except BaseException as error:
                self.error = error
            if next(self.left) == self.parts:
                self.finished.release()


class _Pool:
    def __init__(self) -> None:
        self.queue: SimpleQueue[_Call] = SimpleQueue()
        self.size = available()
        for i in range(1, self.size):
            name = f"pellucid-kernel-{i}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.queue.get().work()


_pool: _Pool | None = None
_starting = threading.Lock()


def _forget() -> None:
    """After a fork the child has the objects but not the threads: it starts its own."""
    global _pool, _starting
    _pool, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def run(task: Task, parts: int) -> None:
    """Call task(0), …, task(parts − 1), several at a time, and wait for all of them."""
    global _pool
    if parts <= 1:
        for part in range(parts):
            task(part)
        return
    if _pool is None:
        with _starting:
            _pool = _pool or _Pool()
    call = _Call(task, parts)
    for _ in range(min(_pool.size, parts) - 1):
        _pool.queue.put(call)
    call.work()
    call.finished.acquire()
    if call.error is not None:
        raise call.error


def cut(rows: int, smallest: int, most: int = 8) -> list[int]:
    """Return the bounds of equal slices of `rows`: at most `most`, none under `smallest` rows.

    >>> cut(10, 4)
    [0, 5, 10]
    """
    parts = max(1, min(most, rows // smallest))
    return [rows * i // parts for i in range(parts + 1)]

from __future__ import annotations

import multiprocessing
import sys
import threading
from typing import Any

import numpy as np
import pytest

from pellucid.kernels.backend import thread_pool, threads

pytestmark = pytest.mark.alone


@threads.parallel("i8[::1]")
def _count(task: Any, tasks: Any, done: Any) -> None:
    done[task] += tasks


@threads.parallel("i8[::1],i8[::1]", stages=2)
def _two_stages(task: Any, first: Any, tasks: Any, done: Any, seen: Any) -> None:
    """The first stage takes a while; the second counts what of it is over."""
    if task < first:
        for _ in range(1000):
            done[task] = done[task] * 3 % 1001 + 1
    else:
        for one in done:  # not count_nonzero, whose code only a process with Numba has
            seen[task - first] += one != 0


@threads.parallel("i8,i8[::1]")
def _meet(task: Any, tasks: Any, polls: Any, met: Any) -> None:
    """Each of two tasks waits for the other, so that one thread alone would wait in vain."""
    address = met.ctypes.data
    thread_pool._add(address, 0, 1)
    for _ in range(polls):
        if thread_pool._get(address, 0) >= tasks:
            met[1 + task] = 1
            break


@threads.parallel("i8")
def _allocate(task: Any, tasks: Any, size: Any) -> None:
    np.empty(size if task == 1 else 1)[0] = 1.0


def _counted(tasks: int) -> list[int]:
    done = np.zeros(tasks, np.int64)
    _count(tasks, done)
    return done.tolist()


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_THREADS", "2")
    monkeypatch.setattr(threads, "_pool", None)
    monkeypatch.setattr(threads, "_count", None)


@pytest.mark.parametrize("tasks", [1, 2, 17])
def test_every_task_runs_once(tasks: int) -> None:
    assert _counted(tasks) == [tasks] * tasks


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("first, second", [(1, 1), (2, 17), (17, 2)])
def test_a_stage_begins_when_the_one_before_it_is_over(first: int, second: int) -> None:
    for _ in range(100):
        done, seen = np.zeros(first, np.int64), np.zeros(second, np.int64)
        _two_stages(first, first + second, done, seen)
        assert seen.tolist() == [first] * second


@pytest.mark.usefixtures("two_threads")
def test_two_threads_work_at_the_same_time() -> None:
    met = np.zeros(3, np.int64)
    for _ in range(100):  # the worker may still be waking up
        met[:] = 0
        _meet(2, 10_000_000, met)
        if met[1:].all():
            break
    assert met.tolist() == [2, 1, 1]


@pytest.mark.usefixtures("two_threads")
def test_a_worker_that_fell_asleep_is_woken() -> None:
    _counted(2)
    pool = threads._pool
    assert pool is not None
    for _ in range(1000):
        if pool._asleep == [True]:
            break
        threading.Event().wait(0.01)
    assert pool._asleep == [True]
    test_two_threads_work_at_the_same_time()


@threads.parallel("i8,i8[::1]")
def _leave_early(task: Any, tasks: Any, longer: Any, met: Any) -> None:
    """Two threads meet; task 0 ends at once, task 1 counts on."""
    address = met.ctypes.data
    thread_pool._add(address, 0, 1)
    for _ in range(longer):
        if thread_pool._get(address, 0) >= tasks:
            met[1 + task] = 1
            break
    for _ in range(longer if task == 1 else 0):
        thread_pool._add(address, 3, 1)


@pytest.mark.usefixtures("two_threads")
def test_a_caller_returns_when_the_last_task_has_ended() -> None:
    """However long that takes: after polling for a moment, it sleeps."""
    longer = 3_000_000  # about 20 milliseconds
    for _ in range(20):
        met = np.zeros(4, np.int64)
        _leave_early(2, longer, met)
        assert met[3] == longer
    assert _counted(5) == [5] * 5


def test_a_task_without_memory_raises_and_the_pool_lives_on() -> None:
    with pytest.raises(MemoryError, match="a kernel ran out of memory"):
        _allocate(3, 1 << 58)
    assert _counted(5) == [5] * 5


def test_calls_from_several_threads() -> None:
    wrong: list[list[int]] = []

    def call() -> None:
        for parts in range(2, 200):
            done = _counted(parts)
            if done != [parts] * parts:
                wrong.append(done)

    callers = [threading.Thread(target=call, daemon=True) for _ in range(7)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
        assert not caller.is_alive()
    assert not wrong


def _count_in_child(results: multiprocessing.SimpleQueue[list[int]]) -> None:
    results.put(_counted(5))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    _counted(3)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_count_in_child, args=(results,))
    child.start()
    child.join(timeout=60)
    assert child.exitcode == 0
    assert results.get() == [5] * 5


@pytest.mark.parametrize("work, smallest, tasks", [(0, 5, 1), (4, 5, 1), (11, 5, 2), (1000, 7, 8)])
def test_how_many_tasks_some_work_makes(work: int, smallest: int, tasks: int) -> None:
    assert threads.task_count(work, smallest) == tasks


@pytest.mark.parametrize("rows, tasks", [(3, 1), (11, 3), (2, 5)])
def test_slices_cover_all_rows(rows: int, tasks: int) -> None:
    bounds = [threads.slice_of.py_func(task, tasks, rows) for task in range(tasks)]
    assert [begin for begin, _ in bounds] == [0, *(end for _, end in bounds[:-1])]
    assert bounds[-1][1] == rows


def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PELLUCID_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.available() == 3
    monkeypatch.setenv("PELLUCID_THREADS", "5")
    assert threads.available() == 5

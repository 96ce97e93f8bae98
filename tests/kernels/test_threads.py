from __future__ import annotations

import itertools
import multiprocessing
import sys
import threading

import pytest

from pellucid.kernels import threads


@pytest.mark.parametrize("parts", [0, 1, 2, 17])
def test_every_part_is_done_once(parts: int) -> None:
    done: list[int] = []
    threads.run(done.append, parts)
    assert sorted(done) == list(range(parts))


def test_two_threads_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_THREADS", "2")
    monkeypatch.setattr(threads, "_pool", None)
    both = threading.Barrier(2, timeout=30)
    threads.run(lambda part: both.wait() and None, 2)


def test_an_error_reaches_the_caller_and_the_pool_lives_on() -> None:
    def fail(part: int) -> None:
        raise ValueError("part 0 fails") if part == 0 else KeyError(part)

    with pytest.raises((ValueError, KeyError)):
        threads.run(fail, 3)
    done: list[int] = []
    threads.run(done.append, 5)
    assert len(done) == 5


def test_calls_from_several_threads() -> None:
    done: list[int] = []
    callers = [
        threading.Thread(target=threads.run, args=(done.append, 13), daemon=True) for _ in range(7)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
    assert sorted(done) == sorted(list(range(13)) * 7)


def _sum_in_child(results: multiprocessing.SimpleQueue[list[int]]) -> None:
    done: list[int] = []
    threads.run(done.append, 5)
    results.put(sorted(done))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    threads.run(lambda part: None, 3)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_sum_in_child, args=(results,))
    child.start()
    child.join(timeout=60)
    assert child.exitcode == 0
    assert results.get() == list(range(5))


@pytest.mark.parametrize("rows, smallest", [(0, 5), (4, 5), (11, 5), (1000, 7)])
def test_slices_cover_all_rows(rows: int, smallest: int) -> None:
    bounds = threads.cut(rows, smallest)
    assert bounds[0] == 0
    assert bounds[-1] == rows
    widths = [b - a for a, b in itertools.pairwise(bounds)]
    assert len(widths) <= 8
    assert min(widths) >= min(smallest, rows)


def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.available() == 3
    monkeypatch.setenv("PELLUCID_THREADS", "5")
    assert threads.available() == 5

"""benchmarks/cores.py: the predicted time of a kernel call on more cores."""

from __future__ import annotations

import itertools

import pytest

from pellucid.kernels.backend import threads


@pytest.mark.parametrize(("ends", "fraction"), [((7,), 2 / 7), ((3, 10), 3 / 10)])
def test_each_stage_of_a_call_takes_its_turns(
    ends: tuple[int, ...], fraction: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_THREADS", "1")  # importing it sets this
    from benchmarks import cores

    clock = itertools.count()
    monkeypatch.setattr(cores.time, "thread_time", lambda: float(next(clock)))
    calls = cores.Calls(4)
    kernel = threads.parallel(stages=len(ends))(lambda task, *more: None)
    calls.around(lambda kernel, *arguments: None)(kernel, 0, -1, *ends)
    (predicted,), (tasks,) = calls.predicted.values(), calls.tasks.values()
    assert predicted == pytest.approx(fraction)
    assert tasks == [ends[-1]]

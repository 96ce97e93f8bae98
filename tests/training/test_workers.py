"""What becomes of workers when one of them fails, hangs or differs."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.copying import MODEL, held_out
from tests.training.together import FAMILIES, IN_PARTS, Reversals, assert_equal, together

from pellucid.core.errors import UserError
from pellucid.core.settings import to_mapping
from pellucid.optim.step import DivergedError
from pellucid.training import torch_workers
from pellucid.training.attempts import REPORT, end_all_attempts, is_over
from pellucid.training.events import Stepped
from pellucid.training.launch import without_workers
from pellucid.training.run import RunFolder
from pellucid.training.signals import StopRequest
from pellucid.training.torch_workers import SilentExit, check_alike
from pellucid.training.trainer import Trainer
from pellucid.training.workers import Workers

STEPS = {"steps": 12, "checkpoint_every": 4, "validate_every": 100}


@pytest.mark.oracle("torch")
def test_exchanges_of_three() -> None:
    def work(workers: Workers) -> dict[str, Any]:
        rank = workers.rank
        slices = np.arange(3 * (rank + 1), dtype=np.float32) + 10 * rank
        given, count = np.full(2, 7.0 - rank), np.array([5 - rank])
        workers.broadcast([given, count])
        return {
            "slices": workers.all_to_all(slices, [1, 2, 3]).tolist(),
            "rows": workers.all_gather(np.array([rank, 0.5])).tolist(),
            "given": [*given.tolist(), *count.tolist()],
            "json": workers.broadcast_json({"from": rank}),
            "gathered": workers.gather_json("x" * rank),
        }

    for rank, found in enumerate(together(3, work)):
        assert found == {
            "slices": [10.0 * r + (r + 1) * rank + i for r in range(3) for i in range(r + 1)],
            "rows": [[0, 0.5], [1, 0.5], [2, 0.5]],
            "given": [7, 7, 5],
            "json": {"from": 0},
            "gathered": ["", "x", "xx"],
        }


@pytest.mark.oracle("torch")
def test_one_error_is_reported_once_and_ends_all() -> None:
    def work(workers: Workers) -> None:
        if workers.rank == 1:
            raise UserError("the disk is full")
        workers.all_gather(np.zeros(1))

    first, *others = together(3, work, failing=True)
    assert str(first) == "worker 1: the disk is full"
    assert [(type(e), e.code) for e in others] == [(SilentExit, 1)] * 2


@pytest.mark.oracle("torch")
def test_an_error_of_the_first_worker_is_its_own() -> None:
    def work(workers: Workers) -> None:
        if workers.rank == 0:
            raise UserError("the disk is full")
        workers.all_gather(np.zeros(1))

    first, second = together(2, work, failing=True)
    assert str(first) == "the disk is full"
    assert isinstance(second, SilentExit)


@pytest.mark.oracle("torch")
def test_a_worker_that_ends_as_it_should_takes_the_others_along() -> None:
    """As the first one does after printing help."""
    first, second = together(
        2, lambda w: "done" if w.rank == 0 else w.broadcast_json(None), failing=True
    )
    assert first == "done"
    assert isinstance(second, SilentExit)
    assert second.code == 0


@pytest.mark.oracle("torch")
def test_a_worker_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_workers, "GRACE", 0.5)

    def work(workers: Workers) -> None:
        if workers.rank == 0:
            workers.all_gather(np.zeros(1))
        while not workers._store.check(["reported"]):  # type: ignore[attr-defined]
            time.sleep(0.01)

    first, _ = together(2, work, timeout=1.0, failing=True)
    assert "worker 1 of 2 did not answer for 1 s" in str(first)
    assert "what was saved is whole" in str(first)


@pytest.mark.oracle("torch")
def test_what_differs_between_workers_is_listed() -> None:
    def work(workers: Workers) -> None:
        workers.agree("data", {"training data": "abc" if workers.rank < 2 else "abd"})

    first, *others = together(3, work, failing=True)
    assert "worker 0 and worker 2 have other data" in str(first)
    assert "training data: abc -> abd" in str(first)
    assert all(isinstance(e, SilentExit) for e in others)


@pytest.mark.oracle("torch")
def test_other_software_and_other_arguments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.local()
    found = torch_workers.environment
    monkeypatch.setattr(torch_workers, "environment", lambda: {**found(), **here.changes})

    def work(workers: Workers, key: str, arguments: tuple[str, ...]) -> list[str]:
        here.changes = {key: "0.0.1"} if workers.rank else {}
        return check_alike(workers, arguments[: workers.rank + 1])

    same = ("g2p", "--seed=1")
    software = together(2, lambda w: work(w, "numpy", same[:1]), failing=True)[0]
    assert "worker 0 and worker 1 have other software:\n  numpy: " in str(software)
    arguments = together(2, lambda w: work(w, "python", same), failing=True)[0]
    assert "--seed=1" in str(arguments)
    [line] = together(2, lambda w: work(w, "python", same[:1]))[0]
    assert line.startswith("python: ")
    assert line.endswith(" -> 0.0.1")


@pytest.mark.oracle("torch")
def test_all_workers_diverge_together() -> None:
    def work(workers: Workers) -> None:
        learner = FAMILIES["seq2seq"]()
        for p in learner.parameters():
            p.data[...] = np.inf
        with np.errstate(all="ignore"):
            Trainer(learner, Reversals(3, 13), IN_PARTS, workers=workers).fit()

    found = together(2, work, failing=True)
    assert isinstance(found[0], DivergedError)
    assert "the loss is nan" in str(found[0])


def _trained(folder: Path, workers: Workers, stop_at: int = 0) -> dict[str, Any]:
    """Train in a run folder, to its end or until the last worker gets a signal."""
    config = replace(IN_PARTS, use="ema", **STEPS)
    settings = {"model": to_mapping(MODEL), "training": to_mapping(config)}
    learner, events = FAMILIES["seq2seq"](), []

    def run(opened: RunFolder | None) -> dict[str, Any]:
        trainer = Trainer(
            learner,
            Reversals(13, 13),
            config,
            validation=held_out(),
            run=opened,
            listeners=[events.append],
            workers=workers,
        )
        step = trainer._step

        def stopped(request: StopRequest) -> str:
            if workers.rank == workers.size - 1 and trainer.state.step + 1 == stop_at:
                request.signal = "SIGTERM"
            return step(request)

        trainer._step = stopped  # type: ignore[method-assign]
        result = trainer.fit()
        state = trainer.optimizer.state_dict()
        return {"result": result, "weights": learner.state_dict(), "optimizer": state}

    if workers.rank:
        return run(None)
    with RunFolder(folder, settings, resume=folder.exists()) as opened:
        found = run(opened)
    steps_seen = [e.step for e in events if isinstance(e, Stepped)]
    assert steps_seen[-1] == (stop_at or 12)
    return found


@pytest.mark.oracle("torch")
def test_a_run_stopped_on_four_workers_goes_on_with_one_and_with_two(tmp_path: Path) -> None:
    """The signal reaches the last worker only; all stop after the same step and save it once."""
    whole = together(1, lambda w: _trained(tmp_path / "whole", w))[0]
    for name, sizes in (("a", (4, 1)), ("b", (1, 4, 2))):
        folder = tmp_path / name
        for size, stop_at in zip(sizes[:-1], (5, 9), strict=False):
            for found in together(size, lambda w, f=folder, s=stop_at: _trained(f, w, s)):
                assert (found["result"].interrupted, found["result"].step) == ("SIGTERM", stop_at)
        found = together(sizes[-1], lambda w, f=folder: _trained(f, w))[0]
        assert_equal(found, whole, ["weights", "optimizer"])
        for file in ("model.safetensors", "optimizer.safetensors", "ema.safetensors"):
            last = Path("checkpoints") / "step-00000012" / file
            assert (folder / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()


def test_attempts_after_an_error_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_over()
    end_all_attempts()  # outside torchrun there are none
    report = tmp_path / "attempt_0" / "1" / "error.json"
    report.parent.mkdir(parents=True)
    monkeypatch.setenv(REPORT, str(report))
    assert not is_over()
    end_all_attempts()
    monkeypatch.setenv(REPORT, str(tmp_path / "attempt_1" / "0" / "error.json"))
    assert is_over()


def test_workers_are_not_asked_to_start_workers() -> None:
    assert without_workers(["--workers=2", "x", "--restarts", "1", "--timeout", "5"]) == [
        "x",
        "--timeout",
        "5",
    ]

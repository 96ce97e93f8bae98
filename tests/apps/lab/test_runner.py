"""Runs: once each, going on where they stopped, none lost when something dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.apps.lab.small import STUDY, Here, write_study

from pellucid.apps.lab import trial as trial_module
from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.results import read_results
from pellucid.apps.lab.runner import run_study
from pellucid.apps.lab.study import Trial
from pellucid.apps.lab.study_file import read_study
from pellucid.apps.lab.trial import run_trial
from pellucid.core.errors import UsageError, UserError
from pellucid.core.parts import VARIABLE, use
from pellucid.tasks.metrics import METRICS
from pellucid.training.lock import Lock


def bits(line: Any) -> Any:
    """What must not depend on when and how often a run was stopped."""
    return {k: line[k] for k in ("change", "seed", "id", "metrics", "curve", "probes", "steps")}


def test_every_run_is_done_once_and_its_line_says_all(tmp_path: Path) -> None:
    trials = read_study(write_study(tmp_path)).trials()[:3]
    executor, reported = Here(), list[str]()
    file = tmp_path / "results.jsonl"
    ended = run_study(trials, file, tmp_path / "runs", executor=executor, say=reported.append)
    assert (ended.done, ended.failed, ended.planned) == (3, 0, 3)
    assert reported[0] == "0/3 done"
    assert [line[:9] for line in reported[1:]] == ["1/3 done:", "2/3 done:", "3/3 done:"]
    assert any(": none, seed 0: train_loss " in line for line in reported)
    line = read_results(file)[trials[0].id]
    assert line["settings"]["model.d_model"] == 12
    assert len(line["curve"]["train"]) == len(line["curve"]["valid"]) == 2
    assert [p["step"] for p in line["probes"]] == [0, 3, line["steps"]]
    assert {"parameters", "minutes", "environment", "machine", "answer_tokens"} <= line.keys()
    assert not (tmp_path / "runs" / trials[0].id / "checkpoints").exists()
    again = run_study(trials, file, tmp_path / "runs", executor=executor)
    assert (again.done, executor.calls) == (3, 3)


def test_the_training_loss_is_the_seeds(tmp_path: Path) -> None:
    trial = read_study(write_study(tmp_path)).trials()[0]
    line = run_trial(trial, tmp_path / "run")
    events = [json.loads(e) for e in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    nats = [e["loss_per_sentence"] for e in events if e["event"] == "epoch_ended"]
    assert line["curve"]["train"] == nats
    ratio = nats[-1] / line["metrics"]["train_loss_token"]
    assert ratio == pytest.approx(line["answer_tokens"], rel=1e-12)


def test_probes_do_not_touch_training(tmp_path: Path) -> None:
    trial = read_study(write_study(tmp_path)).trials()[0]
    probed = run_trial(trial, tmp_path / "a")
    plain = run_trial(replace(trial, plan=replace(trial.plan, probe_steps=())), tmp_path / "b")
    assert probed["curve"] == plain["curve"]
    assert probed["probes"][-1] == plain["probes"][-1]


def test_a_failed_run_is_recorded_the_rest_go_on_and_retry_does_it_again(tmp_path: Path) -> None:
    trials = read_study(write_study(tmp_path)).trials()[:2]
    schedule = replace(trials[0].config.training.schedule, lr=1e30)
    wild = replace(trials[0].config.training, schedule=schedule)
    bad = replace(trials[0], config=replace(trials[0].config, training=wild))
    file, runs = tmp_path / "results.jsonl", tmp_path / "runs"
    ended = run_study([bad, trials[1]], file, runs, executor=Here())
    assert (ended.done, ended.failed) == (1, 1)
    line = read_results(file)[bad.id]
    assert line["status"] == "failed"
    assert "diverged" in line["error"]
    executor = Here()
    run_study([bad, trials[1]], file, runs, executor=executor)
    assert executor.calls == 0
    run_study([bad, trials[1]], file, runs, executor=executor, retry=True)
    assert executor.calls == 1


def test_a_result_that_was_not_written_down_is_found_in_its_folder(tmp_path: Path) -> None:
    trial = read_study(write_study(tmp_path)).trials()[0]
    line = run_trial(trial, tmp_path / "runs" / trial.id)
    executor = Here()
    run_study([trial], tmp_path / "results.jsonl", tmp_path / "runs", executor=executor)
    assert read_results(tmp_path / "results.jsonl")[trial.id] == line


SCRIPT = """
import sys
from pathlib import Path
from pellucid.apps.lab.runner import run_study
from pellucid.apps.lab.study_file import read_study
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    trials = read_study(folder / "scale.toml").trials()[:2]
    ended = run_study(trials, folder / "results.jsonl", folder / "runs", workers=1, say=print)
    sys.exit(130 if ended.interrupted else 0)
"""


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a study in `tmp_path` as another process, which does not outlive the test."""
    started: list[subprocess.Popen[bytes]] = []

    def go(text: str = SCRIPT) -> subprocess.Popen[bytes]:
        script = tmp_path / "go.py"
        script.write_text(text)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with (tmp_path / "reported").open("w") as reported:
            process = subprocess.Popen(
                [sys.executable, str(script), str(tmp_path)], env=environment, stdout=reported
            )
        started.append(process)
        return process

    yield go
    for process in started:
        process.kill()
        process.wait()


def wait_for_checkpoint(run: Path) -> None:
    end = time.monotonic() + 600
    while not list(run.glob("checkpoints/step-*")):
        assert time.monotonic() < end, "no checkpoint in ten minutes"
        time.sleep(0.02)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_study_killed_in_the_middle_goes_on_to_the_same_bits(
    tmp_path: Path, start: Start, number: signal.Signals
) -> None:
    trials: list[Trial] = read_study(write_study(tmp_path, epochs=25)).trials()[:2]
    whole = [run_trial(trial, tmp_path / "whole" / trial.id) for trial in trials]
    first = tmp_path / "runs" / trials[0].id
    process = start()
    wait_for_checkpoint(first)
    process.send_signal(number)
    assert process.wait(timeout=60) == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    # The first run may end before the signal reaches it; the second has not.
    assert len(read_results(tmp_path / "results.jsonl")) < len(trials)
    process = start()  # at once: an orphan may still be saving
    assert process.wait(timeout=120) == 0
    lines = read_results(tmp_path / "results.jsonl")
    assert [bits(lines[t.id]) for t in trials] == [bits(line) for line in whole]


def longer(trial: Trial, epochs: int) -> Trial:
    """The same run for more epochs, under the same name."""
    training = replace(trial.config.training, epochs=epochs)
    return replace(trial, config=replace(trial.config, training=training))


def saved_steps(run: Path) -> list[Path]:
    return list(run.glob("checkpoints/step-*"))


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_study_that_is_running_is_not_started_again(tmp_path: Path, start: Start) -> None:
    trials = read_study(write_study(tmp_path, epochs=3000)).trials()[:2]
    process = start()
    wait_for_checkpoint(tmp_path / "runs" / trials[0].id)
    with pytest.raises(UserError, match=f"process {process.pid} is writing to this file"):
        run_study(trials, tmp_path / "results.jsonl", tmp_path / "runs", executor=Here())
    process.terminate()
    assert process.wait(timeout=60) == 130
    assert "stopping: the runs in progress save and end" in (tmp_path / "reported").read_text()
    assert not read_results(tmp_path / "results.jsonl")


def test_a_run_folder_in_use_is_waited_for(tmp_path: Path) -> None:
    trials = read_study(write_study(tmp_path)).trials()[:2]
    folder = tmp_path / "runs" / trials[0].id
    folder.mkdir(parents=True)
    lock, began = Lock(folder / ".lock"), time.monotonic()
    threading.Timer(0.5, lock.release).start()
    ended = run_study(trials, tmp_path / "results.jsonl", tmp_path / "runs", executor=Here())
    assert (ended.done, ended.failed) == (2, 0)
    assert time.monotonic() - began >= 0.5


def test_a_run_folder_that_stays_in_use_is_not_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_module, "PATIENCE", -10.0)
    trials = read_study(write_study(tmp_path)).trials()[:2]
    folder, file = tmp_path / "runs" / trials[0].id, tmp_path / "results.jsonl"
    folder.mkdir(parents=True)
    lock = Lock(folder / ".lock")
    with pytest.raises(UserError, match=r"1 of 2 runs are not done; the same .* sqrt, seed 0: in"):
        run_study(trials, file, tmp_path / "runs", executor=Here())
    assert list(read_results(file)) == [trials[1].id]
    lock.release()
    assert run_study(trials, file, tmp_path / "runs", executor=Here()).done == 2


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
def test_a_process_that_dies_takes_no_other_run_with_it(tmp_path: Path) -> None:
    trials = read_study(write_study(tmp_path)).trials()[:2]
    trials = [longer(trials[0], 100_000), longer(trials[1], 40)]
    file, runs = tmp_path / "results.jsonl", tmp_path / "runs"
    killed: list[str] = []
    neighbours = set[str]()

    def holder(trial: Trial) -> str:
        with suppress(OSError):
            return (runs / trial.id / ".lock").read_text()
        return ""

    def kill() -> None:
        while len(killed) < 3:
            time.sleep(0.05)
            victim, neighbour = map(holder, trials)
            if victim and victim not in killed and (neighbour or killed):
                os.kill(int(victim), signal.SIGKILL)
                killed.append(victim)
                neighbours.update({neighbour} - {""})  # it may have ended by itself

    threading.Thread(target=kill, daemon=True).start()
    ended = run_study(trials, file, runs, workers=2)
    lines = read_results(file)
    assert (ended.done, ended.failed, len(killed)) == (1, 1, 3)
    assert "killed or out of memory (BrokenProcessPool" in lines[trials[0].id]["error"]
    assert lines[trials[1].id]["status"] == "done"
    assert len(neighbours) == 1


def test_a_results_file_that_cannot_be_written_is_found_before_anything_runs(
    tmp_path: Path,
) -> None:
    trials = read_study(write_study(tmp_path)).trials()[:1]
    executor = Here()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder: is a folder, expected a results file"):
        run_study(trials, tmp_path / "folder", tmp_path / "runs", executor=executor)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: cannot be written"):
        run_study(trials, tmp_path / "file" / "r.jsonl", tmp_path / "runs", executor=executor)
    assert executor.calls == 0


def test_a_result_that_cannot_be_appended_stops_the_others_which_save(tmp_path: Path) -> None:
    short, long = read_study(write_study(tmp_path)).trials()[:2]
    long = longer(long, 600)
    file, runs = tmp_path / "results.jsonl", tmp_path / "runs"
    reported: list[str] = []

    def say(line: str) -> None:
        reported.append(line)
        if line == "0/2 done":
            file.unlink()
            file.mkdir()
            short_waits.start()

    def hold_back() -> None:  # the short one ends only when the long one has begun
        while not saved_steps(runs / long.id):
            time.sleep(0.02)
        lock.release()

    (runs / short.id).mkdir(parents=True)
    lock = Lock(runs / short.id / ".lock")
    short_waits = threading.Thread(target=hold_back, daemon=True)
    with pytest.raises(UserError, match=r"results.jsonl: cannot be written"):
        run_study([short, long], file, runs, workers=2, say=say)
    assert saved_steps(runs / long.id)
    assert reported[-1].startswith("stopping: the runs in progress save and end")
    file.rmdir()
    assert run_study([short], file, runs, executor=Here()).done == 1


THREADED = SCRIPT.replace("workers=1", "executor=ThreadPoolExecutor(1)").replace(
    "import sys", "import sys\nfrom concurrent.futures import ThreadPoolExecutor"
)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_executors_runs_save_and_stop_too(tmp_path: Path, start: Start) -> None:
    trials = read_study(write_study(tmp_path, epochs=3000)).trials()[:2]
    runs = tmp_path / "runs"
    process = start(THREADED)
    wait_for_checkpoint(runs / trials[0].id)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert "the runs in progress save and end" in (tmp_path / "reported").read_text()
    assert saved_steps(runs / trials[0].id)
    assert not (runs / trials[1].id).exists()
    assert not list(runs.glob(".stop-*"))
    assert not read_results(tmp_path / "results.jsonl")


class Stuck(Executor):
    """Begins what it is given and never ends it; somebody interrupts it at once."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        signal.raise_signal(signal.SIGINT)
        return future


def test_a_second_signal_leaves_an_executors_runs_which_see_that_they_should_stop(
    tmp_path: Path,
) -> None:
    trial = read_study(write_study(tmp_path)).trials()[0]
    runs = tmp_path / "runs"

    def say(line: str) -> None:
        if line.startswith("stopping"):
            signal.raise_signal(signal.SIGTERM)

    ended = run_study([trial], tmp_path / "results.jsonl", runs, executor=Stuck(), say=say)
    assert ended.interrupted
    (stop,) = runs.glob(".stop-*")
    assert run_trial(trial, runs / trial.id, stop)["status"] == "interrupted"


class Broken(Executor):
    """Loses its only worker, and with it everything that was queued."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(BrokenExecutor("a worker died"))
        return future


def test_runs_that_a_broken_executor_never_began_are_not_failed(tmp_path: Path) -> None:
    trials = read_study(write_study(tmp_path)).trials()[:3]
    file, runs = tmp_path / "results.jsonl", tmp_path / "runs"
    with pytest.raises(UserError, match="3 of 3 runs are not done; the same command does them"):
        run_study(trials, file, runs, executor=Broken())
    assert not read_results(file)
    assert run_study(trials, file, runs, executor=Here()).done == 3


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_workers_than_one_are_refused(tmp_path: Path, workers: int) -> None:
    with pytest.raises(UsageError, match=f"workers must be at least 1, got {workers}"):
        run_study([], tmp_path / "results.jsonl", tmp_path / "runs", workers=workers)


OWN_METRIC = """
from pellucid.tasks.metric import Measured, Metric
from pellucid.tasks.metrics import METRICS

def compute(answers, references, intervals):
    wrong = sum(len(a) != len(r[0]) for a, r in zip(answers, references)) / len(answers)
    return Measured({"wrong_length": wrong}, {"wrong_length": wrong}, {})

METRICS["lengths"] = Metric("lengths", "wrong lengths", {"wrong_length": False}, compute)
"""


def test_a_run_in_its_own_process_has_the_metric_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(OWN_METRIC, encoding="utf-8")
    monkeypatch.setenv(VARIABLE, "")
    use(str(tmp_path / "own.py"))
    study = write_study(tmp_path)
    recipe = (tmp_path / "recipe.toml").read_text(encoding="utf-8")
    recipe = recipe.replace("[training]", '[training]\nmonitor = "wrong_length"')
    recipe += '[search]\nmax_length = 3\n[evaluation]\nmetric = "lengths"\npairs = 3\n'
    (tmp_path / "recipe.toml").write_text(recipe, encoding="utf-8")
    try:
        trials = read_study(study).trials()[:1]
        file = tmp_path / "results.jsonl"
        ended = run_study(trials, file, tmp_path / "runs", workers=1)
    finally:
        del METRICS["lengths"]
    line = read_results(file)[trials[0].id]
    assert (ended.done, line.get("error")) == (1, None)
    assert "wrong_length" in line["metrics"]


OWN_MEASURE = """
from pellucid.apps.lab.measures import MEASURES, Measure

MEASURES["layers"] = Measure("layers", "Layers", lambda seen: {"layers": len(seen.maps)})
"""


def test_a_run_in_its_own_process_has_the_measure_of_its_study(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_MEASURE, encoding="utf-8")
    asked = STUDY.replace("probe_steps", 'imports = ["own.py"]\nmeasures = ["layers"]\nprobe_steps')
    try:
        trials = read_study(write_study(tmp_path, asked)).trials()[:1]
    finally:
        MEASURES.pop("layers", None)
    run_study(trials, tmp_path / "results.jsonl", tmp_path / "runs", workers=1)
    line = read_results(tmp_path / "results.jsonl")[trials[0].id]
    assert [probe["layers"] for probe in line["probes"]] == [3] * len(line["probes"])

"""Runs: once each, going on where they stopped, none lost when something dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.small import Here, write_study

from pellucid.errors import UserError
from pellucid.lab.results import append_result, read_results
from pellucid.lab.runner import run_study
from pellucid.lab.study import Trial
from pellucid.lab.study_file import read_study
from pellucid.lab.trial import run_trial


def bits(line: Any) -> Any:
    """What must not depend on when and how often a run was stopped."""
    return {k: line[k] for k in ("change", "seed", "id", "metrics", "curve", "probes", "steps")}


def test_every_run_is_done_once_and_its_line_says_all(tmp_path: Path) -> None:
    trials = read_study(write_study(tmp_path)).trials()[:3]
    executor, said = Here(), []
    file = tmp_path / "results.jsonl"
    ended = run_study(trials, file, tmp_path / "runs", executor=executor, say=said.append)
    assert (ended.done, ended.failed, ended.planned) == (3, 0, 3)
    assert said[0] == "0/3 done"
    assert [line[:9] for line in said[1:]] == ["1/3 done:", "2/3 done:", "3/3 done:"]
    assert any(": none, seed 0: train_loss " in line for line in said)
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
    plain = run_trial(replace(trial, probe_steps=()), tmp_path / "b")
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
from pellucid.lab.runner import run_study
from pellucid.lab.study_file import read_study
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    trials = read_study(folder / "scale.toml").trials()[:2]
    ended = run_study(trials, folder / "results.jsonl", folder / "runs", workers=1, say=print)
    sys.exit(130 if ended.interrupted else 0)
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    script = folder / "go.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def wait_for_checkpoint(run: Path) -> None:
    end = time.monotonic() + 60
    while not list(run.glob("checkpoints/step-*")):
        assert time.monotonic() < end, "no checkpoint in a minute"
        time.sleep(0.02)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_study_killed_in_the_middle_goes_on_to_the_same_bits(
    tmp_path: Path, number: signal.Signals
) -> None:
    trials: list[Trial] = read_study(write_study(tmp_path, epochs=60)).trials()[:2]
    whole = [run_trial(trial, tmp_path / "whole" / trial.id) for trial in trials]
    first = tmp_path / "runs" / trials[0].id
    process = start(tmp_path)
    wait_for_checkpoint(first)
    process.send_signal(number)
    assert process.wait(timeout=60) == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    assert not read_results(tmp_path / "results.jsonl")
    end = time.monotonic() + 30  # the orphan notices, saves, lets go of its folder
    while number == signal.SIGKILL and not _free(first / ".lock"):
        assert time.monotonic() < end
        time.sleep(0.1)
    process = start(tmp_path)
    assert process.wait(timeout=120) == 0
    lines = read_results(tmp_path / "results.jsonl")
    assert [bits(lines[t.id]) for t in trials] == [bits(line) for line in whole]


def _free(lock: Path) -> bool:
    import fcntl

    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def test_a_half_written_last_line_gives_way_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    append_result(file, {"format": 1, "id": "a", "status": "done"})
    with file.open("a") as f:
        f.write('{"format": 1, "id": "b"')
    assert list(read_results(file)) == ["a"]
    append_result(file, {"format": 1, "id": "c", "status": "done"})
    assert list(read_results(file)) == ["a", "c"]
    file.write_text('{"id": \n' + file.read_text())
    with pytest.raises(UserError, match=r"results.jsonl, line 1: is damaged"):
        read_results(file)


def test_results_of_another_version_are_named(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    append_result(file, {"format": 7, "id": "a"})
    with pytest.raises(UserError, match="line 1: results format 7, this Pellucid reads 1"):
        read_results(file)

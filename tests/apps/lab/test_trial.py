"""One run by itself: what it believes, what it refuses, and what is no result."""

from __future__ import annotations

import errno
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.lab.small import write_study
from threadpoolctl import threadpool_limits

from pellucid.apps.lab.metrics import value_of
from pellucid.apps.lab.study import Trial
from pellucid.apps.lab.study_file import read_study
from pellucid.apps.lab.trial import data_digest, read_probes, run_trial
from pellucid.training.events import TIME_FIELDS
from pellucid.training.experiment import read_data, train_run
from pellucid.training.lock import Lock


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return read_study(write_study(tmp_path)).trials()[0]


def learned(line: Any) -> Any:
    return {k: line[k] for k in ("id", "metrics", "curve", "probes", "steps", "data")}


def test_a_line_says_what_data_it_is_of(trial: Trial, tmp_path: Path) -> None:
    before = run_trial(trial, tmp_path / "a")
    assert before["data"] == data_digest(read_data(trial.config))
    assert (tmp_path / "a" / "data.sha256").read_text() == before["data"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(pairs.read_text().replace("six six", "six six six"))
    after = run_trial(trial, tmp_path / "b")
    assert after["data"] != before["data"]
    assert after["id"] == before["id"]


def test_a_run_of_a_study_learns_what_a_run_by_itself_does(trial: Trial, tmp_path: Path) -> None:
    run_trial(trial, tmp_path / "lab")
    with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
        train_run(trial.config, tmp_path / "alone")
    curves = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("lab", "alone")]
    lab, alone = ([timeless(line) for line in curve.splitlines()] for curve in curves)
    assert len(lab) > 3
    assert lab == alone


def timeless(line: str) -> dict[str, Any]:
    return {k: v for k, v in json.loads(line).items() if k not in TIME_FIELDS}


def test_every_side_of_the_data_counts(trial: Trial) -> None:
    pairs = read_data(trial.config)
    train, valid = pairs.train, pairs.valid
    kinds = [
        pairs,
        replace(pairs, train=train[:-1]),
        replace(pairs, train=train[::-1]),
        replace(pairs, valid=valid[:-1]),
        replace(pairs, valid=valid[:-1], test=valid[-1:]),
        replace(pairs, train=(*train, *valid), valid=()),
    ]
    assert len({data_digest(kind) for kind in kinds}) == len(kinds)


def test_losses_of_training_are_of_whole_epochs(trial: Trial, tmp_path: Path) -> None:
    def ended_at(steps: int) -> Any:
        training = replace(trial.config.training, epochs=None, steps=steps)
        config = replace(trial.config, training=training)
        return run_trial(replace(trial, config=config), tmp_path / str(steps))

    whole = run_trial(trial, tmp_path / "whole")
    an_epoch = whole["steps"] // 2
    assert an_epoch > 1
    less, more = ended_at(an_epoch - 1), ended_at(an_epoch + 1)
    assert "train_loss" not in less["metrics"]
    assert value_of(less, "epochs_to_0.5") is None
    assert more["metrics"]["train_loss"] == whole["curve"]["train"][0]
    assert value_of(more, "epochs_to_0.5") == math.inf


def changed(trial: Trial, **training: Any) -> Trial:
    """Return a trial of a study whose recipe monitors an error rate, with other training."""
    config = replace(
        trial.config,
        training=replace(trial.config.training, **training),
        evaluation=replace(trial.config.evaluation, metric="error_rates"),
    )
    return replace(trial, config=config)


def test_a_score_of_answers_can_be_monitored(trial: Trial, tmp_path: Path) -> None:
    line = run_trial(changed(trial, monitor="per"), tmp_path / "run")
    assert line["status"] == "done", line["error"]
    events = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().split("\n")[:-1]
    ]
    assert all(event["scores"]["per"] > 0 for event in events if event["event"] == "validated")


def test_every_validation_is_in_the_curve(trial: Trial, tmp_path: Path) -> None:
    line = run_trial(changed(trial, validate_unit="steps", validate_every=4), tmp_path / "run")
    every = [*range(4, line["steps"], 4), line["steps"]]
    an_epoch = line["steps"] / 2
    assert len(every) > 2
    assert line["curve"]["valid_epoch"] == pytest.approx([step / an_epoch for step in every])
    assert line["metrics"]["valid_loss"] == line["curve"]["valid"][-1]
    assert line["metrics"]["best_valid_loss"] == min(line["curve"]["valid"])


def test_only_a_test_set_has_a_test_loss(trial: Trial, tmp_path: Path) -> None:
    line = run_trial(trial, tmp_path / "without")
    assert "test_loss" not in line["metrics"]
    assert line["metrics"]["valid_loss"] > 0
    (tmp_path / "test.tsv").write_text("source\ttarget\n78\tseven eight\n89\teight nine\n")
    data = replace(trial.config.data, test=(tmp_path / "test.tsv",))
    tested = replace(trial, config=replace(trial.config, data=data))
    assert run_trial(tested, tmp_path / "with")["metrics"]["test_loss"] > 0


def test_a_run_does_not_go_on_with_other_data(trial: Trial, tmp_path: Path) -> None:
    folder, pairs = tmp_path / "run", tmp_path / "pairs.tsv"
    whole = run_trial(trial, tmp_path / "whole")
    began = interrupted_run(trial, folder)
    assert began["status"] == "interrupted"
    kept = pairs.read_text()
    pairs.write_text(kept.replace("six six", "six six six"))
    line = run_trial(trial, folder)
    assert line["status"] == "failed"
    assert "this run began with other data (SHA-256 of its pairs " in line["error"]
    assert "delete the folder to start over" in line["error"]
    pairs.write_text(kept)
    assert learned(run_trial(trial, folder)) == learned(whole)


@pytest.mark.filterwarnings("default")
def test_a_result_of_other_data_is_made_again_with_these(
    trial: Trial, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, pairs = tmp_path / "run", tmp_path / "pairs.tsv"
    before = run_trial(trial, folder)
    pairs.write_text(pairs.read_text().replace("six six", "six six six"))
    assert learned(run_trial(trial, folder)) == learned(run_trial(trial, tmp_path / "whole"))
    assert f"result.json: is of other data (SHA-256 of its pairs {before['data'][:12]}…, n" in (
        caplog.text
    )
    assert (folder / "data.sha256").read_text() != before["data"]


def test_a_result_from_before_data_were_kept_is_believed(trial: Trial, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = run_trial(trial, folder)
    del before["data"]
    (folder / "result.json").write_text(json.dumps(before))
    (tmp_path / "pairs.tsv").unlink()
    assert run_trial(trial, folder) == before


def interrupted_run(trial: Trial, folder: Path) -> Any:
    """Stop a run at its first checkpoint, as an executor's are."""
    return run_trial(trial, folder, stop=folder / "checkpoints")


def test_a_folder_from_before_data_were_kept_goes_on(trial: Trial, tmp_path: Path) -> None:
    whole = run_trial(trial, tmp_path / "whole")
    folder = tmp_path / "run"
    interrupted_run(trial, folder)
    (folder / "data.sha256").unlink()
    assert learned(run_trial(trial, folder)) == learned(whole)


def test_a_finished_run_is_not_done_again(trial: Trial, tmp_path: Path) -> None:
    line = run_trial(trial, tmp_path / "run")
    assert run_trial(trial, tmp_path / "run") == line


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("error", "reported"),
    [
        ("empty", "is damaged (not a line of results)"),
        ("format 2", "results format 2, this Pellucid reads 1"),
        ("another run's", "is not the result of run "),
        ("failed", "is not the result of run "),
    ],
)
def test_a_result_that_cannot_be_believed_is_made_again(
    trial: Trial, tmp_path: Path, error: str, reported: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    line = run_trial(trial, folder)
    wrong = {
        "empty": "",
        "format 2": json.dumps({**line, "format": 2}),
        "another run's": json.dumps({**line, "id": "0" * 12}),
        "failed": json.dumps({**line, "status": "failed", "error": "oh"}),
    }
    (folder / "result.json").write_text(wrong[error])
    assert learned(run_trial(trial, folder)) == learned(line)
    assert f"result.json: {reported}" in caplog.text
    assert "; the run is done again" in caplog.text
    assert learned(json.loads((folder / "result.json").read_text())) == learned(line)


def test_a_run_that_starts_over_has_no_probes_of_the_run_before(
    trial: Trial, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    steps = [probe["step"] for probe in run_trial(trial, folder)["probes"]]
    (folder / "result.json").write_text("")
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    probes = folder / "probes.jsonl"
    late = json.loads(probes.read_text().splitlines()[-1])
    with probes.open("a") as file:
        file.write(json.dumps({**late, "step": late["step"] + 100}) + "\n")
    assert [probe["step"] for probe in run_trial(trial, folder)["probes"]] == steps


def test_a_line_of_probes_without_a_step_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "probes.jsonl"
    path.write_text('{"step": 5, "a": 1}\n{"a": 2}\n[3]\n{"step": 2}\n{"st', encoding="utf-8")
    assert read_probes(path) == [{"step": 2}, {"step": 5, "a": 1}]


def test_a_folder_in_use_is_no_failure(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.apps.lab.trial.PATIENCE", -10.0)
    folder = tmp_path / "run"
    folder.mkdir()
    lock = Lock(folder / ".lock")
    line = run_trial(trial, folder)
    lock.release()
    assert line["status"] == "in use"
    assert "in use by process" in line["error"]
    assert run_trial(trial, folder)["status"] == "done"


def test_a_full_disk_is_no_failure(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_trial(trial, tmp_path / "whole")
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 9:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pellucid.system.files.os.fsync", full)
        line = run_trial(trial, tmp_path / "run")
    assert line["status"] == "not saved"
    assert "No space left on device" in line["error"]
    assert learned(run_trial(trial, tmp_path / "run")) == learned(whole)

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.core.errors import UsageError, UserError
from pellucid.training.checkpoint import TrainerState
from pellucid.training.events import EpochEnded
from pellucid.training.lock import Lock
from pellucid.training.run import (
    RunFolder,
    check_resumed,
    read_metrics,
    read_settings,
)

SETTINGS = {"model": {"d_model": 64, "heads": [2, 3]}, "training": {"lr": 1e-3}}


def begun(path: Path, settings: Any = SETTINGS, **options: Any) -> RunFolder:
    run = RunFolder(path, settings, **options)
    run.begin()
    return run


def save(run: RunFolder, step: int) -> None:
    weights = {"w": np.full(3, step, np.float32)}
    run.save(TrainerState(step), weights, {"exp_avg.w": np.zeros(3)}, [step - 1], {})


def events(*steps: int) -> list[EpochEnded]:
    return [EpochEnded(step, 0.5, 1.0, 2.0, 3.0) for step in steps]


def recorded(folder: Path) -> list[int]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["step"] for line in lines]


def test_a_new_run(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with RunFolder(folder, SETTINGS) as run:
        assert run.checkpoint is None
        assert [p.name for p in folder.iterdir()] == [".lock"]
        run.begin()
    assert read_settings(folder) == SETTINGS
    assert recorded(folder) == []


@pytest.mark.parametrize(
    ("folder", "files", "named"),
    [
        ("run\udcff", ["a.tsv"], "run: '.*run.udcff'"),
        ("run", ["a", "b\udcff"], "data.train: 'b.udcff'"),
    ],
)
def test_a_name_that_is_not_utf8_is_refused_before_anything_is_written(
    tmp_path: Path, folder: str, files: list[str], named: str
) -> None:
    with pytest.raises(UsageError, match=f"{named} is not UTF-8.*; rename it"):
        RunFolder(tmp_path / folder, {**SETTINGS, "data": {"train": files}})
    assert not list(tmp_path.iterdir())


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        for event in events(1, 2):
            run.metrics(event)
        save(run, 2)
        for event in events(3, 4):
            run.metrics(event)
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"event": "half a li')
    (tmp_path / "checkpoints" / ".tmp-step-00000004").mkdir()
    with begun(tmp_path, resume=True) as run:
        assert run.checkpoint is not None
        assert run.checkpoint.step == 2
        np.testing.assert_array_equal(run.checkpoint.weights["w"], np.full(3, 2, np.float32))
        assert recorded(tmp_path) == [1, 2]
        assert [p.name for p in run.checkpoints.iterdir()] == ["step-00000002"]
        run.metrics(events(5)[0])
    assert recorded(tmp_path) == [1, 2, 5]


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        run.metrics(events(1)[0])
    with begun(tmp_path, resume=True) as run:
        assert run.checkpoint is None
    assert recorded(tmp_path) == []


def test_a_run_killed_before_anything_was_written_begins_again(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    with begun(tmp_path, resume=True) as run:
        assert run.checkpoint is None
    assert read_settings(tmp_path) == SETTINGS


def test_metrics_that_lost_lines_are_refused(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        run.metrics(events(1)[0])
        save(run, 1)
    (tmp_path / "metrics.jsonl").write_bytes(b"")
    with pytest.raises(UserError, match=r"metrics\.jsonl: has fewer than the 1 line it"):
        RunFolder(tmp_path, SETTINGS, resume=True)


@pytest.mark.parametrize("damage", [b"\xff", b"7"])
def test_metrics_that_were_changed_are_refused(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with begun(tmp_path) as run:
        run.metrics(events(1)[0])
        save(run, 1)
    with begun(tmp_path, resume=True) as run:  # what it had before counts in the next digest
        run.metrics(events(2)[0])
        save(run, 2)
    begun(tmp_path, resume=True).close()
    metrics = tmp_path / "metrics.jsonl"
    before = metrics.read_bytes()
    metrics.write_bytes(before[:40] + damage + before[41:])
    with pytest.raises(UserError, match=r"metrics\.jsonl: was changed .* `accept_changes`"):
        RunFolder(tmp_path, SETTINGS, resume=True)
    with begun(tmp_path, resume=True, accept_changes=True):
        assert "metrics.jsonl: was changed" in caplog.text


@pytest.mark.parametrize("name", ["model", "checkpoints"])
def test_a_file_in_place_of_a_folder_of_the_run(tmp_path: Path, name: str) -> None:
    begun(tmp_path).close()
    (tmp_path / "checkpoints").rmdir()
    (tmp_path / name).write_text("the user's own", encoding="utf-8")
    with pytest.raises(UserError, match=f"{name}: is a file"):
        RunFolder(tmp_path, SETTINGS, resume=True)
    assert (tmp_path / name).read_text(encoding="utf-8") == "the user's own"


def test_a_setting_newer_than_the_run_had_its_default(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        save(run, 1)
    newer = SETTINGS | {"training": {**SETTINGS["training"], "seed": 0}}
    with RunFolder(tmp_path, newer, resume=True) as run:
        assert run.checkpoint is not None
    newer["training"]["seed"] = 2
    with pytest.raises(UserError, match=r"training\.seed: 0 -> 2"):
        RunFolder(tmp_path, newer, resume=True)


@pytest.mark.parametrize("saved", [True, False])
def test_changed_settings_are_listed(tmp_path: Path, saved: bool) -> None:
    with begun(tmp_path) as run:
        if saved:
            save(run, 1)
    changed = {"model": {"d_model": 128, "heads": [2, 3]}, "training": {"lr": 1e-3, "steps": 1}}
    with pytest.raises(UserError) as raised:
        RunFolder(tmp_path, changed, resume=True)
    reported = str(raised.value)
    assert "model.d_model: 64 -> 128" in reported
    assert "training.steps: unset -> 1" in reported
    assert "heads" not in reported
    assert "accept them (to train longer, for example) with `accept_changes`" in reported
    assert read_settings(tmp_path) == SETTINGS


def test_some_settings_can_be_compared_before_the_folder_is_opened(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        assert not check_resumed(tmp_path, {"model": {"d_model": 10**9}})
        save(run, 1)
        assert check_resumed(tmp_path, {"model": SETTINGS["model"]})
        assert check_resumed(tmp_path, {"model": {"d_model": 64}})
        with pytest.raises(UserError, match=r"not those of the run:\n  model.d_model: 64 -> 10000"):
            check_resumed(tmp_path, {"model": {"d_model": 10**9}})


def test_changes_can_be_accepted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with begun(tmp_path) as run:
        save(run, 1)
    changed = {**SETTINGS, "training": {"lr": 2e-3}}
    begun(tmp_path, changed, resume=True, accept_changes=True).close()
    assert "training.lr: 0.001 -> 0.002" in caplog.text
    assert read_settings(tmp_path) == changed


SCORED = {"training": {"lr": 1e-3}, "held_out": "pairs"}


@pytest.mark.parametrize(
    ("before", "now", "rescored"),
    [
        (SCORED, SCORED, False),
        (SCORED, {**SCORED, "held_out": "other pairs"}, True),
        (SCORED, {**SCORED, "training": {"lr": 2e-3}}, True),
        (None, None, False),
        (None, SCORED, False),
        ({"x": float("inf")}, {"x": float("inf")}, False),
    ],
)
def test_it_sees_whether_evaluation_settings_changed(
    tmp_path: Path, before: Any, now: Any, rescored: bool
) -> None:
    with begun(tmp_path, scoring=before) as run:
        assert not run.rescored
        save(run, 1)
    with begun(tmp_path, resume=True, scoring=now) as run:
        assert bool(run.rescored) is rescored
        save(run, 2)
    with begun(tmp_path, resume=True, scoring=now) as run:
        assert not run.rescored


def test_another_place_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"numpy": "1", "blas threads": "2"}
    monkeypatch.setattr("pellucid.training.run.environment", lambda: place)
    with begun(tmp_path) as run:
        save(run, 1)
    caplog.set_level(logging.WARNING)
    with begun(tmp_path, resume=True):
        assert caplog.text == ""
    monkeypatch.setattr("pellucid.training.run.environment", lambda: place | {"blas threads": "4"})
    with begun(tmp_path, resume=True):
        assert "blas threads: 2 -> 4" in caplog.text
        assert "no longer be the same bit for bit" in caplog.text


def test_a_folder_in_use(tmp_path: Path) -> None:
    with RunFolder(tmp_path, SETTINGS):
        for resume in (True, False):
            with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
                RunFolder(tmp_path, SETTINGS, resume=resume)
    RunFolder(tmp_path, SETTINGS, resume=True).close()


def test_where_a_lock_keeps_its_holder_from_writing_nobody_knows_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows: the first byte of the file is locked, against every other handle."""
    monkeypatch.setattr(sys, "platform", "win32")
    lock = Lock(tmp_path / ".lock")
    assert (tmp_path / ".lock").read_bytes() == b""
    with pytest.raises(UserError, match="in use by process unknown"):
        Lock(tmp_path / ".lock")
    lock.release()
    Lock(tmp_path / ".lock").release()


def test_a_folder_in_use_by_another_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from pellucid.training.run import RunFolder\n"
        "run = RunFolder(Path(sys.argv[1]), {}); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        with pytest.raises(UserError, match=f"in use by process {holder.pid}"):
            RunFolder(tmp_path, {}, resume=True)
    finally:
        holder.kill()
        holder.communicate()
    RunFolder(tmp_path, {}, resume=True).close()


def test_a_folder_that_holds_a_run(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        save(run, 1)
    with pytest.raises(UserError, match=r"already holds a run.*--resume"):
        RunFolder(tmp_path, SETTINGS)


@pytest.mark.parametrize(
    "name",
    ["config.toml", "metrics.jsonl", "checkpoints/mine", "model/weights.bin", "tokenizer.json"],
)
def test_a_folder_with_files_of_the_users_own_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious")
    held = "a run" if name == "config.toml" else Path(name).parts[0]
    with pytest.raises(UserError, match=f"already holds {held}.*another folder"):
        RunFolder(tmp_path, SETTINGS, further={"tokenizer.json": b"{}"})
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()] == [name]
    (tmp_path / ".lock").touch()  # a run killed in its first moments is still no leave
    if name != "config.toml":
        for resume in (True, False):
            with pytest.raises(UserError, match="another folder"):
                RunFolder(tmp_path, SETTINGS, resume=resume, further={"tokenizer.json": b"{}"})
    assert (tmp_path / name).read_text() == "precious"


def test_what_is_nobodys_business_does_not_keep_a_run_out(tmp_path: Path) -> None:
    for name in (".tmp-notes", "notes.txt"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "checkpoints").mkdir()
    with begun(tmp_path) as run:
        save(run, 1)
    begun(tmp_path, resume=True).close()
    assert {".tmp-notes", "notes.txt"} <= {p.name for p in tmp_path.iterdir()}


def test_files_next_to_the_settings(tmp_path: Path) -> None:
    begun(tmp_path, further={"tokenizer.json": b"{}"}).close()
    assert (tmp_path / "tokenizer.json").read_bytes() == b"{}"


def test_a_run_that_saved_nothing_can_start_over(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        run.metrics(events(1)[0])
    (tmp_path / ".tmp-config.toml").write_text("half")
    other = {"model": {"d_model": 128}}
    RunFolder(tmp_path, other).close()
    assert recorded(tmp_path) == [1]  # until everything that may refuse is built
    with begun(tmp_path, other) as run:
        save(run, 1)
    assert read_settings(tmp_path) == other
    assert recorded(tmp_path) == []
    assert not (tmp_path / ".tmp-config.toml").exists()


def test_a_run_whose_model_is_made_does_not_start_over(tmp_path: Path) -> None:
    begun(tmp_path).close()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(UserError, match="already holds a run"):
        RunFolder(tmp_path, SETTINGS)


def test_a_run_whose_checkpoints_were_deleted_does_not_start_over(tmp_path: Path) -> None:
    begun(tmp_path).close()
    (tmp_path / "checkpoints").rmdir()
    with pytest.raises(UserError, match="already holds a run"):
        RunFolder(tmp_path, SETTINGS)


def test_nothing_is_written_before_it_begins(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        save(run, 1)
        run.metrics(events(2)[0])
    changed = {**SETTINGS, "training": {"lr": 2e-3}}
    with RunFolder(tmp_path, changed, resume=True, accept_changes=True) as run:
        assert run.changed
    assert read_settings(tmp_path) == SETTINGS
    assert recorded(tmp_path) == [2]


def test_nothing_to_resume(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match="no run here to resume"):
            RunFolder(folder, SETTINGS, resume=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    for resume in (True, False):
        with pytest.raises(UserError, match="is a file"):
            RunFolder(tmp_path / "run", SETTINGS, resume=resume)
    with pytest.raises(UserError, match="cannot be written"):
        RunFolder(tmp_path / "run" / "below", SETTINGS)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(tmp_path) as run:
        run.metrics(events(1)[0])
        save(run, 1)

        def full(*_: object) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr("pellucid.system.files._write", full)
        with pytest.raises(UserError, match=r"step-00000002: cannot be written: No space left"):
            save(run, 2)
        monkeypatch.undo()
    with begun(tmp_path, resume=True) as run:
        assert run.checkpoint is not None
        assert run.checkpoint.step == 1


@pytest.mark.skipif(os.name == "nt", reason="RLIMIT_FSIZE is POSIX's")
def test_metrics_that_cannot_be_written_are_one_clear_error(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from pellucid.core.errors import UsageError, UserError
from pellucid.training.events import EpochEnded
from pellucid.training.run import RunFolder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with RunFolder(Path(sys.argv[1]), {}) as run:
        run.begin()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        while True:
            run.metrics(EpochEnded(1, 0.5, 1.0, 2.0, 3.0))
except UserError as error:
    print(error)
"""
    reported = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "metrics.jsonl: cannot be written: File too large; the checkpoints are whole" in reported
    begun(tmp_path, {}, resume=True).close()
    assert recorded(tmp_path) == []


def test_damaged_settings_are_named(tmp_path: Path) -> None:
    begun(tmp_path).close()
    (tmp_path / "config.toml").write_text("model = [")
    with pytest.raises(UserError, match=r"config\.toml: not valid TOML"):
        RunFolder(tmp_path, SETTINGS, resume=True)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"ev\n{"step": 2}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics.jsonl, line 2: not valid JSON: Unterminated"):
        read_metrics(tmp_path)


def test_a_record_that_was_not_written_whole_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st', encoding="utf-8")
    assert read_metrics(tmp_path) == [{"step": 1}]

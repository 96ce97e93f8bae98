from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.core.errors import UserError
from pellucid.optim.step import Tally
from pellucid.system.files import checksums
from pellucid.training.checkpoint import (
    AVERAGE,
    OPTIMIZER,
    SETTINGS,
    STATE,
    SUMS,
    WEIGHTS,
    Checkpoint,
    SavedState,
    TrainerState,
    checkpoint_paths,
    keep_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)


def checkpoint(step: int) -> Checkpoint:
    g = np.random.default_rng(step)
    weights = {"weight": g.standard_normal((3, 5)).astype(np.float32)}
    optimizer = {"exp_avg.weight": g.standard_normal((3, 5)), "step.weight": np.array(step)}
    average = {"weight": weights["weight"] / 2}
    trainer = TrainerState(step, 1, 1, first_loss=0.1 + step, pass_=Tally(steps=1))
    trainer.best_score, trainer.best_step, trainer.checkpoints = -0.1, 1, (1, step)
    state = SavedState(trainer, 3, {"numpy": "2"}, {"data": "a"}, "b")
    return Checkpoint(weights, optimizer, state, {"lr": 1e-3}, average)


def write(folder: Path, *steps: int) -> list[Path]:
    return [write_checkpoint(folder, checkpoint(step)) for step in steps]


def test_there_and_back(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 17)
    assert path.name == "step-00000017"
    back, given = read_checkpoint(path), checkpoint(17)
    assert (back.step, back.settings) == (17, given.settings)
    assert back.state == given.state
    for ours, theirs in (
        (back.weights, given.weights),
        (back.optimizer, given.optimizer),
        (back.average, given.average),
    ):
        for name, array in theirs.items():
            np.testing.assert_array_equal(ours[name], array)


def test_the_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    if shutil.which("sha256sum") is None:
        pytest.skip("no sha256sum")
    (path,) = write(tmp_path, 1)
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=path, check=True)


def test_the_newest_by_number(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    write(tmp_path, 9, 123456789, 10)
    (tmp_path / ".tmp-step-99999999999").mkdir()
    (tmp_path / "step-notes").mkdir()
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.step == 123456789
    assert [p.name for p in checkpoint_paths(tmp_path)][:2] == ["step-00000009", "step-00000010"]


def test_only_some_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4)
    keep_checkpoints(tmp_path, [2, 4, 7])
    assert [p.name for p in checkpoint_paths(tmp_path)] == ["step-00000002", "step-00000004"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [cut, flip, Path.unlink])
@pytest.mark.parametrize("file", [WEIGHTS, OPTIMIZER, STATE, SETTINGS, AVERAGE])
def test_every_kind_of_damage_names_the_file_and_the_way_out(
    tmp_path: Path, harm, file: str
) -> None:
    _, older, newest = write(tmp_path, 1, 2, 3)
    harm(newest / file)
    with pytest.raises(UserError) as error:
        newest_checkpoint(tmp_path)
    reported = str(error.value)
    assert reported.startswith(str(newest / file))
    assert f"{older} is undamaged: delete {newest} to resume from it" in reported


LOST = object()


@pytest.mark.parametrize("value", [LOST, None, "7", [3], {}, -1, 1e300, True, float("nan")])
@pytest.mark.parametrize(
    "name",
    ["format", "step", "metrics_lines", "environment", "trainer", "trainer.step", "trainer.epoch",
     "trainer.batch", "trainer.seconds", "trainer.useful_tokens", "trainer.window",
     "trainer.pass_", "trainer.pass_.steps", "trainer.window.seconds", "trainer.not_improved",
     "trainer.checkpoints", "trainer.stopped", "trainer.best_step"],
)  # fmt: skip
def test_a_state_edited_under_new_digests_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    right = [("environment", {}), ("trainer.seconds", 1e300), ("trainer.window.seconds", 1e300),
             ("trainer.stopped", None), ("trainer.stopped", "7"), ("trainer.best_step", None),
             ("trainer.checkpoints", [3]), ("format", True)]  # fmt: skip
    _, older, newest = write(tmp_path, 1, 2, 3)
    edit(newest, name, value)
    if (name, value) in right:
        assert read_checkpoint(newest).step == 3
        return
    with pytest.raises(UserError) as error:
        newest_checkpoint(tmp_path)
    reported = str(error.value)
    assert reported.startswith(str(newest))
    assert f"{older} is undamaged: delete {newest}" in reported


@pytest.mark.parametrize(
    ("name", "value"),
    [("trainer.checkpoints", [0]), ("trainer.checkpoints", [1, 4]), ("trainer.best_score", np.nan),
     ("trainer.first_loss", np.inf), ("trainer.running_loss", np.nan),
     ("trainer.window.nats", np.nan), ("trainer.pass_.nats", -np.inf)],
)  # fmt: skip
def test_a_number_of_the_right_type_that_training_never_has_is_refused(
    tmp_path: Path, name: str, value: Any
) -> None:
    (path,) = write(tmp_path, 3)
    edit(path, name, value)
    with pytest.raises(UserError, match=rf"state\.json: .*{name.rpartition('.')[2]}"):
        read_checkpoint(path)


def edit(path: Path, name: str, value: Any) -> None:
    """Edit a key of state.json, and write the digests again."""
    values = json.loads((path / STATE).read_bytes())
    *tables, last = name.split(".")
    table = values
    for key in tables:
        table = table[key]
    if value is LOST:
        del table[last]
    else:
        table[last] = value
    (path / STATE).write_text(json.dumps(values), encoding="utf-8")
    files = {file.name: file.read_bytes() for file in path.iterdir() if file.name != SUMS}
    (path / SUMS).write_bytes(checksums(files))


@pytest.mark.parametrize("content", ["[]", "3", "null", "[" * 10**5, '{"format": 1}', "{}"])
def test_another_state_is_refused(tmp_path: Path, content: str) -> None:
    (path,) = write(tmp_path, 3)
    (path / STATE).write_text(content, encoding="utf-8")
    files = {file.name: file.read_bytes() for file in path.iterdir() if file.name != SUMS}
    (path / SUMS).write_bytes(checksums(files))
    with pytest.raises(UserError, match=r"state\.json: not a Pellucid checkpoint"):
        read_checkpoint(path)


def test_a_state_of_0_1_0_is_read(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 3)
    edit(path, "metrics_sha256", LOST)
    edit(path, "judged_by", LOST)
    assert read_checkpoint(path).state.metrics_sha256 is None


def test_damage_in_two_says_to_delete_both(tmp_path: Path) -> None:
    first, second, third = write(tmp_path, 1, 2, 3)
    flip(third / STATE)
    (second / SUMS).unlink()
    with pytest.raises(UserError) as error:
        newest_checkpoint(tmp_path)
    assert f"{first} is undamaged: delete {second}, {third} to resume" in str(error.value)


def test_that_every_checkpoint_is_damaged_is_reported(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 1)
    flip(path / WEIGHTS)
    with pytest.raises(UserError, match="no older undamaged checkpoint"):
        newest_checkpoint(tmp_path)


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step-00000005"
    path.mkdir()
    (path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UserError, match="not a whole Pellucid checkpoint"):
        read_checkpoint(path)


def test_another_checkpoint_format_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.training.checkpoint.FORMAT", 2)
    (path,) = write(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(UserError, match="checkpoint format 2, this Pellucid reads 1"):
        read_checkpoint(path)

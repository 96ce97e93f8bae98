from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pellucid.training.checkpoint import (
    AVERAGE,
    OPTIMIZER,
    SETTINGS,
    STATE,
    SUMS,
    WEIGHTS,
    Checkpoint,
    CheckpointError,
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
    state = {"trainer": {"loss": 0.1 + step}}
    return Checkpoint(step, weights, optimizer, state, {"lr": 1e-3}, average)


def write(folder: Path, *steps: int) -> list[Path]:
    return [write_checkpoint(folder, checkpoint(step)) for step in steps]


def test_there_and_back(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 17)
    assert path.name == "step-00000017"
    back, given = read_checkpoint(path), checkpoint(17)
    assert (back.step, back.settings) == (17, given.settings)
    assert back.state["trainer"] == given.state["trainer"]
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
    with pytest.raises(CheckpointError) as error:
        newest_checkpoint(tmp_path)
    reported = str(error.value)
    assert reported.startswith(str(newest / file))
    assert f"{older} is undamaged: delete {newest} to resume from it" in reported


def test_damage_in_two_says_to_delete_both(tmp_path: Path) -> None:
    first, second, third = write(tmp_path, 1, 2, 3)
    flip(third / STATE)
    (second / SUMS).unlink()
    with pytest.raises(CheckpointError) as error:
        newest_checkpoint(tmp_path)
    assert f"{first} is undamaged: delete {second}, {third} to resume" in str(error.value)


def test_that_every_checkpoint_is_damaged_is_reported(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 1)
    flip(path / WEIGHTS)
    with pytest.raises(CheckpointError, match="no older undamaged checkpoint"):
        newest_checkpoint(tmp_path)


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step-00000005"
    path.mkdir()
    (path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="not a whole Pellucid checkpoint"):
        read_checkpoint(path)


def test_another_checkpoint_format_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.training.checkpoint.FORMAT", 2)
    (path,) = write(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="checkpoint format 2, this Pellucid reads 1"):
        read_checkpoint(path)

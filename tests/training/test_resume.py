"""Whatever stops a run, and whenever: resumed, it ends with the bits of a run never stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pellucid.training.events import TIME_FIELDS

SCRIPT = Path(__file__).with_name("copying.py")
posix = pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")


def start(folder: Path, *, resume: bool, slowly: float = 0.0) -> subprocess.Popen[str]:
    source = str(SCRIPT.parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, SCRIPT, folder, "yes" if resume else "", str(slowly)]
    return subprocess.Popen(
        [*map(str, command)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path, *, resume: bool) -> None:
    process = start(folder, resume=resume)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def metrics(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(x).items() if k not in TIME_FIELDS} for x in lines]


def assert_same(folder: Path, reference: Path) -> None:
    assert metrics(folder) == metrics(reference)
    ours, theirs = np.load(folder / "final.npz"), np.load(reference / "final.npz")
    assert sorted(ours) == sorted(theirs)
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    names = [sorted(p.name for p in (f / "checkpoints").iterdir()) for f in (folder, reference)]
    assert names[0] == names[1]
    for name in names[1]:
        for file in ("model.safetensors", "optimizer.safetensors", "ema.safetensors"):
            pair = [(f / "checkpoints" / name / file).read_bytes() for f in (folder, reference)]
            assert pair[0] == pair[1], (name, file)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "uninterrupted"
    finish(folder, resume=False)
    return folder


def test_the_reference_learns_and_repeats(uninterrupted: Path, tmp_path: Path) -> None:
    losses = [r["loss"] for r in metrics(uninterrupted) if r["event"] == "trained"]
    assert losses[-1] < 0.9 * losses[0]
    finish(tmp_path / "again", resume=False)
    assert_same(tmp_path / "again", uninterrupted)


@posix
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(uninterrupted: Path, tmp_path: Path, seed: int) -> None:
    """Killed up to three times, from before the first checkpoint on, also while one is written."""
    moment, folder, kills = random.Random(seed), tmp_path / "killed", 0
    for _ in range(3):
        process = start(folder, resume=(folder / ".lock").exists(), slowly=0.001)
        assert process.stdout is not None
        for _ in range(moment.randrange(1, 25)):
            process.stdout.readline()
        time.sleep(moment.random() * 0.03)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills
    finish(folder, resume=True)
    assert_same(folder, uninterrupted)


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_signal_saves_and_says_how_to_go_on(
    uninterrupted: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "stopped"
    process = start(folder, resume=False, slowly=0.2)
    assert process.stdout is not None
    begun = [process.stdout.readline().strip() for _ in range(6)]
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    *_, last, reported = [*begun, *output.splitlines()]
    assert reported == "interrupted"
    assert (folder / "checkpoints" / f"step-{int(last):08d}").is_dir()
    finish(folder, resume=True)
    assert_same(folder, uninterrupted)

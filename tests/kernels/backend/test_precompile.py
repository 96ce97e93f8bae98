"""The process that compiles ahead: what it compiles, in which order, and when it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.kernels.backend import precompile, threads

STEP = """
import numpy as np
from pellucid.kernels.backend.compile import Kernel
from pellucid.models import (Seq2Seq, Seq2SeqConfig)
from pellucid.core.batch import (Batch, Packed)
from pellucid.training.config import TrainingConfig
from pellucid.training.optimizers.model import ModelOptimizer
from pellucid.training.step import train_step

compile = Kernel.compile
def reported(kernel):
    print(kernel.name)
    compile(kernel)
Kernel.compile = reported

model, settings = Seq2Seq(Seq2SeqConfig(17, 19)), TrainingConfig(steps=1)
batch = Batch(Packed.of([[5, 3, 11] * 4]), Packed.of([[1, *[7, 13] * 5, 2]]))
optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)
train_step(model, optimizer, batch, settings, step=1, lr=1e-3)
"""


def test_the_order_is_that_of_a_training_step_from_its_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STEP], env=os.environ | {"PELLUCID_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    used = tuple(reversed(done.stdout.split()))
    assert tuple(name for name in used if not name.startswith("matmul.")) == precompile.TRAINING


def test_the_process_finds_every_kernel() -> None:
    assert precompile._start(precompile.TRAINING).wait(timeout=300) == 0
    assert precompile._start(("adam._cubes",)).wait(timeout=120) != 0


def test_a_file_of_the_current_folder_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert precompile._start(()).wait(timeout=120) == 0


@pytest.mark.parametrize(
    ("processors", "missing", "started"),
    [
        (1, "flash._forward", []),
        (2, "decode.search", []),
        (2, "flash._forward", [precompile.TRAINING]),
    ],
)
def test_it_starts_once_and_only_for_training_with_a_second_processor(
    monkeypatch: pytest.MonkeyPatch,
    processors: int,
    missing: str,
    started: list[tuple[str, ...]],
) -> None:
    asked: list[tuple[str, ...]] = []

    def start(kernels: tuple[str, ...]) -> subprocess.Popen[bytes]:
        asked.append(kernels)
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(precompile, "_start", start)
    monkeypatch.setattr(threads, "available", lambda: processors)
    precompile._begin.cache_clear()
    precompile.begin(missing)
    precompile.begin(missing)
    precompile._begin.cache_clear()
    assert asked == started


def test_a_process_that_cannot_be_started_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(kernels: tuple[str, ...]) -> subprocess.Popen[bytes]:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(precompile, "_start", start)
    monkeypatch.setattr(threads, "available", lambda: 2)
    precompile._begin.cache_clear()
    precompile.begin("flash._forward")
    precompile._begin.cache_clear()

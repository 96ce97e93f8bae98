"""The process that compiles ahead: what it compiles, in which order, and when it is started."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pellucid.kernels import ahead, threads

STEP = """
import numpy as np
from pellucid.kernels.compile import Kernel
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.packed import Batch, Packed
from pellucid.training import TrainConfig
from pellucid.training.optim import Adam
from pellucid.training.step import train_step

ready = Kernel.ready
def told(kernel):
    print(kernel._f.__module__.rsplit(".", 1)[1] + "." + kernel._f.__name__)
    ready(kernel)
Kernel.ready = told

model, settings = Seq2Seq(Seq2SeqConfig(17, 19)), TrainConfig(steps=1)
batch = Batch(Packed.of([[5, 3, 11]]), Packed.of([[1, 7, 13, 2]]))
optimizer = Adam(model.named_parameters(), settings.optimizer)
train_step(model, optimizer, batch, settings, step=1, lr=1e-3)
"""


def test_the_order_is_that_of_a_training_step_from_its_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STEP], env=os.environ | {"PELLUCID_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    used = reversed(done.stdout.split())
    assert tuple(name for name in used if name in ahead.TRAINING) == ahead.TRAINING


def test_the_process_finds_every_kernel() -> None:
    process = ahead._start(("adam._squares", *ahead.TRAINING[-1:]))
    assert process.wait(timeout=120) == 0
    process = ahead._start(("adam._cubes",))
    assert process.wait(timeout=120) != 0


@pytest.mark.parametrize(("processors", "started"), [(1, []), (2, [ahead.SEARCH])])
def test_it_is_started_once_and_only_where_a_processor_is_free(
    monkeypatch: pytest.MonkeyPatch, processors: int, started: list[tuple[str, ...]]
) -> None:
    asked: list[tuple[str, ...]] = []

    def start(kernels: tuple[str, ...]) -> subprocess.Popen[bytes]:
        asked.append(kernels)
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(ahead, "_start", start)
    monkeypatch.setattr(threads, "available", lambda: processors)
    ahead.begin.cache_clear()
    ahead.begin(search=True)
    ahead.begin(search=True)
    ahead.begin.cache_clear()
    assert asked == started

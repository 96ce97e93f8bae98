from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.training.copying import TRAIN, Reversals, model

from pellucid.training import memory
from pellucid.training.trainer import Trainer

FAULTS = """
import resource
import numpy as np
from pellucid.training.memory import keep_freed_memory

def step():
    arrays = [np.ones(1 << 20, np.float32) for _ in range(12)]  # 4 MB each
    del arrays

print(keep_freed_memory())
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_the_trainer_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[bool] = []
    monkeypatch.setattr("pellucid.training.trainer.keep_freed_memory", lambda: called.append(True))
    Trainer(model(), Reversals(), replace(TRAIN, steps=1)).fit()
    assert called == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="the system has no glibc")
def test_steps_that_free_what_they_take_cause_no_page_faults() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    glibc, faults = done.stdout.split()
    if glibc == "False":
        pytest.skip("the C library is not glibc")
    assert int(faults) < 100  # 123,000 pages are written


def test_other_systems_and_c_libraries_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(malloc=None))
    assert memory.keep_freed_memory.__wrapped__() is False
    monkeypatch.setattr(sys, "platform", "darwin")
    assert memory.keep_freed_memory.__wrapped__() is False

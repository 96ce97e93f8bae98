from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pellucid.kernels.backend import allocator as memory

FAULTS = """
import resource
import numpy as np
from pellucid import nn

def step():
    arrays = [np.ones(1 << 20, np.float32) for _ in range(12)]  # 4 MB each
    del arrays

nn.Linear(256, 256)(np.ones((999, 256), np.float32))
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system has no glibc")
def test_after_a_kernel_steps_that_free_what_they_take_cause_no_page_faults() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    if not memory.keep_freed_memory.__wrapped__():
        pytest.skip("the C library is not glibc")
    assert int(done.stdout) < 100  # 123,000 pages are written


def test_other_systems_and_c_libraries_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(malloc=None))
    assert memory.keep_freed_memory.__wrapped__() is False
    monkeypatch.setattr(sys, "platform", "darwin")
    assert memory.keep_freed_memory.__wrapped__() is False

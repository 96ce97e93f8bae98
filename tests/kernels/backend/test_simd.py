from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("processor", "features", "lanes"),
    [
        ("skylake-avx512", "+avx2,+avx512f,+avx512vl,+fma", 16),
        ("znver5", "+avx2,+avx512f,+avx512vl,+fma", 16),
        ("alderlake", "+avx2,-avx512f,+fma", 8),
        ("generic", "", 8),
    ],
)
def test_vectors_are_as_wide_as_the_registers(processor: str, features: str, lanes: int) -> None:
    """On every maker's processors: Intel's AVX-512 once counted as AVX2, at half the speed."""
    environment = os.environ | {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": features}
    show = "from pellucid.kernels.backend.simd import LANES; print(LANES)"
    made = subprocess.run(
        [sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=True
    )
    assert int(made.stdout) == lanes

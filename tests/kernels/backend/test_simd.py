from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from pellucid.kernels.backend.compile import kernel
from pellucid.kernels.backend.simd import LANES, load, reduce_add, reduce_max, transpose


@kernel("f4[::1],i8,i8,i8,i8,f4[::1],i8,i8")
def transposed(source, at, step, n, depth, target, to, to_step):
    transpose(source, at, step, n, depth, target, to, to_step)


@kernel("f4[::1],f4[::1]")
def folded(x, y):
    y[0], y[1] = reduce_add(load(x, 0)), reduce_max(load(x, 0))


@pytest.mark.parametrize("n", [3, LANES, 2 * LANES + 3])
@pytest.mark.parametrize("depth", [5, LANES, 3 * LANES - 1])
def test_a_transpose_is_of_that_part_alone(n: int, depth: int) -> None:
    """Whole squares of vectors, the last ones overlapping others; and parts that are smaller."""
    at, step, to, to_step = 7, depth + 2, 11, n + 3
    source = np.random.default_rng(0).standard_normal(at + n * step, np.float32)
    target = np.full(to + depth * to_step, 13, np.float32)
    expected = target.copy()
    rows = source[at:].reshape(n, step)
    expected[to:].reshape(depth, to_step)[:, :n] = rows[:, :depth].T
    transposed(source, at, step, n, depth, target, to, to_step)
    np.testing.assert_array_equal(target, expected)


def test_every_lane_is_in_a_sum_and_in_a_maximum() -> None:
    for lane in range(LANES):
        x, y = np.full(LANES, -3, np.float32), np.empty(2, np.float32)
        x[lane] = 2
        folded(x, y)
        assert y.tolist() == [2 - 3 * (LANES - 1), 2]


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

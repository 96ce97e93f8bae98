"""Products of 8-bit integers, compared with exact integer arithmetic: every bit is the same."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pellucid.kernels.backend.compile import kernel
from pellucid.kernels.backend.int8 import STEP, panels, product, round_rows
from pellucid.kernels.backend.simd import WIDTH
from pellucid.models.quantize import int8_rows

Array = np.ndarray


@kernel("f4[:,::1],i8,u1[:,::1],f4[::1],u1[:,::1],f4[:,::1],f4[:,::1],b1")
def _run(x, k, rounded, scales, packed, floats, c, add):  # type: ignore[no-untyped-def]
    round_rows(x, k, rounded, scales)
    product(rounded, scales, k, packed, 0, c.shape[1] // WIDTH, floats, 0, c, add)


def up(n: int, to: int) -> int:
    return -(-n // to) * to


def computed(x: Array, weight: Array, bias: Array, c: Array | None = None) -> Array:
    """Return (c +) x Wᵀ + b as the kernel computes it, from int8 rows and their scales."""
    (m, k), n = x.shape, len(bias)
    rows, scales = int8_rows(weight)
    wide = np.zeros((m, up(k, WIDTH)), np.float32)
    wide[:, :k] = x
    floats = np.zeros((2, up(n, WIDTH)), np.float32)
    floats[0, :n], floats[1, :n] = bias, scales.ravel()
    y = np.full((m, up(n, WIDTH)), np.nan, np.float32)
    if c is not None:
        y[:, :n] = c
    rounded = np.full((m, up(k, STEP)), 77, np.uint8)
    packed, flat = panels(rows).reshape(1, -1), floats.reshape(1, -1)
    _run(wide, k, rounded, np.empty(m, np.float32), packed, flat, y, c is not None)
    return y[:, :n]


def exact(x: Array, weight: Array, bias: Array) -> Array:
    """Return the same by NumPy's integers, with the float32 operations in the same order."""
    rows, t = int8_rows(weight)
    most = np.abs(x).max(axis=1, keepdims=True)
    factor = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 1e-30)
    q = np.rint(x * factor).astype(np.int64)
    sums = (q @ rows.astype(np.int64).T).astype(np.float32)
    return sums * (most / np.float32(127) * t.T) + bias


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


SHAPES = [(1, 37, 5), (2, 16, 71), (3, 5, 1), (13, 131, 97), (7, 1, 33), (8, 1031, 64)]


@pytest.mark.parametrize("m, k, n", SHAPES)
def test_every_bit_is_that_of_exact_integers(m: int, k: int, n: int) -> None:
    x, weight, bias = draw(m, k), draw(n, k), draw(n)
    np.testing.assert_array_equal(computed(x, weight, bias), exact(x, weight, bias))
    before = draw(m, n)
    np.testing.assert_array_equal(
        computed(x, weight, bias, before), before + exact(x, weight, bias)
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_do_not_saturate(sign: int) -> None:
    x, weight = np.full((5, 4099), 2.0, np.float32), np.full((3, 4099), sign * 0.5, np.float32)
    y = computed(x, weight, np.zeros(3, np.float32))
    np.testing.assert_allclose(y, np.full((5, 3), sign * 4099.0), rtol=1e-6)


def test_a_row_has_the_same_bits_whatever_the_other_rows() -> None:
    x, weight, bias = draw(31, 67), draw(41, 67), draw(41)
    whole = computed(x, weight, bias)
    for some in (slice(0, 1), slice(3, 5), slice(7, 20), slice(30, 31)):
        np.testing.assert_array_equal(computed(x[some], weight, bias), whole[some])


def test_rows_of_zeros_and_of_tiny_numbers_give_the_bias() -> None:
    x, weight, bias = draw(4, 19), draw(11, 19), draw(11)
    x[1], x[2] = 0, 1e-38
    weight[5] = 0
    y = computed(x, weight, bias)
    np.testing.assert_array_equal(y[1:3], [bias, bias])
    np.testing.assert_array_equal(y[:, 5], bias[5])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row(value: float) -> None:
    x, weight, bias = draw(9, 23), draw(13, 23), draw(13)
    finite = computed(x, weight, bias)
    x[4, 3] = value
    y = computed(x, weight, bias)
    assert np.isnan(y[4]).all()
    np.testing.assert_array_equal(np.delete(y, 4, 0), np.delete(finite, 4, 0))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize(
    ("processor", "features", "expected"),
    [
        ("haswell", "+avx2,+fma", "8 False True"),
        ("skylake-avx512", "+avx2,+fma,+avx512f,+avx512bw,+avx512vl", "16 False True"),
        ("alderlake", "+avx2,+fma,+avxvnni", "8 True False"),
        ("generic", "", "8 False False"),
    ],
)
def test_every_processor_computes_the_same_bits(
    processor: str, features: str, expected: str, tmp_path: Path
) -> None:
    """Other processors than this one are imitated; nothing is from the cache."""
    environment = os.environ | {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": features}
    path = os.pathsep.join(filter(None, sys.path))
    environment |= {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path)}
    test = (
        "import wide_vectors\n"
        "from pellucid.kernels.backend import int8\n"
        "from tests.kernels.backend import test_int8 as t\n"
        "for shape in t.SHAPES: t.test_every_bit_is_that_of_exact_integers(*shape)\n"
        "for sign in (1, -1): t.test_the_largest_sums_do_not_saturate(sign)\n"
        "print(int8.LANES, int8.VNNI, int8.PAIRS)\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", test], env=environment, capture_output=True, text=True, check=True
    )
    assert made.stdout.strip() == expected

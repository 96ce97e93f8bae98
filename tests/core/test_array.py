from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest
from tests.ops.libraries import LIBRARIES, back, every_library, same_library, to

from pellucid.core.array import erf, like, namespace, scatter_add


def test_namespace_skips_none() -> None:
    assert namespace(None, np.ones(2), None) is np
    assert namespace(array_api_strict.ones(2), None) is array_api_strict


def test_two_libraries_at_once_are_refused() -> None:
    with pytest.raises(TypeError):
        namespace(np.ones(2), array_api_strict.ones(2))


def test_numpys_own_kinds_of_arrays_are_numpys(tmp_path: Path) -> None:
    class Named(np.ndarray):
        pass

    np.ones(2).tofile(tmp_path / "numbers")
    mapped = np.memmap(tmp_path / "numbers", np.float64, "r")
    kinds = [mapped, np.ones(2).view(Named), np.rec.array(np.ones(2)), np.ones(2)[0], np.array(1.0)]
    for array in kinds:
        assert namespace(array) is np
        assert namespace(np.ones(2), array) is np


@pytest.mark.parametrize(
    "other", [np.ones((1, 2)).view(np.matrix), np.ma.masked_array([1.0, 2.0], [True, False])]
)
def test_kinds_that_compute_otherwise_are_refused_by_name(other: Any) -> None:
    """`*` of a matrix is a product of matrices, and a kernel knows no mask."""
    with pytest.raises(TypeError, match=rf"got numpy\.{type(other).__name__}.*np\.asarray"):
        namespace(other)


@every_library
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_like_goes_to_the_library_and_keeps_dtype(library: str, dtype: Any) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    x = to(library, np.ones(2))
    there = like(values, x)
    assert same_library(there, x)
    assert back(there).dtype == dtype
    assert np.array_equal(back(there), values)


@every_library
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_scatter_add_sums_every_place(library: str, shape: tuple[int, ...]) -> None:
    index = np.array([4, 0, 4, 2, 4, 0, 4])
    updates = np.random.default_rng(3).standard_normal((7, *shape))
    expected = np.zeros((5, *shape))
    for i, update in zip(index, updates, strict=True):
        expected[i] += update
    found = scatter_add(to(library, index), to(library, updates), 5)
    np.testing.assert_allclose(back(found), expected, rtol=1e-14, atol=1e-15)


@every_library
def test_scatter_add_of_nothing_is_zero(library: str) -> None:
    found = scatter_add(to(library, np.zeros(0, int)), to(library, np.ones((0, 3))), 5)
    assert np.array_equal(back(found), np.zeros((5, 3)))


def test_scatter_add_keeps_float32_and_small_index_types() -> None:
    index = np.array([2, 0, 2], np.uint8)
    found = scatter_add(index, np.ones((3, 2), np.float32), 3)
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 1], [0, 0], [2, 2]]


def test_scatter_add_gives_the_same_bits_every_time() -> None:
    generator = np.random.default_rng(5)
    index, updates = generator.integers(0, 7, 1009), generator.standard_normal((1009, 3))
    updates = updates.astype(np.float32)
    first = scatter_add(index, updates, 7)
    assert all(np.array_equal(first, scatter_add(index, updates, 7)) for _ in range(3))


def ulps(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(np.abs(found - expected) / np.spacing(np.abs(expected))))


def test_erf_is_within_two_ulp_everywhere() -> None:
    """A dense grid, every power of two, and both sides of the seams between the formulas."""
    seams = np.array([0.85, 4.0, 6.0])
    near = np.concatenate([np.nextafter(seams, 0), seams, np.nextafter(seams, 9)])
    powers = 2.0 ** np.arange(-1000.0, 3.0)
    x = np.concatenate([np.linspace(-6.5, 6.5, 200_001), near, -near, powers, -powers, [30.0]])
    exact = np.array([math.erf(v) for v in x])
    nonzero = exact != 0
    assert ulps(erf(x)[nonzero], exact[nonzero]) <= 2.0
    assert np.array_equal(erf(x)[~nonzero], exact[~nonzero])


def test_erf_at_the_edges() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e300, -1e300])
    y = erf(x)
    np.testing.assert_array_equal(y, [1, -1, np.nan, 0, 0, 1, -1])
    assert np.signbit(y[[3, 4]]).tolist() == [False, True]


def test_erf_is_odd_to_the_bit() -> None:
    x = np.linspace(0, 7, 10_007)
    assert np.array_equal(erf(-x), -erf(x))


@every_library
def test_erf_in_every_library(library: str) -> None:
    x = np.array([-7.0, -1.3, -0.1, 0.0, 0.4, 0.5, 3.9, 4.1, np.inf, np.nan])
    found = erf(to(library, x))
    np.testing.assert_allclose(back(found), erf(x), rtol=1e-14)
    assert back(erf(to(library, x.astype(np.float32)))).dtype == np.float32


@pytest.mark.parametrize("library", ["numpy", *LIBRARIES[1:]])
def test_erf_of_float16_is_that_of_float32_rounded(library: str) -> None:
    x = np.linspace(-7, 7, 2003).astype(np.float16)
    found = back(erf(to(library, x)))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, erf(x.astype(np.float32)), rtol=1e-3)


def test_erf_of_float32_is_near() -> None:
    x = np.linspace(-5, 5, 10_007).astype(np.float32)
    exact = np.array([math.erf(v) for v in x.astype(float)])
    assert np.abs(erf(x) - exact).max() < 3e-7


def test_scatter_add_refuses_a_negative_index() -> None:
    for index in ([-1, 2], [2, -1, -1], [-2]):
        with pytest.raises(IndexError, match="from 0 to 2, got -"):
            scatter_add(np.array(index), np.ones((len(index), 2)), 3)

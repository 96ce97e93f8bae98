from __future__ import annotations

import math

import numpy as np
import pytest

from pellucid.core.rng import Rng, random_bits
from pellucid.kernels.backend.compile import kernel
from pellucid.kernels.backend.math import channel_bits, exp, log, logistic, normal
from pellucid.kernels.backend.simd import LANES, iota, load, reduce_add, reduce_max, select, store


@kernel("f4[::1],f4[::1]")
def exp_of_numbers(x, y):
    for i in range(x.shape[0]):
        y[i] = exp(x[i])


@kernel("f4[::1],f4[::1]")
def exp_of_vectors(x, y):
    for i in range(0, x.shape[0], LANES):
        store(y, i, exp(load(x, i)))


@kernel("f4[::1],f4[::1]")
def log_of_vectors(x, y):
    for i in range(0, x.shape[0], LANES):
        store(y, i, log(load(x, i)))


@kernel("f4[::1],f4[::1]")
def logistic_of_numbers(x, y):
    for i in range(x.shape[0]):
        y[i], rest = logistic(x[i])
        if not abs(y[i] + rest - 1) < 1e-6 and x[i] == x[i]:
            y[i] = 9


@kernel("f4[::1],f4[::1]")
def normal_of_numbers(x, y):
    for i in range(x.shape[0]):
        y[i] = normal(x[i])


@kernel("u4,u4[::1]")
def bits_of_numbers(row, y):
    for i in range(y.shape[0]):
        y[i] = channel_bits(row, np.uint32(i))


@kernel("u4,u4,f4[::1]")
def kept_of_vectors(row, threshold, y):
    for i in range(0, y.shape[0], LANES):
        drawn = channel_bits(row, iota() + np.uint32(i))
        store(y, i, select(drawn >= threshold, load(y, i), np.float32(0.0)))


@kernel("f4[::1],f4[::1]")
def across(x, y):
    y[0] = reduce_add(load(x, 0))
    y[1] = reduce_max(load(x, 0))


@pytest.mark.parametrize("f", [exp_of_numbers, exp_of_vectors])
def test_exp_is_right_to_one_ulp(f: object) -> None:
    x = np.linspace(-86.99, 88.0, 1 << 20, dtype=np.float32)
    y = np.empty_like(x)
    f(x, y)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(y - exact) / np.spacing(exact.astype(np.float32))).max() <= 1.0


def test_log_is_right_to_three_ulp() -> None:
    x = np.exp(np.linspace(-87, 88, 1 << 20)).astype(np.float32)
    x[: 1 << 19] = np.linspace(0.5, 2.0, 1 << 19)
    y = np.empty_like(x)
    log_of_vectors(x, y)
    exact = np.log(x.astype(np.float64))
    ulp = np.spacing(np.maximum(np.abs(exact), 2.0**-126).astype(np.float32))
    assert (np.abs(y - exact) / ulp).max() <= 3.0
    edges = np.ones(LANES, np.float32)
    edges[:6] = 0.0, -0.0, -1.0, np.inf, np.nan, -np.inf
    log_of_vectors(edges, edges)
    np.testing.assert_array_equal(
        edges[:7], np.array([-np.inf, -np.inf, np.nan, np.inf, np.nan, np.nan, 0.0], np.float32)
    )


@pytest.mark.parametrize("f", [exp_of_numbers, exp_of_vectors])
def test_exp_at_the_edges(f: object) -> None:
    x = np.zeros(LANES, np.float32)
    x[:6] = [0.0, -0.0, -np.inf, np.nan, -87.4, -1e30]
    y = np.empty_like(x)
    f(x, y)
    np.testing.assert_array_equal(y[:6], np.array([1, 1, 0, np.nan, 0, 0], np.float32))


@pytest.mark.parametrize(
    "f, exact, relative",
    [
        (logistic_of_numbers, lambda x: 1 / (1 + math.exp(-x)), 2.5e-7),
        (normal_of_numbers, lambda x: math.erfc(-x * math.sqrt(0.5)) / 2, 5e-6),
    ],
)
def test_gates_are_right_on_either_side(f: object, exact: object, relative: float) -> None:
    x = np.linspace(-5.7, 9, 40_009).astype(np.float32)
    y = np.empty_like(x)
    f(x, y)
    z = np.vectorize(exact)(x.astype(np.float64))
    assert np.abs(y - z).max() <= np.finfo(np.float32).eps
    assert np.abs(y / z - 1).max() <= relative
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -80], np.float32)
    y = np.empty_like(edges)
    f(edges, y)
    np.testing.assert_allclose(y, [0.5, 0.5, 1, 0, np.nan, 0.5, 0], atol=1e-30)


def test_the_hash_is_the_one_of_rng() -> None:
    rng = Rng(7).fold(3)
    shape = (5, 7 * LANES)
    expected = random_bits(rng, shape)
    for row, bits in zip(rng.row_hash(shape[:1]), expected, strict=True):
        y = np.empty_like(bits)
        bits_of_numbers(row, y)
        np.testing.assert_array_equal(y, bits)
        kept = np.ones(shape[1], np.float32)
        kept_of_vectors(row, np.uint32(1 << 31), kept)
        np.testing.assert_array_equal(kept, bits >= 1 << 31)


def test_sum_and_maximum_across_a_vector() -> None:
    x = np.random.default_rng(3).permutation(LANES).astype(np.float32) - 5
    y = np.empty(2, np.float32)
    across(x, y)
    np.testing.assert_array_equal(y, [x.sum(), x.max()])

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pellucid import ops
from pellucid.core.vjp import pair_of

INF = np.inf
CASES: list[tuple[Any, tuple[Any, ...]]] = [
    (ops.relu, ()),
    (ops.leaky_relu, (0.1,)),
    (ops.gelu, ("none",)),
    (ops.gelu, ("tanh",)),
    (ops.silu, ()),
]
every = pytest.mark.parametrize("f, options", CASES, ids=["relu", "leaky", "gelu", "tanh", "silu"])


def both(f: Any, options: tuple[Any, ...], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pair = pair_of(f)
    y, saved = pair.forward(x, *options)
    return y, pair.backward(np.ones_like(x), saved)


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_line(f: Any, options: tuple[Any, ...], dtype: Any) -> None:
    top = float(np.finfo(dtype).max)
    y, dx = both(f, options, np.array([INF, top, 1e13, -1e13, -top / 2, -INF], dtype))
    slope = 0.1 if f is ops.leaky_relu else 0.0
    np.testing.assert_array_equal(y[:3], np.array([INF, top, 1e13], dtype))
    np.testing.assert_allclose(dx, [1, 1, 1, slope, slope, slope])
    low = np.array([-1e13, -top / 2, -INF]) * slope if slope else np.zeros(3)
    np.testing.assert_allclose(y[3:], low, rtol=1e-6)


@every
def test_nan_stays_and_stays_alone(f: Any, options: tuple[Any, ...]) -> None:
    y, dx = both(f, options, np.array([np.nan, 1.0, -1.0]))
    assert np.isnan(y).tolist() == [True, False, False]
    assert np.isfinite(dx[1:]).all()


@every
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_any_shape(f: Any, options: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    y, dx = both(f, options, np.full(shape, 0.5))
    assert np.shape(y) == np.shape(dx) == shape


def test_the_kink_belongs_to_the_left() -> None:
    assert both(ops.relu, (), np.zeros(1))[1] == 0.0
    assert both(ops.leaky_relu, (0.1,), np.zeros(1))[1] == 0.1


def test_gelu_is_x_times_the_normal_distribution_function() -> None:
    x = np.linspace(-12, 12, 4801)
    exact = [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x]
    density = [math.exp(-v * v / 2) / math.sqrt(2 * math.pi) for v in x]
    slope = [0.5 * math.erfc(-v / math.sqrt(2)) + v * d for v, d in zip(x, density, strict=True)]
    y, dx = both(ops.gelu, (), x)
    np.testing.assert_allclose(y, exact, rtol=1e-15, atol=3e-16)
    np.testing.assert_allclose(dx, slope, rtol=1e-14, atol=3e-16)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_float16_is_that_of_float32_rounded(approximate: str) -> None:
    x = np.concatenate([np.linspace(-12, 12, 2003), [-INF, -6e4, 6e4, INF]]).astype(np.float16)
    y, dx = both(ops.gelu, (approximate,), x)
    exact, slope = both(ops.gelu, (approximate,), x.astype(np.float32))
    np.testing.assert_array_equal(y, exact.astype(np.float16), strict=True)
    np.testing.assert_array_equal(dx, slope.astype(np.float16), strict=True)


def test_the_tanh_form_is_near_the_exact_one_and_not_equal() -> None:
    x = np.linspace(-8, 8, 3201)
    apart = np.abs(both(ops.gelu, ("tanh",), x)[0] - both(ops.gelu, (), x)[0]).max()
    assert 1e-4 < apart < 5e-4


def test_silu_keeps_its_digits_in_the_tail() -> None:
    x = -np.linspace(0, 700, 1001)
    np.testing.assert_allclose(both(ops.silu, (), x)[0], x / (1 + np.exp(-x)), rtol=1e-14)


def test_another_form_of_gelu_is_refused() -> None:
    with pytest.raises(ValueError, match='"none" or "tanh", got \'sigmoid\''):
        ops.gelu(np.ones(3), "sigmoid")

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pellucid.check import gradient_check
from pellucid.core.rng import Rng
from pellucid.ops import (
    add_dropout_norm,
    add_dropout_norm_backward,
    bias_act_dropout,
    bias_act_dropout_backward,
    dropout,
    layer_norm,
    layer_norm_backward,
    linear,
    linear_backward,
    relu,
)
from pellucid.ops.activations import ACTIVATIONS

N, L, E, F = 2, 5, 13, 17


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape)


def test_rows_have_mean_zero_and_variance_one() -> None:
    y, _ = layer_norm(3.0 + 7.0 * drawn(N, L, E))
    np.testing.assert_allclose(y.mean(-1), 0.0, atol=1e-15)
    np.testing.assert_allclose(y.var(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    "width, value", [(10, 1e6 / 3), (7, 12345.678), (1000, 12345.678), (10, 1.1), (13, -3e18)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_row_gives_the_bias(width: int, value: float, dtype: Any) -> None:
    """What the mean is rounded by, times 1/√ε, was up to 0.995; and so for a row one bit off."""
    x = np.full((3, width), value, dtype)
    x[1, 0] = np.nextafter(x[1, 0], dtype(np.inf))
    exact, _ = layer_norm(x.astype(np.longdouble) - np.longdouble(x[0, 0]))
    y, _ = layer_norm(x)
    np.testing.assert_allclose(y[::2], 0.0, atol=1e-12)
    np.testing.assert_allclose(y[1], exact[1], atol=3e-7)


@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0, 2e4])
def test_float16_is_computed_in_float32(size: float) -> None:
    """300² is already beyond what float16 holds."""
    x, dy = (size * drawn(L, E)).astype(np.float16), drawn(E, L).T.astype(np.float16)
    affine = [p.astype(np.float16) for p in (1.0 + drawn(E), drawn(E))]
    y, saved = layer_norm(x, *affine)
    wide, saved_wide = layer_norm(*(p.astype(np.float32) for p in (x, *affine)))
    np.testing.assert_array_equal(y, wide.astype(np.float16), strict=True)
    expected = layer_norm_backward(dy.astype(np.float32), saved_wide)
    for gradient, exact in zip(layer_norm_backward(dy, saved), expected, strict=True):
        np.testing.assert_array_equal(gradient, exact.astype(np.float16), strict=True)


def test_gamma_belongs_inside_the_gradient() -> None:
    """numpy-transformer's dx is half wrong as soon as gamma is not the same everywhere."""
    x, weight, bias = drawn(N, L, E), 1.0 + 2.0 * drawn(E), drawn(E)

    def forward(*inputs: np.ndarray):  # type: ignore[no-untyped-def]
        y, saved = layer_norm(*inputs)
        return y, lambda dy: layer_norm_backward(dy, saved)

    assert max(gradient_check(forward, [x, weight, bias]).values()) <= 1e-7


def test_epsilon_counts_in_the_gradient_too() -> None:
    """Rows hardly wider than √ε; taking ε for 0 in backward would be far off."""
    x = 0.01 * drawn(L, E)

    def forward(x: np.ndarray):  # type: ignore[no-untyped-def]
        y, saved = layer_norm(x, eps=1e-4)
        return y, lambda dy: layer_norm_backward(dy, saved)[0]

    assert gradient_check(lambda x: forward(x), [x])["input 0"] <= 1e-5
    assert abs(layer_norm(x, eps=1e-4)[0].var() - 1.0) > 0.2


def test_the_gradient_has_no_part_along_ones_or_the_row_itself() -> None:
    """Moving or stretching a row changes nothing (ε = 0), so dx stands upright on both."""
    x, dy = drawn(L, E), drawn(E, L).T
    y, saved = layer_norm(x, eps=0.0)
    dx, *_ = layer_norm_backward(dy, saved)
    np.testing.assert_allclose(dx.sum(-1), 0.0, atol=1e-13)
    np.testing.assert_allclose((dx * y).sum(-1), 0.0, atol=1e-13)


def test_a_constant_row_is_zero_and_finite() -> None:
    y, saved = layer_norm(np.full((2, E), 5.0), 2.0 * np.ones(E), np.ones(E))
    assert np.array_equal(y, np.ones((2, E)))
    assert all(np.isfinite(d).all() for d in layer_norm_backward(drawn(2, E), saved))


def test_a_large_offset_costs_float32_no_digits() -> None:
    x = (1000.0 + drawn(L, E)).astype(np.float32)
    exact, _ = layer_norm(x.astype(np.float64))
    np.testing.assert_allclose(layer_norm(x)[0], exact, atol=2e-4)


def test_one_channel_is_always_its_mean() -> None:
    y, saved = layer_norm(drawn(L, 1), np.ones(1), np.full(1, 3.0))
    assert np.array_equal(y, np.full((L, 1), 3.0))
    assert not layer_norm_backward(np.ones((L, 1)), saved)[0].any()


def test_nan_stays_in_its_row() -> None:
    x = drawn(L, E)
    x[2, 3] = np.nan
    y, saved = layer_norm(x)
    assert np.isnan(y).any(-1).tolist() == [False, False, True, False, False]
    dx, *_ = layer_norm_backward(np.ones((L, E)), saved)
    assert np.isnan(dx).any(-1).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("shape", [(E,), (0, E), (3, 0, E)])
def test_one_row_and_none(shape: tuple[int, ...]) -> None:
    x = drawn(3, E)[0] if len(shape) == 1 else np.ones(shape)
    y, saved = layer_norm(x, np.ones(E), np.zeros(E))
    dx, dweight, dbias = layer_norm_backward(np.ones(shape), saved)
    assert y.shape == dx.shape == shape
    assert dweight.shape == dbias.shape == (E,)


def test_no_gradient_is_the_one_that_came_in() -> None:
    x, weight, dy = np.arange(7.0), np.full(7, 2.0), np.arange(7.0) ** 2
    _, saved = layer_norm(x, weight, np.zeros(7))
    assert not any(np.shares_memory(dy, d) for d in layer_norm_backward(dy, saved))


def test_what_is_not_given_has_no_gradient() -> None:
    _, saved = layer_norm(drawn(L, E), drawn(E))
    _, dweight, dbias = layer_norm_backward(np.ones((L, E)), saved)
    assert dweight is not None
    assert dbias is None
    assert layer_norm_backward(np.ones((L, E)), layer_norm(drawn(L, E))[1])[1:] == (None, None)


def test_the_residual_gets_its_gradient_before_dropout() -> None:
    """hcrot takes it after dropout, so that what was dropped is lost to the residual as well."""
    x, residual = drawn(N, L, E), drawn(L, N, E).swapaxes(0, 1)
    options = {"dropout": 0.5, "rng": Rng(3)}
    y, saved = add_dropout_norm(x, residual, **options)
    dx, dresidual, *_ = add_dropout_norm_backward(drawn(E, L, N).T, saved)
    kept = dropout(np.ones_like(x), 0.5, Rng(3))[0] != 0
    np.testing.assert_allclose(dx, np.where(kept, 2.0 * dresidual, 0.0))
    assert dresidual[~kept].all()
    dropped, _ = dropout(x, 0.5, Rng(3))
    assert np.array_equal(y, layer_norm(residual + dropped)[0])


def test_the_middle_is_its_parts_in_order() -> None:
    x, bias = drawn(N, L, F), drawn(F)
    y, _ = bias_act_dropout(x, bias, dropout=0.5, rng=Rng(3))
    assert np.array_equal(y, dropout(relu(x + bias)[0], 0.5, Rng(3))[0])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_middle_without_channels(activation: str) -> None:
    x, bias = np.ones((N, L, 0)), np.ones(0)
    y, saved = bias_act_dropout(x, bias, activation=activation, dropout=0.5, rng=Rng(3))
    dx, dbias = bias_act_dropout_backward(y, saved)
    assert y.shape == dx.shape == x.shape
    assert dbias is not None
    assert dbias.shape == (0,)


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(ValueError, match=r"one of .*'gelu'.*got 'swish'"):
        bias_act_dropout(drawn(L, F), None, activation="swish")


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3)])
@pytest.mark.parametrize("width", [E, 0])
def test_linear_over_any_axes(shape: tuple[int, ...], width: int) -> None:
    x, weight, bias = np.ones((*shape, width)), drawn(F, E)[:, :width], drawn(F)
    y, saved = linear(x, weight, bias)
    np.testing.assert_allclose(y, np.broadcast_to(weight.sum(1) + bias, (*shape, F)))
    dx, dweight, dbias = linear_backward(np.ones_like(y), saved)
    assert (dx.shape, dweight.shape) == (x.shape, weight.shape)
    assert dbias.tolist() == [float(np.prod(shape))] * F


def test_linear_says_which_width_it_wants() -> None:
    with pytest.raises(ValueError, match=r"width 13 .*\(17, 13\).*got shape \(2, 5\)"):
        linear(np.ones((2, 5)), drawn(F, E))

from __future__ import annotations

import numpy as np
import pytest

from pellucid.ops import log_softmax, log_softmax_backward, softmax, softmax_backward

INF = np.inf


def test_shifting_a_row_changes_nothing() -> None:
    x = np.random.default_rng(1).standard_normal((5, 7))
    np.testing.assert_allclose(softmax(x + 1e4)[0], softmax(x)[0], rtol=1e-11)
    np.testing.assert_allclose(log_softmax(x - 1e4)[0], log_softmax(x)[0], rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_numbers_do_not_overflow(dtype: type) -> None:
    top = np.finfo(dtype).max
    x = np.array([[top / 4, -top / 4, 0.0], [top, top, -INF]], dtype)
    np.testing.assert_array_equal(softmax(x)[0], [[1, 0, 0], [0.5, 0.5, 0]])
    np.testing.assert_allclose(log_softmax(x)[0][1], [-np.log(2), -np.log(2), -INF], rtol=1e-6)


def test_minus_infinity_is_exactly_zero_and_leaks_nothing() -> None:
    """softmax + 1e-8 would let a masked place through."""
    x = np.array([0.3, -INF, -1.0, -INF])
    p, saved = softmax(x)
    assert p[1] == p[3] == 0.0
    np.testing.assert_array_equal(p[[0, 2]], softmax(x[[0, 2]])[0])
    dx = softmax_backward(np.array([1.0, 5.0, -2.0, 7.0]), saved)
    assert dx[1] == dx[3] == 0.0
    assert abs(dx.sum()) < 1e-16


def test_a_dead_row_is_zero_with_zero_gradient() -> None:
    x = np.array([[-INF, -INF, -INF], [0.0, 1.0, -INF]])
    p, saved = softmax(x)
    assert not p[0].any()
    assert abs(p[1].sum() - 1.0) < 1e-15
    dx = softmax_backward(np.ones((2, 3)) * [[2.0, -3.0, 5.0]], saved)
    assert not dx[0].any()
    assert dx[1].any()


def test_large_negatives_are_not_dead() -> None:
    np.testing.assert_allclose(softmax(np.full(5, -1e30))[0], np.full(5, 0.2))
    np.testing.assert_allclose(log_softmax(np.full(5, -1e30))[0], np.full(5, -np.log(5)))


def test_nan_stays_in_its_row() -> None:
    x = np.array([[0.0, np.nan, 1.0], [0.0, 0.0, 0.0]])
    for f in (softmax, log_softmax):
        y = f(x)[0]
        assert np.isnan(y[0]).all()
        assert np.isfinite(y[1]).all()


def test_log_softmax_keeps_digits_where_the_log_of_softmax_has_none() -> None:
    x = np.array([0.0, -800.0])
    y, saved = log_softmax(x)
    np.testing.assert_allclose(y, [-0.0, -800.0])
    np.testing.assert_allclose(log_softmax_backward(np.array([0.0, 1.0]), saved), [-1.0, 1.0])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 5), (0,)])
def test_empty(shape: tuple[int, ...]) -> None:
    for f, f_backward in ((softmax, softmax_backward), (log_softmax, log_softmax_backward)):
        y, saved = f(np.ones(shape))
        assert y.shape == f_backward(y, saved).shape == shape


def test_the_gradient_is_not_divided_by_the_batch() -> None:
    """numpy-transformer's softmax divides by the batch size: a batch would differ from its rows."""
    x, dp = np.random.default_rng(2).standard_normal((2, 7, 5))
    whole = softmax_backward(dp, softmax(x)[1])
    rows = [softmax_backward(d, softmax(row)[1]) for d, row in zip(dp, x, strict=True)]
    np.testing.assert_allclose(whole, np.stack(rows), rtol=1e-14)


def test_the_gradient_is_the_jacobian_s() -> None:
    """diag(p) − p pᵀ, built for once; the W(1 − W) of article 000 is only its diagonal."""
    x, dp = np.random.default_rng(3).standard_normal((2, 7))
    p, saved = softmax(x)
    jacobian = np.diag(p) - np.outer(p, p)
    np.testing.assert_allclose(softmax_backward(dp, saved), jacobian @ dp, rtol=1e-13, atol=1e-16)

from __future__ import annotations

import numpy as np
import pytest

from pellucid.core.rng import Rng, keep_mask, row_keys
from pellucid.ops import dropout, dropout_backward

SHAPE = (53, 59)


def x_() -> np.ndarray:
    return np.random.default_rng(1).standard_normal(SHAPE)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_what_is_kept_is_scaled_and_the_rest_is_zero(p: float) -> None:
    x, rng = x_(), Rng(3)
    y, _ = dropout(x, p, rng)
    kept = keep_mask(rng, SHAPE, p)
    np.testing.assert_allclose(y[kept], x[kept] / (1 - p), rtol=1e-15)
    assert not y[~kept].any()
    assert abs(kept.mean() - (1 - p)) < 4 * (p * (1 - p) / kept.size) ** 0.5


def test_backward_draws_the_mask_of_its_own_forward() -> None:
    """One Dropout object used three times gave every backward the last mask."""
    x, dy = x_(), np.ones(SHAPE)
    calls = [dropout(x, 0.5, Rng(3).fold(site)) for site in range(3)]
    for y, saved in calls:
        assert np.array_equal(dropout_backward(dy, saved) != 0, y != 0)
    assert not np.array_equal(calls[0][0], calls[1][0])


def test_nothing_is_dropped_at_zero_or_without_an_rng() -> None:
    x = x_()
    for p, rng in ((0.0, Rng(3)), (0.5, None), (0.0, None)):
        y, saved = dropout(x, p, rng)
        assert np.array_equal(y, x)
        assert np.array_equal(dropout_backward(x, saved), x)


def test_all_is_dropped_at_one() -> None:
    y, saved = dropout(x_(), 1.0, Rng(3))
    assert not y.any()
    assert not dropout_backward(x_(), saved).any()


def test_what_is_dropped_is_zero_even_if_it_was_no_number() -> None:
    rng = Rng(3)
    kept = keep_mask(rng, SHAPE, 0.5)
    y, _ = dropout(np.where(kept, 1.0, np.inf), 0.5, rng)
    assert np.array_equal(y, np.where(kept, 2.0, 0.0))


@pytest.mark.parametrize("shape", [(5,), (0,), (0, 5), (2, 3, 5, 7)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    y, saved = dropout(np.ones(shape), 0.5, Rng(3))
    assert y.shape == dropout_backward(y, saved).shape == shape


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        dropout(x_(), p, Rng(3))


def test_one_token_drops_the_same_channels_wherever_it_lies() -> None:
    x = np.ones((2, 5, 7))
    rng, keys = Rng(3).fold(1), row_keys(np.array([[0], [1]]), np.arange(5))
    padded, _ = dropout(x, 0.5, rng.at(keys))
    packed, _ = dropout(x.reshape(10, 7)[3:9], 0.5, rng.at(keys.reshape(10)[3:9]))
    assert np.array_equal(packed, padded.reshape(10, 7)[3:9])


def test_a_number_without_axes_is_dropped_or_kept() -> None:
    kept = {float(dropout(np.array(3.0), 0.25, Rng(seed))[0]) for seed in range(29)}
    assert kept == {0.0, 4.0}
    y, saved = dropout(np.array(3.0), 0.25, Rng(0))
    assert dropout_backward(np.array(3.0), saved) == y

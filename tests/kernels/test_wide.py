"""Long sums: errors against float64 stay those of the page, whatever the vectors' width.

`scripts/processors.py` runs this at AVX2 and at SSE too, where partial sums are longer.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.compare import compare, planned

from pellucid import Rng, ops
from pellucid.core.rng import row_keys
from pellucid.optim.model import global_norm

MEAN = 100.0
WIDTHS = [16_381, 4_194_301]


def draw(*shape: int, mean: float = MEAN) -> np.ndarray:
    numbers: np.ndarray = mean + np.random.default_rng(shape).standard_normal(shape, np.float32)
    return numbers.astype(np.float32)


def gain(width: int) -> np.ndarray:
    numbers: np.ndarray = 1 + 0.3 * draw(width, mean=0.0)
    return numbers.astype(np.float32)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_norm_behind_a_residual_sum(width: int) -> None:
    args = (draw(2, width), draw(2, width, mean=0.0), gain(width), draw(width, mean=0.0))
    rng = Rng(5).at(row_keys(np.arange(1)[:, None], np.arange(2))[0])
    compare(ops.add_dropout_norm, args, {"dropout": 0.1, "rng": rng}, draw(2, width, mean=0.0))


@pytest.mark.parametrize("rows", WIDTHS)
def test_the_gradient_of_a_bias_and_of_a_gain_over_many_rows(rows: int) -> None:
    x, dy = draw(rows, 3, mean=1.0), draw(rows, 3, mean=1.0)
    compare(ops.layer_norm, (x, gain(3), gain(3)), {}, dy)
    compare(ops.linear, (x, gain(9).reshape(3, 3), gain(3)), {}, dy)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_norm_of_all_gradients(width: int) -> None:
    gradients = [draw(width), draw(11)]
    exact = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients))
    found = global_norm(gradients)
    np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize("source", [16_381, 262_139])
def test_attention_over_many_keys(source: int) -> None:
    q, k, v = draw(1, 1, 5, 7, mean=0.0), draw(1, 1, source, 7, mean=0.0), draw(1, 1, source, 11)
    compare(ops.attention, (q, k, v), {}, draw(1, 1, 5, 11, mean=0.0))


@pytest.mark.parametrize("length", [16_381])
def test_attention_of_many_queries(length: int) -> None:
    q, k, v = draw(1, 1, length, 7, mean=0.0), draw(1, 1, 257, 7, mean=0.0), draw(1, 1, 257, 11)
    compare(ops.attention, (q, k, v), {}, draw(1, 1, length, 11, mean=1.0))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mean", [0.0, 10.0])
@pytest.mark.parametrize("vocabulary", [16_381, 262_139])
def test_the_loss_over_a_large_vocabulary(vocabulary: int, mean: float, smoothing: float) -> None:
    args = (draw(5, 7, mean=0.0), draw(vocabulary, 7, mean=mean), draw(vocabulary, mean=0.0))
    options = {"label_smoothing": smoothing}
    target = np.arange(5) * 1_000
    compare(ops.linear_cross_entropy, (*args, target), options, np.float32(1))


def test_infinite_values_stay_infinite_in_long_sums() -> None:
    """Inf − inf of what an addition rounds away must not become NaN."""
    q, k, v = draw(1, 1, 5, 7, mean=0.0), draw(1, 1, 4_099, 7, mean=0.0), draw(1, 1, 4_099, 11)
    v[0, 0, 1_000, 3] = np.inf
    y, _ = planned(ops.attention, q, k, v)()
    assert np.isposinf(y[..., 3]).all()
    assert np.isfinite(np.delete(y, 3, axis=-1)).all()

"""The row-by-row kernels: norms, dropout, and bias + activation + dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.judge import judge

from pellucid import Rng, kernels, ops
from pellucid.core.rng import row_keys
from pellucid.core.vjp import pair_of
from pellucid.ops.bias_act_dropout import ACTIVATIONS

SHAPES = [(331, 53), (3, 7, 13), (1, 3), (2, 1009)]


def draw(shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    return [random.standard_normal(shape, np.float32) for _ in range(count)]


def named(shape: tuple[int, ...]) -> Rng:
    rows = row_keys(np.arange(int(np.prod(shape[:-1]))), 3).reshape(shape[:-1])
    return Rng(11).fold(1).at(rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_add_dropout_norm(shape: tuple[int, ...], dropout: float, affine: str) -> None:
    x, residual, dy = draw(shape, 3)
    weight, bias = draw(shape[-1:], 2)
    args: tuple[Any, ...] = (
        x,
        residual,
        None if affine == "none" else weight,
        bias if affine == "both" else None,
    )
    judge(ops.add_dropout_norm, args, {"dropout": dropout, "rng": named(shape), "eps": 0.1}, dy)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_bias_act_dropout(
    shape: tuple[int, ...], dropout: float, with_bias: bool, activation: str
) -> None:
    x, dy = draw(shape, 2)
    bias = draw(shape[-1:], 1)[0] if with_bias else None
    options = {"dropout": dropout, "rng": named(shape), "activation": activation}
    judge(ops.bias_act_dropout, (x * np.float32(3), bias), options, dy)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_far_out(activation: str) -> None:
    x = np.array([[-np.inf, -1e30, -90, -5, -1e-40, 0, 1e-40, 5, 90, 1e30, np.inf]], np.float32)
    judge(ops.bias_act_dropout, (x, None), {"activation": activation}, np.ones_like(x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_layer_norm(shape: tuple[int, ...], affine: str) -> None:
    x, dy = draw(shape, 2)
    weight, bias = draw(shape[-1:], 2)
    args = (x, None if affine == "none" else weight, bias if affine == "both" else None, 0.1)
    judge(ops.layer_norm, args, {}, dy)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("large", [3e19, 1e38])
def test_a_row_whose_variance_overflows_is_nan(large: float) -> None:
    """As in torch; zeros would stand for a row as far out as can be, and nobody would notice."""
    x, dy = draw((3, 17), 2)
    nothing = np.zeros_like(x)
    x[1, :2] = large, -large
    for f, args in ((ops.layer_norm, ()), (ops.add_dropout_norm, (nothing,))):
        for pair in (kernels.best(f, x, *args), pair_of(f)):
            y, saved = pair.forward(x, *args)
            dx = pair.backward(dy, saved)[0]
            near, near_saved = pair.forward(x[::2].copy(), *(a[::2].copy() for a in args))
            for given, expected in ((y, near), (dx, pair.backward(dy[::2], near_saved)[0])):
                assert np.isnan(given[1]).all()
                np.testing.assert_array_equal(given[::2], expected)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("eps", [0.0, 1e-40])
def test_without_epsilon_a_row_hardly_wide_is_the_plain_pages(eps: float) -> None:
    """1 / √σ² is approximated for normal numbers, and here σ² is none: it came to NaN."""
    (x,) = draw((3, 17), 1)
    x[1] *= np.float32(1e-30)
    for f, args in ((ops.layer_norm, ()), (ops.add_dropout_norm, (np.zeros_like(x),))):
        y, _ = kernels.best(f, x, *args, eps=eps).forward(x, *args, eps=eps)
        np.testing.assert_array_equal(y, f(x, *args, eps=eps)[0])
        assert not np.isnan(y).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_dropout(shape: tuple[int, ...]) -> None:
    x, dy = draw(shape, 2)
    y, dx = judge(ops.dropout, (x, 0.3, named(shape)), {}, dy)
    plain, saved = ops.dropout(x, 0.3, named(shape))
    np.testing.assert_array_equal(y == 0, plain == 0)
    np.testing.assert_array_equal(dx == 0, ops.dropout_backward(dy, saved) == 0)


@pytest.mark.parametrize("padding_idx", [None, 2])
def test_embedding(padding_idx: int | None) -> None:
    random = np.random.default_rng(3)
    index, (weight,) = random.integers(0, 7, (5, 13)), draw((7, 131), 1)
    judge(ops.embedding, (index, weight, padding_idx), {}, draw((5, 13, 131), 1)[0])
    with pytest.raises(IndexError, match="7 rows"):
        kernels.best(ops.embedding, index, weight).forward(index + 1, weight)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_what_is_not_a_number(value: float, activation: str) -> None:
    x = np.zeros((3, 5), np.float32)
    x[1, 2] = value
    fused = kernels.best(ops.bias_act_dropout, x, None, activation=activation)
    np.testing.assert_array_equal(
        fused.forward(x, None, activation=activation)[0],
        ops.bias_act_dropout(x, None, activation=activation)[0],
        strict=True,
    )


def test_dropout_keeps_the_same_numbers_as_the_plain_page() -> None:
    (x,) = draw((331, 53), 1)
    rng = named(x.shape)
    fused = kernels.best(ops.bias_act_dropout, np.abs(x), None, dropout=0.4, rng=rng)
    y, _ = fused.forward(np.abs(x), None, dropout=0.4, rng=rng)
    np.testing.assert_array_equal(y, ops.bias_act_dropout(np.abs(x), None, dropout=0.4, rng=rng)[0])
    unnamed = Rng(5)
    y, _ = fused.forward(np.abs(x), None, dropout=0.4, rng=unnamed)
    plain, _ = ops.bias_act_dropout(np.abs(x), None, dropout=0.4, rng=unnamed)
    np.testing.assert_array_equal(y, plain)


def test_what_the_guards_decline() -> None:
    (x,) = draw((6, 10), 1)
    taken = kernels.best(ops.bias_act_dropout, x, None).forward
    assert taken is not ops.bias_act_dropout
    for declined in (x.astype(np.float64), x[:, ::2], np.asfortranarray(x), x[:0], x[:, 0]):
        best = kernels.best(ops.bias_act_dropout, declined, None)
        assert best.forward is ops.bias_act_dropout
        best = kernels.best(ops.add_dropout_norm, declined, declined)
        assert best.forward is ops.add_dropout_norm
        best = kernels.best(ops.layer_norm, declined)
        assert best.forward is ops.layer_norm
        best = kernels.best(ops.dropout, declined, 0.5, Rng(0))
        assert best.forward is ops.dropout
    unknown = kernels.best(ops.bias_act_dropout, x, None, activation="sine")
    assert unknown.forward is ops.bias_act_dropout
    identity = kernels.best(ops.dropout, x, 0.0, Rng(0))
    assert identity.forward is ops.dropout
    narrow = kernels.best(ops.embedding, np.zeros(3, np.int32), x)
    assert narrow.forward is ops.embedding
    empty = kernels.best(ops.embedding, np.zeros(3, np.int64), x[:, :0])
    assert empty.forward is ops.embedding
    everything = kernels.best(ops.bias_act_dropout, x, None, dropout=1.0, rng=Rng(0))
    assert everything.forward is ops.bias_act_dropout

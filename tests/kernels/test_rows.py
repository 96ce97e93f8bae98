"""The row-by-row kernels: residual + dropout + norm, and bias + ReLU + dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.judge import judge

from pellucid import Rng, kernels, ops
from pellucid.rng import row_keys

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
def test_bias_act_dropout(shape: tuple[int, ...], dropout: float, with_bias: bool) -> None:
    x, dy = draw(shape, 2)
    bias = draw(shape[-1:], 1)[0] if with_bias else None
    judge(ops.bias_act_dropout, (x, bias), {"dropout": dropout, "rng": named(shape)}, dy)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_relu_of_what_is_not_a_number(value: float) -> None:
    x = np.ones((3, 5), np.float32)
    x[1, 2] = value
    fused = kernels.best(ops.bias_act_dropout, x, None)
    np.testing.assert_array_equal(
        fused.forward(x, None)[0], ops.bias_act_dropout(x, None)[0], strict=True
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
    gelu = kernels.best(ops.bias_act_dropout, x, None, activation="gelu")
    assert gelu.forward is ops.bias_act_dropout
    everything = kernels.best(ops.bias_act_dropout, x, None, dropout=1.0, rng=Rng(0))
    assert everything.forward is ops.bias_act_dropout

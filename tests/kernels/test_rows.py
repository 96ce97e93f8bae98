"""The row-by-row kernels: norms, dropout, and bias + activation + dropout."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import compare, declined, page, planned, results

from pellucid import Rng, ops
from pellucid.core.dispatch import dispatch
from pellucid.core.rng import row_keys
from pellucid.core.vjp import pair
from pellucid.kernels import add_dropout_norm, norm_rotate
from pellucid.ops.activations import ACTIVATIONS, Activation
from pellucid.ops.rotary import PLAIN, Angles

WITH_KERNEL = [name for name, a in ACTIVATIONS.items() if a.kernel]
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
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_add_dropout_norm(shape: tuple[int, ...], dropout: float, affine: str, norm: str) -> None:
    x, residual, dy = draw(shape, 3)
    weight, bias = draw(shape[-1:], 2)
    args: tuple[Any, ...] = (
        x,
        residual,
        None if affine == "none" else weight,
        bias if affine == "both" else None,
    )
    options = {"norm": norm, "dropout": dropout, "rng": named(shape), "eps": 0.1}
    compare(ops.add_dropout_norm, args, options, dy)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("activation", WITH_KERNEL)
def test_bias_act_dropout(
    shape: tuple[int, ...], dropout: float, with_bias: bool, activation: str
) -> None:
    (dy,), wide = draw(shape, 1), (*shape[:-1], shape[-1] * ACTIVATIONS[activation].gates)
    (x,), (bias,) = draw(wide, 1), draw(wide[-1:], 1) if with_bias else [None]
    options = {"dropout": dropout, "rng": named(shape), "activation": activation}
    compare(ops.bias_act_dropout, (x * np.float32(3), bias), options, dy)


@pytest.mark.parametrize("activation", WITH_KERNEL)
def test_activations_far_out(activation: str) -> None:
    x = np.array([[-np.inf, -1e30, -90, -5, -1e-40, 0, 1e-40, 5, 90, 1e30, np.inf]], np.float32)
    dy = np.ones_like(x)
    x = np.concatenate([x, *[dy + dy] * (ACTIVATIONS[activation].gates - 1)], axis=-1)
    compare(ops.bias_act_dropout, (x, None), {"activation": activation}, dy)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
@pytest.mark.parametrize("norm", [ops.layer_norm, ops.rms_norm])
def test_norms(shape: tuple[int, ...], affine: str, norm: Any) -> None:
    x, dy = draw(shape, 2)
    weight, bias = draw(shape[-1:], 2)
    args = (x, None if affine == "none" else weight, bias if affine == "both" else None, 0.1)
    compare(norm, args, {}, dy)


@pytest.mark.parametrize(
    "width, value", [(10, 1e6 / 3), (7, 12345.678), (1000, 12345.678), (10, 1.1), (13, -3e18)]
)
def test_a_constant_row_gives_the_bias(width: int, value: float) -> None:
    """So does one that was added up; a row one bit off is as exact as on the page."""
    x = np.full((5, width), value, np.float32)
    x[1, 0] = np.nextafter(x[1, 0], np.float32(np.inf))
    nothing, (dy,), (bias,) = np.zeros_like(x), draw(x.shape, 1), draw((width,), 1)
    for f, args in ((ops.layer_norm, (x,)), (ops.add_dropout_norm, (nothing, x))):
        y, *_ = compare(f, args, {}, dy)
        np.testing.assert_allclose(y[[0, 2, 3, 4]], 0.0, atol=1e-12)
        y, *_ = planned(f, *args, np.ones(width, np.float32), bias)()
        np.testing.assert_allclose(y[0], bias, atol=1e-12)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("large", [3e19, 1e38])
def test_a_row_whose_variance_overflows_is_nan(large: float) -> None:
    """As in torch; zeros would hide that the row is out of range."""
    x, dy = draw((3, 17), 2)
    nothing = np.zeros_like(x)
    x[1, :2] = large, -large
    for f, args in ((ops.layer_norm, ()), (ops.rms_norm, ()), (ops.add_dropout_norm, (nothing,))):
        others = (x[::2].copy(), *(a[::2].copy() for a in args))
        for plan in (planned, page):
            y, dx, *_ = results(plan(f, x, *args), dy)
            near, near_dx, *_ = results(plan(f, *others), dy[::2])
            for given, expected in ((y, near), (dx, near_dx)):
                assert np.isnan(given[1]).all()
                np.testing.assert_array_equal(given[::2], expected)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("eps", [0.0, 1e-40])
def test_an_epsilon_that_is_no_normal_number_is_left_to_the_page(eps: float) -> None:
    """The kernel's 1 / √σ² holds for normal numbers only, and gave NaN here."""
    (x,) = draw((3, 17), 1)
    x[1] *= np.float32(1e-30)
    for f, args in ((ops.layer_norm, ()), (ops.add_dropout_norm, (np.zeros_like(x),))):
        assert declined(f, x, *args, eps=eps)
        y, _ = dispatch(f, x, *args, eps=eps)
        np.testing.assert_array_equal(y, f(x, *args, eps=eps)[0])
        assert not np.isnan(y).any()


@pytest.mark.parametrize("heads", [(3, 2), (5, 0), (0, 3)])
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("angles", [PLAIN, Angles(500.0, 8.0, 1.0, 4.0, 64), None])
@pytest.mark.parametrize("width", [14, 2 * add_dropout_norm.BLOCK + 6])
def test_norm_rotate(
    heads: tuple[int, int], normed: bool, angles: Angles | None, width: int
) -> None:
    x, dy = draw((41, 7, width), 2)
    weights = [w if normed and n else None for w, n in zip(draw((width,), 2), heads, strict=True)]
    positions = None if angles is None else np.arange(41) * 7 % 97
    options = {"angles": angles or PLAIN, "eps": 0.1}
    compare(ops.norm_rotate, (x, heads, *weights, positions), options, dy)


def test_norm_rotate_declines_what_it_does_not_know() -> None:
    (x,), heads, at = draw((41, 7, 14), 1), (3, 2), np.arange(41)
    planned(ops.norm_rotate, x, heads, None, None, at)
    assert declined(ops.norm_rotate, x[:, 1:], heads, None, None, at)
    assert declined(ops.norm_rotate, x, heads, None, None, at.astype(np.int32))
    assert declined(ops.norm_rotate, x, heads, None, None, at, rotate=ops.alibi)
    assert declined(ops.norm_rotate, x[..., 1:].copy(), heads, None, None, at)  # odd
    assert declined(ops.norm_rotate, x, heads, x[0, 0], x[0, 0], eps=0.0)
    with pytest.raises(ValueError, match="both normalised or neither"):
        dispatch(ops.norm_rotate, x, heads, x[0, 0])


@pytest.mark.parametrize("shape", SHAPES)
def test_dropout(shape: tuple[int, ...]) -> None:
    x, dy = draw(shape, 2)
    y, dx = compare(ops.dropout, (x, 0.3, named(shape)), {}, dy)
    plain, saved = ops.dropout(x, 0.3, named(shape))
    np.testing.assert_array_equal(y == 0, plain == 0)
    np.testing.assert_array_equal(dx == 0, ops.dropout_backward(dy, saved) == 0)


@pytest.mark.parametrize("padding_idx", [None, 2])
def test_embedding(padding_idx: int | None) -> None:
    random = np.random.default_rng(3)
    index, (weight,) = random.integers(0, 7, (5, 13)), draw((7, 131), 1)
    compare(ops.embedding, (index, weight, padding_idx), {}, draw((5, 13, 131), 1)[0])
    with pytest.raises(IndexError, match="7 rows"):
        planned(ops.embedding, index + 1, weight)()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("activation", WITH_KERNEL)
def test_activations_of_what_is_not_a_number(value: float, activation: str) -> None:
    x = np.ones((3, 6), np.float32)
    x[1, 2] = value
    fused = planned(ops.bias_act_dropout, x, None, activation=activation)()[0]
    plain = ops.bias_act_dropout(x, None, activation=activation)[0]
    wild = ~np.isfinite(plain)
    np.testing.assert_array_equal(~np.isfinite(fused), wild)
    np.testing.assert_array_equal(fused[wild], plain[wild])
    assert fused.dtype == plain.dtype


def test_dropout_keeps_the_same_numbers_as_the_page() -> None:
    (x,) = draw((331, 53), 1)
    for rng in (named(x.shape), Rng(5)):
        options = {"dropout": 0.4, "rng": rng}
        y, _ = planned(ops.bias_act_dropout, np.abs(x), None, **options)()
        expected, _ = ops.bias_act_dropout(np.abs(x), None, **options)
        np.testing.assert_array_equal(y, expected)


def test_relu_keeps_its_output_for_backward_and_others_their_input() -> None:
    """The output of ReLU is read-only, since writing to it would change the gradient."""
    (x,) = draw((6, 10), 1)
    for activation in WITH_KERNEL:
        y, _ = planned(ops.bias_act_dropout, x, None, activation=activation)()
        assert y.flags.writeable == (activation != "relu")


def test_an_activation_without_a_kernel_runs_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not fall through to the loop of another activation."""
    x, dy = draw((6, 10), 2)
    row = Activation("squared_relu", pair(lambda x: (np.maximum(x, 0) ** 2, x),
                                          lambda dy, x: dy * 2 * np.maximum(x, 0)))  # fmt: skip
    monkeypatch.setitem(ACTIVATIONS, "squared_relu", row)
    assert declined(ops.bias_act_dropout, x, None, activation="squared_relu")
    y, backward = dispatch(ops.bias_act_dropout, x, None, activation="squared_relu")
    np.testing.assert_array_equal(y, np.maximum(x, 0) ** 2)
    np.testing.assert_array_equal(backward(dy)[0], dy * 2 * np.maximum(x, 0))


def test_arrays_that_the_row_kernels_decline() -> None:
    (x,) = draw((6, 10), 1)
    for other in (x.astype(np.float64), x[:, ::2], np.asfortranarray(x), x[:0], x[:, 0]):
        assert declined(ops.bias_act_dropout, other, None)
        assert declined(ops.add_dropout_norm, other, other)
        assert declined(ops.layer_norm, other)
        assert declined(ops.rms_norm, other)
        assert declined(ops.dropout, other, 0.5, Rng(0))
    assert declined(ops.bias_act_dropout, x, None, activation="sine")
    assert declined(ops.bias_act_dropout, x[:, :9].copy(), None, activation="swiglu")
    assert declined(ops.dropout, x, 0.0, Rng(0))
    assert declined(ops.embedding, np.zeros(3, np.int32), x)
    assert declined(ops.embedding, np.zeros(3, np.int64), x[:, :0])
    assert declined(ops.bias_act_dropout, x, None, dropout=1.0, rng=Rng(0))


def near_and_far(
    shapes: dict[str, tuple[int, ...]], run: Callable[[dict[str, np.ndarray]], None]
) -> None:
    """Check that what `run` makes of arrays has the same bits wherever they lie.

    Arrays close together made LLVM take a loop that rounded otherwise, in one run in hundreds.
    Every pair of arrays is laid at every distance from touching to a cache line.
    """
    g = np.random.default_rng(0)
    values = {name: g.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    if "names" in values:
        values["names"] = g.integers(0, 2**32, shapes["names"], np.uint32).view(np.float32)
    memory = np.zeros(4096, np.float32)

    def bits(places: dict[str, int]) -> bytes:
        a = {
            name: memory[places[name] : places[name] + prod(shape)].reshape(shape)
            for name, shape in shapes.items()
        }
        for name, array in a.items():
            array.view(np.uint32)[...] = values[name].view(np.uint32)
        a["sums"][...] = 0
        run(a)
        return b"".join(array.tobytes() for array in a.values())

    apart = {name: 256 * i for i, name in enumerate(shapes)}
    expected = bits(apart)
    for first, second in permutations(shapes, 2):
        for gap in (0, 3, 15, 16):
            close = {first: 3000, second: 3000 + prod(shapes[first]) + gap}
            assert bits(apart | close) == expected, (first, second, gap)


@pytest.mark.parametrize("centred", [True, False])
def test_the_bits_of_a_norm_do_not_depend_on_where_its_arrays_lie(centred: bool) -> None:
    def run(a: dict[str, np.ndarray]) -> None:
        drawn = (a["names"].view(np.uint32), np.uint32(5), np.uint32(2**29), np.float32(1.14))
        add_dropout_norm._forward(
            1, a["x"], a["residual"], a["gamma"], a["beta"], np.float32(1e-5), centred, *drawn,
            a["y"], a["x_hat"], a["inverse_std"],
        )  # fmt: skip
        add_dropout_norm._backward(
            1, a["x"], a["x_hat"], a["inverse_std"], a["gamma"], centred, *drawn,
            a["dx"], a["dresidual"], a["sums"],
        )  # fmt: skip

    near_and_far(
        {
            "x": (4, 12), "residual": (4, 12), "gamma": (12,), "beta": (12,), "names": (4,),
            "y": (4, 12), "x_hat": (4, 12), "inverse_std": (4,), "dx": (4, 12),
            "dresidual": (4, 12), "sums": (1, 2, 12),
        },
        run,
    )  # fmt: skip


def test_the_bits_of_rotated_heads_do_not_depend_on_where_their_arrays_lie() -> None:
    def run(a: dict[str, np.ndarray]) -> None:
        x, gains, turns = a["x"], a["gains"], (a["cos"], a["sin"])
        norm_rotate._forward(1, x, True, gains, np.float32(1e-5), *turns, a["y"], a["inverse"])
        norm_rotate._backward(1, a["dy"], x, True, gains, a["inverse"], *turns, a["dx"], a["sums"])

    near_and_far(
        {
            "x": (3, 3, 12), "gains": (2, 12), "cos": (3, 6), "sin": (3, 6), "y": (3, 3, 12),
            "inverse": (3, 2), "dy": (3, 3, 12), "dx": (3, 3, 12), "sums": (1, 2, 12),
        },
        run,
    )  # fmt: skip

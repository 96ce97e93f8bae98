"""The table of every op and layer: what each row must pass, whatever it computes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.nn import compare

from pellucid import nn, ops
from pellucid.check import TOLERANCE, Case, LayerCase, cases, gradient_check, layer_cases
from pellucid.check.gradient import listed
from pellucid.core import dispatch

CASES = cases()
LAYERS = layer_cases()


@pytest.mark.parametrize("case", CASES, ids=[f"{c.kind}-{c.name}" for c in CASES])
def test_gradient(case: Case) -> None:
    errors = case.errors()
    learnt = case.built().named_parameters() if isinstance(case, LayerCase) else ()
    names = [f"input {i}" for i in range(len(case.arrays))]
    assert list(errors) == [*names, *(name for name, _ in learnt)]
    assert max(errors.values()) <= TOLERANCE


def test_a_wrong_gradient_is_seen() -> None:
    x = np.linspace(-1, 1, 11)

    def error(backward: Callable[..., Any]) -> float:
        return gradient_check(lambda x: (x**3, lambda dy: backward(x, dy)), [x])["input 0"]

    assert error(lambda x, dy: 2.9999 * x**2 * dy) > 1e-5
    assert error(lambda x, dy: 0.0 * x) == 1.0
    assert error(lambda x, dy: (3 * x**2 * dy).sum()) == np.inf
    assert error(lambda x, dy: x * np.nan) == np.inf


class Scaled(nn.Module):
    """x · weight, each class below wrong in one way."""

    def __init__(self) -> None:
        self.weight = nn.Parameter((3,), nn.init.ones, np.float64)
        self.weight.data = np.array([0.5, -1.0, 2.0])
        self.frozen = nn.Parameter((3,), nn.init.ones, np.float64)
        self.frozen.requires_grad = False

    def forward(self, x: np.ndarray) -> Any:
        def backward(dy: np.ndarray) -> np.ndarray:
            self.gradient((dy * x).sum(0))
            return dy * self.weight.data

        return x * self.weight.data, backward

    def gradient(self, dw: np.ndarray) -> None:
        self.weight.accumulate(dw)


class ThreeTimes(Scaled):
    def gradient(self, dw: np.ndarray) -> None:
        self.weight.accumulate(3 * dw)


class Forgotten(Scaled):
    def gradient(self, dw: np.ndarray) -> None:
        pass


class OverWritten(Scaled):
    def gradient(self, dw: np.ndarray) -> None:
        self.weight.grad = dw


class Misshapen(Scaled):
    def gradient(self, dw: np.ndarray) -> None:
        self.weight.grad = dw[None]


class OfTheLastInput(Scaled):
    def forward(self, x: np.ndarray) -> Any:
        y, _ = super().forward(x)
        self.x = x

        def backward(dy: np.ndarray) -> np.ndarray:
            self.gradient((dy * self.x).sum(0))
            return dy * self.weight.data

        return y, backward


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("layer", [ThreeTimes, Forgotten, OverWritten, Misshapen, OfTheLastInput])
def test_a_wrong_gradient_of_a_parameter_is_seen(layer: type[Scaled], bound: bool) -> None:
    x, made, right = np.linspace(-1, 1, 12).reshape(4, 3), layer(), Scaled()
    errors = gradient_check(made.forward if bound else made, [x])
    assert list(errors) == ["input 0", "weight"]
    assert errors["input 0"] <= TOLERANCE < 1e-3 < errors["weight"]
    assert max(gradient_check(right.forward if bound else right, [x]).values()) <= TOLERANCE


def test_a_layer_is_as_it_was_after_its_check() -> None:
    layer, x = Scaled(), np.linspace(-1, 1, 12).reshape(4, 3)
    data, gradient = layer.weight.data, np.ones(3)
    layer.weight.grad = gradient
    gradient_check(layer, [x])
    assert layer.weight.data is data
    assert layer.weight.grad is gradient


def test_a_layer_of_integers_is_checked_by_its_parameters() -> None:
    table = nn.Embedding(5, 3, dtype=np.float64)
    assert gradient_check(table, [], input=np.array([0, 2, 4]))["weight"] <= TOLERANCE


def test_a_gradient_that_is_zero_but_for_rounding_is_right() -> None:
    """Softmax does not see a number added to a whole row."""
    from pellucid import ops

    class Shifted(nn.Module):
        def __init__(self) -> None:
            self.shift = nn.Parameter((1,), nn.init.ones, np.float64)

        def forward(self, x: np.ndarray) -> Any:
            p, saved = ops.softmax(x + self.shift.data)

            def backward(dy: np.ndarray) -> np.ndarray:
                dx = ops.softmax_backward(dy, saved)
                self.shift.accumulate(dx.sum().reshape(1))
                return dx

            return p, backward

    x = np.random.default_rng(0).standard_normal((4, 6))
    assert max(gradient_check(Shifted(), [x]).values()) <= TOLERANCE


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda dy: dy, "no gradient for input 1;"),
        (lambda dy: (dy, None), "no gradient for input 1;"),
        (lambda dy: (None, dy), "no gradient for input 0;"),
        (lambda dy: None, "no gradient for input 0;"),
        (lambda dy: (dy, dy, dy), "3 gradients for 2 inputs"),
    ],
)
def test_a_missing_gradient_is_named(backward: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"backward returned {message}"):
        gradient_check(lambda x, b: (x + b, backward), [np.ones(3), np.ones(3)])


def test_float32_is_refused() -> None:
    with pytest.raises(TypeError, match="float64"):
        gradient_check(lambda x: (x, lambda dy: dy), [np.ones(3, np.float32)])
    with pytest.raises(TypeError, match="weight of float32"):
        gradient_check(nn.Linear(3, 2), [np.ones((2, 3))])
    with pytest.raises(ValueError, match="needs an input or a parameter"):
        gradient_check(nn.ReLU(), [])


def test_names_are_unique() -> None:
    names = [(case.kind, case.name) for case in CASES]
    assert len(set(names)) == len(names)


def test_every_op_is_enrolled() -> None:
    paired = {name for name in ops.__all__ if f"{name}_backward" in ops.__all__}
    assert paired == {case.name.split(" (")[0] for case in CASES if case.kind == "op"}


def test_every_layer_is_enrolled() -> None:
    base = {"Module", "ModuleList"}
    public = {
        name
        for name in nn.__all__
        if isinstance(value := getattr(nn, name), type) and issubclass(value, nn.Module)
    }
    assert public - base == {case.layer for case in LAYERS}


def float32(case: LayerCase) -> tuple[nn.Module, list[np.ndarray]]:
    return case.built(np.float32), [x.astype(np.float32) for x in case.arrays]


def projections(y: object) -> list[np.ndarray | None]:
    generator = np.random.default_rng(11)
    return [
        None if a is None else generator.standard_normal(np.shape(a)).astype(a.dtype)
        for a in listed(y)
    ]


@pytest.mark.parametrize("case", LAYERS, ids=[c.name for c in LAYERS])
def test_layer_keeps_dtype_and_arguments(case: LayerCase) -> None:
    layer, arrays = float32(case)
    fixed = {k: v.astype(np.float32) if is_float(v) else v for k, v in case.fixed.items()}
    given = [*arrays, *(p.data for p in layer.parameters())]
    given += [v for v in fixed.values() if isinstance(v, np.ndarray)]
    before = [a.copy() for a in given]
    y, backward = case.call(layer, *arrays, **fixed)
    dys = projections(y)
    dys_before = [None if d is None else d.copy() for d in dys]
    dx = backward(*dys)
    results = [*listed(y), *listed(dx), *(p.grad for p in layer.parameters())]
    assert {a.dtype for a in results if a is not None} == {np.dtype(np.float32)}
    assert all(np.array_equal(a, b) for a, b in zip(given, before, strict=True))
    pairs = zip(dys, dys_before, strict=True)
    assert all(a is b is None or np.array_equal(a, b) for a, b in pairs)


def is_float(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


@pytest.mark.parametrize("case", LAYERS, ids=[c.name for c in LAYERS])
def test_layer_used_twice(case: LayerCase) -> None:
    """Two uses of one layer, ways back taken in the order of use, give what each gives alone."""
    inputs = [list(case.arrays), [0.5 - 0.7 * x for x in case.arrays]]
    alone = []
    for arrays in inputs:
        layer = case.built()
        y, backward = case.call(layer, *arrays, **case.fixed)
        dx = backward(*projections(y))
        alone.append((listed(y), listed(dx), [p.grad for p in layer.parameters()]))

    layer = case.built()
    uses = [case.call(layer, *arrays, **case.fixed) for arrays in inputs]
    both = [(listed(y), listed(backward(*projections(y)))) for y, backward in uses]
    for (y, dx), (y_alone, dx_alone, _) in zip(both, alone, strict=True):
        for a, b in zip([*y, *dx], [*y_alone, *dx_alone], strict=True):
            assert a is b is None or np.array_equal(a, b)
    for parameter, first, second in zip(layer.parameters(), alone[0][2], alone[1][2], strict=True):
        np.testing.assert_allclose(parameter.grad, first + second, rtol=1e-13, atol=1e-13)
        assert np.abs(parameter.grad).max() > 0


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("case", LAYERS, ids=[c.name for c in LAYERS])
def test_a_gradient_of_another_shape_is_refused(case: LayerCase, fused: bool) -> None:
    with contextlib.nullcontext() if fused else dispatch.reference():
        layer, arrays = float32(case)
        ys = listed(case.call(layer, *arrays, **case.fixed)[0])
        shapes = [() if y is None else compare.other_shapes(y.shape) for y in ys]
        for i, shape in ((i, shape) for i, others in enumerate(shapes) for shape in others):
            _, backward = case.call(layer, *arrays, **case.fixed)
            dys = projections(tuple(ys))
            dys[i] = np.ones(shape, np.float32)
            with pytest.raises(ValueError, match=f"gradient.* {re.escape(str(ys[i].shape))}"):
                backward(*dys)

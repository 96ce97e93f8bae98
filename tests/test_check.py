"""The table of every op and layer: what each row must pass, whatever it computes."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
from tests.nn import compare

from pellucid import kernels, nn, ops
from pellucid.check import TOLERANCE, Case, LayerCase, cases, gradient_check, layer_cases
from pellucid.check.gradient import listed

CASES = cases()
LAYERS = layer_cases()


@pytest.mark.parametrize("case", CASES, ids=[f"{c.kind}-{c.name}" for c in CASES])
def test_gradient(case: Case) -> None:
    errors = gradient_check(case.forward, case.inputs)
    assert len(errors) == len(case.inputs) > 0
    assert max(errors) <= TOLERANCE


def test_a_wrong_gradient_is_seen() -> None:
    x = np.linspace(-1, 1, 11)
    assert gradient_check(lambda x: (x**3, lambda dy: 2.9999 * x**2 * dy), [x])[0] > 1e-5
    assert gradient_check(lambda x: (x**3, lambda dy: 0.0 * x), [x])[0] == 1.0
    assert gradient_check(lambda x: (x**3, lambda dy: (3 * x**2 * dy).sum()), [x])[0] == np.inf


def test_a_missing_gradient_is_seen() -> None:
    with pytest.raises(ValueError, match="shorter"):
        gradient_check(lambda x, b: (x + b, lambda dy: dy), [np.ones(3), np.ones(3)])


def test_float32_is_refused() -> None:
    with pytest.raises(TypeError, match="float64"):
        gradient_check(lambda x: (x, lambda dy: dy), [np.ones(3, np.float32)])


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
    with contextlib.nullcontext() if fused else kernels.reference():
        layer, arrays = float32(case)
        ys = listed(case.call(layer, *arrays, **case.fixed)[0])
        shapes = [() if y is None else compare.other_shapes(y.shape) for y in ys]
        for i, shape in ((i, shape) for i, others in enumerate(shapes) for shape in others):
            _, backward = case.call(layer, *arrays, **case.fixed)
            dys = projections(tuple(ys))
            dys[i] = np.ones(shape, np.float32)
            with pytest.raises(ValueError, match=f"gradient.* {re.escape(str(ys[i].shape))}"):
                backward(*dys)

"""What every op must pass, one row of the table at a time (gradients: tests/test_check.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.ops.libraries import LIBRARIES, back, fixed_in, same_library, to

from pellucid.check import OpCase, op_cases
from pellucid.check.gradient import listed

CASES = op_cases()
GOLDEN = load_file(Path(__file__).parents[1] / "fixtures" / "ops.safetensors")
every_case = pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])


def projection(y: Any) -> np.ndarray:
    return np.random.default_rng([23, *np.shape(y)]).standard_normal(np.shape(y)).astype(y.dtype)


def gradients(case: OpCase, dy: Any, saved: Any) -> list[Any]:
    found = [g for g in listed(case.pair.backward(dy, saved)) if g is not None]
    assert len(found) == len(case.arrays)
    return found


def fixed_as(case: OpCase, dtype: Any) -> dict[str, Any]:
    """Cast arrays; a number comes as NumPy's float64, which must not make the result float64."""

    def cast(v: Any) -> Any:
        if isinstance(v, float):
            return np.float64(v)
        return v.astype(dtype) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v

    return {k: cast(v) for k, v in case.fixed.items()}


def assert_near(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    """max|a − b| / max|b|, and never another shape."""
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()


@every_case
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_and_shape_are_kept(case: OpCase, dtype: Any) -> None:
    arrays = {k: x.astype(dtype) for k, x in case.arrays.items()}
    y, saved = case.pair.forward(**arrays, **fixed_as(case, dtype))
    assert y.dtype == dtype
    for x, gradient in zip(arrays.values(), gradients(case, projection(y), saved), strict=True):
        assert gradient.dtype == dtype
        assert gradient.shape == x.shape


@every_case
def test_float32_is_as_near_as_float32_can_be(case: OpCase) -> None:
    y, saved = case.pair.forward(**case.arrays, **case.fixed)
    dy = projection(y)
    exact = [y, *gradients(case, dy, saved)]
    arrays = {k: x.astype(np.float32) for k, x in case.arrays.items()}
    y32, saved32 = case.pair.forward(**arrays, **fixed_as(case, np.float32))
    single = [y32, *gradients(case, dy.astype(np.float32), saved32)]
    for a, b in zip(single, exact, strict=True):
        assert_near(a, b, 2e-5)


@every_case
def test_no_argument_is_touched(case: OpCase) -> None:
    """Arguments, the output's gradient and what was saved are locked; a write would raise."""
    arrays = {k: x.copy() for k, x in case.arrays.items()}
    fixed = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in case.fixed.items()}
    given = [*arrays.values(), *(v for v in fixed.values() if isinstance(v, np.ndarray))]
    for x in given:
        x.flags.writeable = False
    before = [x.copy() for x in given]
    y, saved = case.pair.forward(**arrays, **fixed)
    dy = projection(y)
    kept = [x for x in leaves(saved) if isinstance(x, np.ndarray)]
    saved_before = [x.copy() for x in kept]
    for x in (*kept, dy, y):
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
    dy_before, y_before = dy.copy(), np.array(y)
    gradients(case, dy, saved)
    assert np.array_equal(dy, dy_before)
    assert np.array_equal(y, y_before)
    for x, copy in zip([*given, *kept], [*before, *saved_before], strict=True):
        assert np.array_equal(x, copy)


def leaves(saved: Any) -> list[Any]:
    if not isinstance(saved, tuple):
        return [saved]
    return [leaf for part in saved for leaf in leaves(part)]


@every_case
def test_used_twice(case: OpCase) -> None:
    """A second call between forward and backward changes nothing: there is no state."""
    y, saved = case.pair.forward(**case.arrays, **case.fixed)
    dy = projection(y)
    alone = gradients(case, dy, saved)
    again, saved_again = case.pair.forward(**case.arrays, **case.fixed)
    other = {k: 0.5 - 0.7 * x for k, x in case.arrays.items()}
    _, saved_other = case.pair.forward(**other, **case.fixed)
    gradients(case, -dy, saved_other)
    assert np.array_equal(y, again)
    for a, b in zip(gradients(case, dy, saved_again), alone, strict=True):
        assert np.array_equal(a, b)
    for a, b in zip(gradients(case, dy, saved), alone, strict=True):
        assert np.array_equal(a, b)


@every_case
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_array_library_agrees(case: OpCase, library: str) -> None:
    y, saved = case.pair.forward(**case.arrays, **case.fixed)
    dy = projection(y)
    expected = [y, *gradients(case, dy, saved)]
    arrays = {k: to(library, x) for k, x in case.arrays.items()}
    there, saved_there = case.pair.forward(**arrays, **fixed_in(library, case))
    found = [there, *gradients(case, to(library, dy), saved_there)]
    for a, b in zip(found, expected, strict=True):
        assert same_library(a, next(iter(arrays.values())))
        assert_near(back(a), b, 1e-12)


@every_case
@pytest.mark.oracle("jax")
def test_numpys_arrays_may_be_beside_jaxs(case: OpCase) -> None:
    """As in JAX's own functions: any one argument is JAX's, the others and dy are NumPy's."""
    y, saved = case.pair.forward(**case.arrays, **case.fixed)
    dy = projection(y)
    expected = [y, *gradients(case, dy, saved)]
    for name in case.arrays:
        arrays = case.arrays | {name: to("jax", case.arrays[name])}
        there, saved_there = case.pair.forward(**arrays, **case.fixed)
        found = [there, *gradients(case, dy, saved_there)]
        assert same_library(there, arrays[name])
        for a, b in zip(found, expected, strict=True):
            assert_near(back(a), b, 1e-12)


STORED = {name.rsplit("/", 1)[0] for name in GOLDEN}
MAKE_THEM = "no stored answer of PyTorch's: `python -m tests.fixtures.make_ops` writes it"


def test_stored_answers_are_of_rows_that_there_are() -> None:
    """A row without one is skipped below: its differences and `pellucid check --exact` remain."""
    assert {case.name for case in CASES} >= STORED, f"run {MAKE_THEM.partition('`')[2]}"


@every_case
def test_equals_what_torch_answered(case: OpCase) -> None:
    """Forward and backward on the stored inputs against torch's stored results."""
    if case.name not in STORED:
        pytest.skip(MAKE_THEM)
    stored = {k: GOLDEN[f"{case.name}/{k}"] for k in case.arrays}
    y, saved = case.pair.forward(**stored, **case.fixed)
    assert_near(y, GOLDEN[f"{case.name}/y"], 1e-12)
    found = gradients(case, GOLDEN[f"{case.name}/dy"], saved)
    for name, gradient in zip(case.arrays, found, strict=True):
        assert_near(gradient, GOLDEN[f"{case.name}/d{name}"], 1e-12)


@every_case
@pytest.mark.oracle("torch")
def test_equals_torch_now(case: OpCase) -> None:
    from tests.ops.torch_reference import run

    y, saved = case.pair.forward(**case.arrays, **case.fixed)
    dy = projection(y)
    expected, expected_gradients = run(case, dy)
    assert_near(y, expected, 1e-12)
    for a, b in zip(gradients(case, dy, saved), expected_gradients, strict=True):
        assert_near(a, b, 1e-12)

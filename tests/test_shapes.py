"""The shapes that signatures state are checked in every test, and a wrong one is red."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import numpy as np
import pytest
from tests.shapes import ShapeError, checked

from pellucid import nn, ops
from pellucid.ops.norms import NORMS

LAYERS = [
    getattr(each, method)
    for name in nn.__all__
    if isinstance(each := getattr(nn, name), type) and issubclass(each, nn.Module)
    for method in ("forward", "run")
    if hasattr(each, method) and name not in ("Module", "ModuleList", "CrossEntropyLoss")
]


def swapped(
    x: Annotated[Any, "L E"], weight: Annotated[Any, "2E"] | None = None
) -> tuple[Annotated[Any, "L E"], None]:
    return x.T, None


def test_a_result_of_another_shape_is_an_error() -> None:
    f = checked(swapped)
    assert f(np.ones((3, 3)))[0].shape == (3, 3)
    message = r"swapped: the result is \(L E\), got \(5, 3\) where L = 3, E = 5"
    with pytest.raises(ShapeError, match=message):
        f(np.ones((3, 5)))


def test_an_argument_of_another_shape_is_an_error() -> None:
    f = checked(swapped)
    f(np.ones((3, 3)), weight=np.ones(6))
    with pytest.raises(ShapeError, match=r"weight is \(2E\), got \(5,\) where L = 3, E = 3"):
        f(np.ones((3, 3)), np.ones(5))


def test_the_library_under_test_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((2, 5, 3), np.float32)
    with pytest.raises(ShapeError, match=r"Linear.run: x is \(T E\), got \(2, 5, 3\)"):
        nn.Linear(3, 2).run(x)
    page = inspect.unwrap(ops.rms_norm).__globals__
    monkeypatch.setitem(page, "narrowed", lambda y, x: y[..., 1:])
    with pytest.raises(ShapeError, match=r"rms_norm: the result is \(… E\), got \(2, 5, 2\)"):
        ops.rms_norm(x)


@pytest.mark.parametrize(
    "f",
    [
        *(getattr(ops, name) for name in ops.__all__),
        *(f for norm in NORMS.values() for f in norm.op),
        *LAYERS,
    ],
    ids=lambda f: f.__qualname__,
)
def test_every_op_and_layer_states_its_shapes(f: Any) -> None:
    assert "Annotated" in str(inspect.signature(f))
    assert hasattr(f, "__wrapped__")

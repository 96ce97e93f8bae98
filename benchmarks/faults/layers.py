"""Layers with one wrong gradient, which the check must find, and with one wrong argument."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
from benchmarks.faults.mode import Case

from pellucid.check import TOLERANCE, gradient_check, layer_cases
from pellucid.nn.module import Parameter

Array = np.ndarray
Accumulate = Callable[[Array], None]


def three_times(parameter: Parameter, add: Accumulate, gradient: Array) -> None:
    """Add three times the gradient."""
    add(3 * gradient)


def of_the_other_sign(parameter: Parameter, add: Accumulate, gradient: Array) -> None:
    """Subtract the gradient."""
    add(-gradient)


def forgotten(parameter: Parameter, add: Accumulate, gradient: Array) -> None:
    """Add nothing."""


def of_the_last_use(parameter: Parameter, add: Accumulate, gradient: Array) -> None:
    """Replace the gradients added before."""
    parameter.grad = gradient


def with_one_wrong_number(parameter: Parameter, add: Accumulate, gradient: Array) -> None:
    """Add the gradient with its largest number 1 % too large."""
    wrong = gradient.copy()
    wrong.flat[np.abs(gradient).argmax()] *= 1.01
    add(wrong)


WRONGS = (three_times, of_the_other_sign, forgotten, of_the_last_use, with_one_wrong_number)


class Gradients:
    """Each case makes the gradient of one parameter of a layer wrong, and checks the layer."""

    units = "wrong gradients"

    def __init__(self, place: Path) -> None:
        self.layers = [case for case in layer_cases() if list(case.built().parameters())]

    def __call__(self, number: int) -> Case:
        """Run one case."""
        draw = np.random.default_rng(number)
        wrong = WRONGS[draw.integers(len(WRONGS))]
        case = self.layers[draw.integers(len(self.layers))]
        layer = case.built()
        named = dict(layer.named_parameters())
        name = str(draw.choice(list(named)))

        def accumulate(self: Parameter, gradient: Array | None) -> None:
            if gradient is not None:
                wrong(self, partial(Parameter.accumulate, self), gradient)

        named[name].__class__ = type("Wrong", (Parameter,), {"accumulate": accumulate})
        errors = gradient_check(MethodType(case.call, layer), case.arrays, **case.fixed)
        others = max((error for key, error in errors.items() if key != name), default=0.0)
        became = "seen" if errors[name] > TOLERANCE else f"NOT SEEN: {errors[name]:.1e}"
        if others > TOLERANCE:
            became = f"ANOTHER BLAMED: {others:.1e}"
        kind = wrong.__name__.replace("_", " ")
        return Case(kind, became, figures=f"{case.name}: {name}" if became[0].isupper() else "")


JUNK: dict[str, tuple[Callable[[Array], Any], ...]] = {
    "no array": (
        lambda x: x.tolist(),
        lambda x: 3.0,
        lambda x: "abc",
        lambda x: b"abc",
        lambda x: {},
    ),
    "other numbers": (
        lambda x: x.astype(np.float16),
        lambda x: x.astype(complex),
        lambda x: x.astype(object),
        lambda x: x.astype(np.longdouble),
        lambda x: x > 0,
        lambda x: x.astype(np.int64),
        lambda x: np.full_like(x, np.nan),
        lambda x: np.full_like(x, 1e38),
        lambda x: np.ma.masked_array(x, x > 0),
    ),
    "other shape": (
        lambda x: np.float32(3.0),
        lambda x: x[0],
        lambda x: x[None],
        lambda x: np.concatenate([x, x[..., :1]], -1),
        lambda x: np.zeros_like(x, shape=(*x.shape[:-1], 0)),
        lambda x: x[..., ::-1],
        lambda x: x.T,
    ),
}


class Arguments:
    """Each case gives a layer an argument of another type: an answer, or a clear error."""

    units = "wrong arguments"

    def __init__(self, place: Path) -> None:
        rows = (case for case in layer_cases() if case.arrays)
        self.layers = [case for case in rows if "packed" not in case.note]  # torch's calls

    def __call__(self, number: int) -> Case:
        """Run one case."""
        draw = np.random.default_rng(number)
        kind = str(draw.choice(list(JUNK)))
        case = self.layers[draw.integers(len(self.layers))]
        arrays: list[Any] = [x.astype(np.float32) for x in case.arrays]
        i = int(draw.integers(len(arrays)))
        made = int(draw.integers(len(JUNK[kind])))
        arrays[i] = JUNK[kind][made](arrays[i])
        layer = case.built(np.float32)
        told = ""
        try:
            with np.errstate(all="ignore"):
                y, backward = case.call(layer, *arrays, **case.fixed)
                ys = y if isinstance(y, tuple) else (y,)
                backward(*(None if one is None else np.ones_like(one) for one in ys))
            became = "computed"
        except (TypeError, ValueError, IndexError) as error:
            became, told = "refused", str(error)
            if any(word in told for word in ("object has no", "NoneType", "unsupported operand")):
                became = "UNCLEAR"
        except Exception as error:
            became, told = f"{type(error).__name__}".upper(), str(error)
        told = f"{case.name}, argument {i}, {made}: {told}" if became[0].isupper() else ""
        return Case(kind, became, figures=told)

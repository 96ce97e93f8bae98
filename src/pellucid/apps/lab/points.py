"""Variants from lists and ranges of settings: every combination, or points spread over the ranges.

[grid]                                        [random]
training.schedule.lr = [1e-3, 2e-3, 4e-3]     count = 8
model.d_model = [64, 128]                     log.training.schedule.lr = [5e-4, 8e-3]
                                              uniform.model.dropout = [0.0, 0.3]
                                              choice.model.d_model = [64, 128]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from pellucid.core.errors import UsageError, optional, pip_install
from pellucid.core.settings import flat, nearest

Point = Mapping[str, Any]
"""Values of settings, by their dotted names."""


def grid_points(table: Mapping[str, Any], where: str) -> list[Point]:
    """Return every combination of lists of values. Raises `UsageError` for what is not a list.

    >>> grid_points({"model": {"d_model": [64, 128], "norm": ["pre", "post"]}}, "grid")[1]
    {'model.d_model': 64, 'model.norm': 'post'}
    """
    axes = flat(table)
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"{where}: {name}: expected a list of values, got {values!r}")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def random_points(table: Mapping[str, Any], where: str) -> list[Point]:
    """Return `count` points spread evenly over all ranges at once, by Halton's sequence.

    It needs no random seed, and a larger count keeps the points before: their runs are not done
    again. Numbers are rounded to three digits. Raises `UsageError` for a wrong range.
    Source: Bergstra & Bengio 2012, 4.3; Halton 1964.

    >>> random_points({"count": 2, "log": {"lr": [1e-4, 1e-2]}, "choice": {"d": [64, 128]}}, "r")
    [{'lr': 0.001, 'd': 64}, {'lr': 0.000316, 'd': 128}]
    """
    axes: dict[str, Callable[[float], Any]] = {}
    for kind, ranges in table.items():
        if kind == "count":
            continue
        if kind not in SCALES or not isinstance(ranges, Mapping):
            hint = nearest(kind, SCALES)
            raise UsageError(f"{where}: no {kind}{hint}; there are: count, {', '.join(SCALES)}")
        for name, values in flat(ranges).items():
            axes[name] = SCALES[kind](f"{where}.{kind}: {name}", values)
    count = table.get("count")
    if type(count) is not int or count < 1 or not axes:
        raise UsageError(f"{where}: expected count, at least 1, and ranges; got count = {count!r}")
    needed = f"[random] needs SciPy: {pip_install('pellucid[lab]')}"
    sequence = optional("scipy.stats.qmc", needed, UsageError).Halton(len(axes), scramble=False)
    sequence.fast_forward(1)  # past the corner where every range begins
    drawn = sequence.random(count)
    return [
        {name: at(float(u)) for (name, at), u in zip(axes.items(), row, strict=True)}
        for row in drawn
    ]


def point_name(point: Point) -> str:
    """Return a variant's name: the last part of each setting's, with its value.

    >>> point_name({"training.schedule.lr": 0.004, "model.d_model": 64})
    'lr-0.004+d_model-64'
    """
    return "+".join(f"{name.rpartition('.')[2]}-{value}" for name, value in point.items())


def nested(point: Point) -> dict[str, Any]:
    """Return settings as tables in tables; the inverse of `flat`.

    >>> nested({"seed": 3, "model.width": 64})
    {'seed': 3, 'model': {'width': 64}}
    """
    found: dict[str, Any] = {}
    for name, value in point.items():
        *tables, last = name.split(".")
        inner = found
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = value
    return found


def _choice(where: str, values: Any) -> Callable[[float], Any]:
    if not isinstance(values, list) or not values:
        raise UsageError(f"{where}: expected a list of values, got {values!r}")
    return lambda u: values[int(u * len(values))]


def _bounds(where: str, values: Any, above: float) -> tuple[Any, Any]:
    numbers = isinstance(values, Sequence) and all(type(x) in (int, float) for x in values)
    if not numbers or len(values) != 2 or not above < values[0] < values[1]:
        least = f", the least above {above:g}" if math.isfinite(above) else ""
        raise UsageError(f"{where}: expected [least, most]{least}; got {values!r}")
    return values[0], values[1]


def _uniform(where: str, values: Any) -> Callable[[float], Any]:
    low, high = _bounds(where, values, -math.inf)
    if type(low) is type(high) is int:
        return lambda u: low + int(u * (high - low + 1))
    return lambda u: float(f"{low + u * (high - low):.3g}")


def _log(where: str, values: Any) -> Callable[[float], Any]:
    low, high = _bounds(where, values, 0.0)
    whole = type(low) is type(high) is int
    kind = (lambda x: round(x)) if whole else (lambda x: float(f"{x:.3g}"))
    return lambda u: kind(low * (high / low) ** u)


SCALES: Mapping[str, Callable[[str, Any], Callable[[float], Any]]] = {
    "log": _log,
    "uniform": _uniform,
    "choice": _choice,
}
"""How the values of a range lie: by equal factors, by equal steps, or in a list."""


def variants(grid: Any, random: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of every point of both tables, with its settings as tables."""
    for name, table, points in (("grid", grid, grid_points), ("random", random, random_points)):
        if not isinstance(table, Mapping):
            raise UsageError(f"{where}, {name}: expected a table, got {table!r}")
        for point in points(table, f"{where}, {name}") if table else ():
            yield point_name(point), nested(point)

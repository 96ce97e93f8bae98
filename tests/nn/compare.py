"""When two results are the same numbers."""

from __future__ import annotations

import numpy as np
from tests.nn.draws import Array

TOLERANCE = {"float64": 1e-9, "float32": 2e-5}
TINY = {"float64": 1e-6, "float32": 1e-2}
"""Below this share of the model's largest gradient an array is measured against the model's."""


def errors(
    ours: dict[str, Array], theirs: dict[str, Array], dtype: str = "float64"
) -> dict[str, float]:
    """Return max|a − b| / max|b| for every array.

    A gradient that is tiny beside the model's largest (the key bias's true gradient is zero, and
    what is there is rounding) is measured against the model's largest. Another name, shape, dtype
    or place of a NaN is an infinite error.
    """
    if ours.keys() != theirs.keys():
        return {f"present on one side only: {ours.keys() ^ theirs.keys()}": np.inf}
    largest = max((_size(b) for name, b in theirs.items() if "gradient" in name), default=0.0)
    found = {}
    for name, b in theirs.items():
        a = ours[name]
        if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
            found[name] = np.inf
            continue
        scale = _size(b)
        if "gradient" in name and scale < TINY[dtype] * largest:
            scale = largest
        difference = _size(np.where(a == b, 0.0, np.subtract(a, b, dtype=np.float64)))
        found[name] = difference / scale if difference else 0.0
    return found


def other_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return shapes that are not this one: of as many numbers, and ones that would broadcast."""
    candidates = {(1, *shape), (5, *shape), shape[1:], (1, *shape[1:]), (*shape[1::-1], *shape[2:])}
    return sorted(candidates - {shape})


def _size(x: Array) -> float:
    return float(np.max(np.abs(np.nan_to_num(x, posinf=0, neginf=0)), initial=0.0))

"""The rule of `pellucid.kernels.compare`, as assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from pellucid import ops
from pellucid.core import dispatch
from pellucid.core.vjp import Call, Declined, Result, observing
from pellucid.kernels.backend import amx, bfloat16
from pellucid.kernels.backend.matmul import BFLOAT16, BFLOAT16_TILES, FLOAT32
from pellucid.kernels.compare import ULP, Run, excess, fused, in_float64, page, results, rounded

__all__ = [
    "FUSED",
    "HAS_BFLOAT16",
    "HAS_KERNELS",
    "HAS_TILES",
    "PRODUCTS",
    "ULP",
    "compare",
    "declined",
    "page",
    "planned",
    "results",
    "rounded",
    "watching",
]

FUSED = frozenset(name for name in ops.__all__ if dispatch.kernel_of(name))
"""The ops that have a kernel for NumPy's arrays."""


HAS_KERNELS = pytest.mark.skipif(not dispatch.enabled(), reason="no kernels here")
HAS_BFLOAT16 = pytest.mark.skipif(not bfloat16.AVAILABLE, reason="no AVX512-BF16 here")
HAS_TILES = pytest.mark.skipif(not amx.available(), reason="no AMX here")
PRODUCTS = [
    pytest.param(FLOAT32, id="float32"),
    pytest.param(BFLOAT16, id="bfloat16", marks=HAS_BFLOAT16),
    pytest.param(BFLOAT16_TILES, id="tiles", marks=HAS_TILES),
]


@contextmanager
def watching() -> Iterator[dict[str, bool]]:
    """Yield which ops were called, and whether every call of each got a kernel."""
    taken: dict[str, bool] = {}

    def observe(call: Call, run: Callable[[Call], Result]) -> Result:
        result = run(call)
        name = call.op.__name__
        taken[name] = taken.get(name, True) and call.kernel is not None
        return result

    with observing(observe):
        yield taken


def planned(f: Callable[..., Any], *args: Any, **options: Any) -> Run:
    """Run a call on its kernel; a kernel that declines fails the test."""
    run = fused(f, *args, **options)
    assert not isinstance(run, Declined), f"{f.__name__}: declined: {run.reason}"
    return run


def declined(f: Callable[..., Any], *args: Any, **options: Any) -> bool:
    """Return whether the kernel leaves this call to the page."""
    return isinstance(fused(f, *args, **options), Declined)


def compare(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    dy: Any,
    cancels: float = 0.0,
) -> list[Any]:
    """Run the kernel of `f` (a decline fails), compare it with float64, return its results.

    cancels: what a number learnt by the rule may be off by, as a share of the largest. Each is one
    sum over all rows, which cancels: the op's own error in it may be next to nothing by chance.
    """
    arrays = [x for x in (*args, dy) if isinstance(x, np.ndarray)]
    before = [x.copy() for x in arrays]
    given = results(planned(f, *args, **options), dy)
    for x, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, copy, "an argument was written to")
    again = results(planned(f, *args, **options), dy)
    plain = results(page(f, *args, **options), dy)
    exact = results(page(f, *map(in_float64, args), **options), in_float64(dy))
    for i, (y, repeated, p, z) in enumerate(zip(given, again, plain, exact, strict=True)):
        if z is not None:
            np.testing.assert_array_equal(y, repeated, "not the same bits twice")
        near = cancels and i > len(args) and np.allclose(y, z, 0, cancels * np.abs(z).max())
        assert near or excess(y, p, z) <= 1, f"{f.__name__}, result {i}"
    return given

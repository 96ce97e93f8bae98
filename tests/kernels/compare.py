"""The one rule for kernels: error against float64, compared with the page's own in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from pellucid import kernels, ops
from pellucid.core.vjp import Call, Declined, Result, observing, pair_of
from pellucid.kernels.backend import amx, bfloat16
from pellucid.kernels.backend.matmul import BFLOAT16, BFLOAT16_TILES, FLOAT32

Run = Callable[[], Result]
ULP = float(np.finfo(np.float32).eps)
FUSED = frozenset(name for name in ops.__all__ if kernels.kernel_of(name))
"""The ops that have a kernel for NumPy's arrays."""


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
    result = kernels.fused(Call(f, args, options))
    assert not isinstance(result, Declined), f"{f.__name__}: declined: {result.reason}"
    return lambda: result


def declined(f: Callable[..., Any], *args: Any, **options: Any) -> bool:
    """Return whether the kernel leaves this call to the page."""
    return isinstance(kernels.fused(Call(f, args, options)), Declined)


def page(f: Callable[..., Any], *args: Any, **options: Any) -> Run:
    """Plan a call on the page of `ops`."""
    forward, f_backward = pair_of(f)

    def run() -> tuple[Any, Callable[..., Any]]:
        y, saved = forward(*args, **options)
        return y, lambda dy: f_backward(dy, saved)

    return run


def results(run: Run, dy: Any) -> list[Any]:
    """Run forward and backward; return the output and the gradients."""
    y, backward = run()
    gradients = backward(dy)
    return [y, *(gradients if isinstance(gradients, tuple) else (gradients,))]


def in_float64(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x


def rounded(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers rounded to bfloat16, a tie to the even one."""
    bits = x.view(np.uint32)
    to_even = (bits >> 16 & 1) + np.uint32(0x7FFF)
    return (bits + to_even & np.uint32(0xFFFF0000)).view(np.float32)


def compare(
    f: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], dy: Any
) -> list[Any]:
    """Run the kernel of `f` (a decline fails), compare it with float64, return its results.

    Error at most twice that of the page in float32, plus 2 ulp of the array's scale.
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
        if z is None:
            assert y is None
            continue
        np.testing.assert_array_equal(y, repeated, "not the same bits twice")
        assert np.asarray(y).dtype == np.float32
        assert np.shape(y) == np.shape(z)
        close(np.asarray(y), np.asarray(p), np.asarray(z), f"{f.__name__}, result {i}")
    return given


def close(y: np.ndarray, plain: np.ndarray, exact: np.ndarray, what: str) -> None:
    """Compare one array with float64; what is not finite must be the same in both."""
    if not exact.size:
        return
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(y[~finite], exact[~finite], what)
    if not finite.any():
        return
    error = np.abs(y[finite] - exact[finite]).max()
    allowed = np.abs(plain[finite] - exact[finite]).max()
    scale = np.abs(exact[finite]).max()
    assert error <= 2 * allowed + 2 * ULP * scale, (
        f"{what}: error {error:.3g}, plain {allowed:.3g}, scale {scale:.3g}"
    )

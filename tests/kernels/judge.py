"""The one rule a fused pair is judged by: float64, and the plain page's own float32 error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid import kernels
from pellucid.core.vjp import pair_of

ULP = float(np.finfo(np.float32).eps)


def in_float64(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x


def run(pair: Any, args: tuple[Any, ...], options: dict[str, Any], dy: Any) -> list[Any]:
    y, saved = pair.forward(*args, **options)
    grads = pair.backward(dy, saved)
    return [y, *(grads if isinstance(grads, tuple) else (grads,))]


def judge(
    f: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], dy: Any
) -> list[Any]:
    """Run the fused pair of `f` (a decline fails), hold it against float64, return its results.

    Error at most twice the plain float32 page's, plus 2 ulp of the array's scale.
    """
    fused = kernels.best(f, *args, **options)
    assert fused != pair_of(f), f"{f.__name__}: the fused pair declined"
    arrays = [x for x in (*args, dy) if isinstance(x, np.ndarray)]
    before = [x.copy() for x in arrays]
    results = run(fused, args, options, dy)
    for x, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, copy, "an argument was written into")
    again = run(fused, args, options, dy)
    plain = run(pair_of(f), args, options, dy)
    exact = run(pair_of(f), tuple(map(in_float64, args)), options, in_float64(dy))
    for i, (y, repeated, p, z) in enumerate(zip(results, again, plain, exact, strict=True)):
        if z is None:
            assert y is None
            continue
        np.testing.assert_array_equal(y, repeated, "not the same bits twice")
        assert np.asarray(y).dtype == np.float32
        assert np.shape(y) == np.shape(z)
        close(np.asarray(y), np.asarray(p), np.asarray(z), f"{f.__name__}, result {i}")
    return results


def close(y: np.ndarray, plain: np.ndarray, exact: np.ndarray, what: str) -> None:
    """Hold one array against float64; what is not finite must be the same in both."""
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

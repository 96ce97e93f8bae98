"""The rule for kernels: an error, against float64, of at most about twice the op's in float32.

`excess` has the exact rule.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid.core import dispatch
from pellucid.core.vjp import Call, Declined, Result, pair_of

Run = Callable[[], Result]
ULP = float(np.finfo(np.float32).eps)


def fused(f: Callable[..., Any], *args: Any, **options: Any) -> Run | Declined:
    """Run a call by its kernel; return a function that gives the result, or `Declined`."""
    result = dispatch.fused(Call(f, args, options))
    return result if isinstance(result, Declined) else lambda: result


def page(f: Callable[..., Any], *args: Any, **options: Any) -> Run:
    """Return a function that runs a call by the reference op."""
    forward, f_backward = pair_of(f)

    def run() -> Result:
        y, saved = forward(*args, **options)
        return y, lambda dy: f_backward(dy, saved)

    return run


def results(run: Run, dy: Any) -> list[Any]:
    """Run forward and backward; return the output and the gradients."""
    y, backward = run()
    gradients = backward(dy)
    return [y, *(gradients if isinstance(gradients, tuple) else (gradients,))]


def in_float64(x: Any) -> Any:
    """Convert a float32 array to float64; return anything else unchanged."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x


def rounded(x: np.ndarray) -> np.ndarray:
    """Round finite float32 numbers to the nearest bfloat16, ties to even.

    The result is float32.
    """
    bits = x.view(np.uint32)
    to_even = (bits >> 16 & 1) + np.uint32(0x7FFF)
    return (bits + to_even & np.uint32(0xFFFF0000)).view(np.float32)


def excess(y: Any, plain: Any, exact: Any) -> float:
    """Return the error of a kernel's y as a multiple of the allowed error; at most 1 passes.

    Allowed is twice the largest error of the op in float32, `plain`, plus 2⁻²² times the largest
    finite |exact|, where `exact` is the op in float64. y must have the infinities and NaN of
    `exact` and no others, its shape, and dtype float32, otherwise the result is ∞. If y and `exact`
    are both None it is 0.

    >>> one = np.ones(3, np.float32)
    >>> excess(one, one, np.ones(3)), excess(one + np.float32(1e-6), one, np.ones(3)) > 1
    (0.0, True)
    """
    if exact is None or y is None:
        return 0.0 if y is exact else np.inf
    y, plain, exact = map(np.asarray, (y, plain, exact))
    finite = np.isfinite(exact)
    if y.dtype != np.float32 or y.shape != exact.shape:
        return np.inf
    if not np.array_equal(y[~finite], exact[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    error, own = (float(np.abs(x[finite] - exact[finite]).max()) for x in (y, plain))
    allowed = 2 * own + 2 * ULP * float(np.abs(exact[finite]).max())
    if error == 0:
        return 0.0
    return error / allowed if error < np.inf and allowed > 0 else np.inf

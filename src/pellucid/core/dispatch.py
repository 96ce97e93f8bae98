"""Run an op by a fused kernel if one takes the call, otherwise by the reference op itself.

`kernels/<name>.py` has `kernel(call) -> (y, backward) | Declined` for the op of that name, for
NumPy's float32 arrays on a CPU; `kernels/torch/<name>.py` is for PyTorch tensors. A kernel reads
the arguments off the call (`call.x`, `call.weight`). If it returns `Declined`, the reference op
runs. A NumPy output y that backward reads again is read-only.

Kernels are found by name and imported when first called. Without the package `pellucid.kernels`
every op runs as its reference.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import array_api_compat
import numpy as np

from pellucid.core.array import locked
from pellucid.core.vjp import Call, Declined, Result, assigned, observed, pair_of

_PACKAGE = "pellucid.kernels"
AVAILABLE: bool = find_spec(_PACKAGE) is not None and import_module(_PACKAGE).AVAILABLE
"""Whether kernels for NumPy arrays are installed and can run."""

_enabled = ContextVar("pellucid_kernels", default=os.environ.get("PELLUCID_KERNELS") != "off")


def reference() -> AbstractContextManager[None]:
    """Run only the reference ops inside this block, no kernels; in this thread.

    >>> with reference():
    ...     enabled()
    False
    """
    return assigned(_enabled, False)


def enabled() -> bool:
    """Return whether kernels for NumPy arrays may run.

    They do not run inside `reference()`, with the environment variable PELLUCID_KERNELS=off, or
    where they are not available. Kernels for PyTorch tensors do not count.
    """
    return AVAILABLE and _enabled.get()


def dispatch(op: Callable[..., Any], *args: Any, path: str = "", **options: Any) -> Result:
    """Run an op; return (y, backward), where backward(dy) gives the inputs' gradients.

    A kernel runs if kernels are on, and there is one for these arrays that takes the call;
    otherwise the reference op runs. A NumPy y that backward reads again is read-only. `path` is the
    name of the calling layer, which observers see.

    >>> from pellucid import ops
    >>> y, backward = dispatch(ops.relu, np.array([-1.0, 2.0]))
    >>> backward(np.ones(2))
    array([0., 1.])
    """
    return observed(Call(op, args, options, path), _run)


def fused(call: Call) -> Result | Declined:
    """Run a call by a kernel; return `Declined` with the reason if no kernel takes it."""
    if call.keep:
        return Declined("an observer asked for what the reference op saves")
    if not _enabled.get():
        return Declined("kernels are off")
    first = next(iter(call.arguments.values()))
    if isinstance(first, list) and first:  # an optimizer's step gets a list of all parameters
        first = first[0]
    family = family_of(first)
    if family is None:
        return Declined(f"there are no kernels for {type(first).__module__} arrays")
    if family == _PACKAGE and not AVAILABLE:
        return Declined("Numba is not installed")
    kernel = kernel_of(call.op.__name__, family)
    if kernel is None:
        return Declined("this op has no kernel")
    result: Result | Declined = kernel(call)
    if not isinstance(result, Declined):
        call.kernel = kernel.__module__
    return result


def _run(call: Call) -> Result:
    """Run a call by a kernel, or else by the reference op, with its saved values for backward."""
    result = fused(call)
    if not isinstance(result, Declined):
        return result
    call.declined = result.reason
    forward, f_backward = pair_of(call.op)
    y, saved = forward(**call.arguments)
    y = locked(y) if _is_among(saved, y, getattr(y, "base", None)) else y
    if call.keep:
        call.saved = saved
    return y, lambda *gradients: f_backward(gradients[0], saved, *gradients[1:])


def _is_among(saved: Any, y: Any, base: Any) -> bool:
    """Return whether y, or the array of which it is a view, is among the saved values."""
    if isinstance(saved, tuple):
        return any(_is_among(part, y, base) for part in saved)
    return saved is not None and (saved is y or saved is base)


def family_of(x: Any) -> str | None:
    """Return the package of kernels for an array: for NumPy, for PyTorch, or None for others.

    >>> family_of(np.ones(1))
    'pellucid.kernels'
    """
    if isinstance(x, np.ndarray):
        return _PACKAGE
    return f"{_PACKAGE}.torch" if array_api_compat.is_torch_array(x) else None


def has_kernel(op: str, family: str = _PACKAGE) -> bool:
    """Return whether a package of kernels (`family_of`) has one for this op.

    The kernel itself is not imported.

    >>> has_kernel("linear"), has_kernel("softmax")
    (True, False)
    """
    return find_spec(_PACKAGE) is not None and find_spec(f"{family}.{op}") is not None


@cache
def kernel_of(op: str, family: str = _PACKAGE) -> Callable[[Call], Result | Declined] | None:
    """Import and return the kernel for an op in a package of kernels, or None if there is none.

    >>> kernel_of("softmax") is None
    True
    """
    if not has_kernel(op, family):
        return None
    kernel: Callable[[Call], Result | Declined] = compiled(f"{family}.{op}").kernel
    return kernel


def compiled(module: str) -> Any:
    """Import a module of compiled kernels, while no other thread imports or compiles any."""
    with import_module(_PACKAGE).compiling:
        return import_module(module)

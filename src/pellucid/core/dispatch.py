"""`dispatch`, the one door of every op, through which a fused kernel may take a call.

`kernels/<name>.py` has `kernel(call) -> (y, backward) | Declined` for an op of that name, for
NumPy's float32 on a CPU; `kernels/torch/<name>.py` is for tensors of torch. It reads the arguments
off the call (`call.x`, `call.weight`), and what it declines the op itself computes. What backward
reads again of y is read-only.

Kernels are found by name, never imported here: without that package every op computes itself. A
kernel's file is imported when it is first called, and no compiler before.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import array_api_compat
import numpy as np

from pellucid.core.array import locked
from pellucid.core.vjp import Call, Declined, Result, observed, pair_of

_PACKAGE = "pellucid.kernels"
AVAILABLE: bool = find_spec(_PACKAGE) is not None and import_module(_PACKAGE).AVAILABLE
"""Whether there are kernels for NumPy's arrays."""

_enabled = ContextVar("pellucid_kernels", default=os.environ.get("PELLUCID_KERNELS") != "off")


@contextmanager
def reference() -> Iterator[None]:
    """Run only the reference ops inside this block, no kernels.

    >>> with reference():
    ...     enabled()
    False
    """
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


def enabled() -> bool:
    """Return whether kernels for NumPy's arrays may run.

    They do not inside `reference()`, with PELLUCID_KERNELS=off, and where Numba is not installed.
    Those for tensors of torch need no Numba.
    """
    return AVAILABLE and _enabled.get()


def dispatch(op: Callable[..., Any], *args: Any, path: str = "", **options: Any) -> Result:
    """Run an ops function; return (y, backward), where backward(dy) gives the inputs' gradients.

    A kernel runs if there is one for the arrays' kind and it takes the call; otherwise the page of
    `ops` itself. A y that backward reads again is read-only. `path` is the name of the layer that
    calls, for observers.

    >>> from pellucid import ops
    >>> y, backward = dispatch(ops.relu, np.array([-1.0, 2.0]))
    >>> backward(np.ones(2))
    array([0., 1.])
    """
    return observed(Call(op, args, options, path), _run)


def fused(call: Call) -> Result | Declined:
    """Run the call by the kernel for its arrays, or say why none takes it."""
    if call.keep:
        return Declined("an observer asked for what the reference op saves")
    if not _enabled.get():
        return Declined("kernels are off")
    first = next(iter(call.arguments.values()))
    if isinstance(first, list) and first:  # of all parameters, as an optimizer's step has it
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
    """Whether y, or the array that it is a view of, was saved."""
    if isinstance(saved, tuple):
        return any(_is_among(part, y, base) for part in saved)
    return saved is not None and (saved is y or saved is base)


def family_of(x: Any) -> str | None:
    """Return the package of kernels for an array: NumPy's, torch's, or None for any other.

    >>> family_of(np.ones(1))
    'pellucid.kernels'
    """
    if isinstance(x, np.ndarray):
        return _PACKAGE
    return f"{_PACKAGE}.torch" if array_api_compat.is_torch_array(x) else None


def has_kernel(op: str, family: str = _PACKAGE) -> bool:
    """Return whether a family has a kernel for the op of this name, without importing it.

    >>> has_kernel("linear"), has_kernel("softmax")
    (True, False)
    """
    return find_spec(_PACKAGE) is not None and find_spec(f"{family}.{op}") is not None


@cache
def kernel_of(op: str, family: str = _PACKAGE) -> Callable[[Call], Result | Declined] | None:
    """Return a family's kernel for the op of this name, or None.

    >>> kernel_of("softmax") is None
    True
    """
    if not has_kernel(op, family):
        return None
    kernel: Callable[[Call], Result | Declined] = compiled(f"{family}.{op}").kernel
    return kernel


def compiled(module: str) -> Any:
    """Import a module that is made of kernels, while nobody else imports or compiles one."""
    with import_module(_PACKAGE).compiling:
        return import_module(module)

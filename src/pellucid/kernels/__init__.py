"""Fused implementations of pages of `ops`, for NumPy's float32 on a CPU; `torch` has torch's own.

`kernels/<name>.py` has `plan`, with the signature of the page `ops.<name>`: it checks the arguments
and returns a function without arguments that computes (y, backward), or None where it declines.
`core.vjp.dispatch` then runs the page. What backward reads again of y is read-only.

Importing this package imports no compiler; a kernel's file is imported when it is first planned.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any

import array_api_compat
import numpy as np

from pellucid.core.vjp import Run, register_kernels
from pellucid.kernels.backend.compile import compiling

FUSED = frozenset(
    {
        "add_dropout_norm",
        "attention",
        "bias_act_dropout",
        "dropout",
        "embedding",
        "layer_norm",
        "linear",
        "linear_cross_entropy",
        "linear_r_drop",
        "packed_attention",
        "rms_norm",
        "rotary",
    }
)
"""The pages that have a kernel, in either family."""
NUMPY_ONLY = frozenset({"linear", "linear_r_drop", "rms_norm", "rotary"})
"""Those without one in torch's."""

_enabled = ContextVar("pellucid_kernels", default=os.environ.get("PELLUCID_KERNELS") != "off")


@contextmanager
def reference() -> Iterator[None]:
    """Run only the pages of `ops` inside this block, no kernels.

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
    """Return whether kernels may run: not inside `reference()`, nor with PELLUCID_KERNELS=off."""
    return _enabled.get()


@register_kernels
def plan(f: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Run | None:
    """Plan a call of an ops function by the family of kernels that its first array is for."""
    if f.__name__ not in FUSED or not _enabled.get():
        return None
    family = family_of(args[0])
    if family is None or (family != __name__ and f.__name__ in NUMPY_ONLY):
        return None
    planned: Run | None = _load(f"{family}.{f.__name__}").plan(*args, **options)
    return planned


def family_of(x: Any) -> str | None:
    """Return the package of kernels for an array: NumPy's, torch's, or None for any other.

    >>> family_of(np.ones(1))
    'pellucid.kernels'
    """
    if isinstance(x, np.ndarray):
        return __name__
    return f"{__name__}.torch" if array_api_compat.is_torch_array(x) else None


@cache
def _load(module: str) -> ModuleType:
    with compiling:
        return importlib.import_module(module)

"""Fused pairs for the CPU. `best` chooses: the fused pair if its guard accepts, else the plain one.

A fused pair stands in `kernels/<name>.py` under the name of its page in `ops`, with
`accepts(*args, **options) -> bool`. Importing this package imports no compiler; a kernel's file is
imported the first time it could be used.
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

import numpy as np

from pellucid.core.vjp import Pair, Run, pair_of, register_kernels

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
        "packed_attention",
    }
)
"""The ops that have a fused pair."""

_enabled = ContextVar("pellucid_kernels", default=os.environ.get("PELLUCID_KERNELS") != "off")


@contextmanager
def reference() -> Iterator[None]:
    """Run the plain pages only, inside this block.

    >>> with reference():
    ...     best(len).forward  # doctest: +SKIP
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
    """Plan a call of an ops function over NumPy's arrays, or decline it."""
    if f.__name__ not in FUSED or not isinstance(args[0], np.ndarray) or not _enabled.get():
        return None
    module = _load(f.__name__)
    if hasattr(module, "plan"):
        planned: Run | None = module.plan(*args, **options)
        return planned
    if not module.accepts(*args, **options):
        return None

    def run() -> tuple[Any, Any]:
        y, saved = getattr(module, f.__name__)(*args, **options)
        return y, lambda dy: getattr(module, f"{f.__name__}_backward")(dy, saved)

    return run


def best(f: Callable[..., tuple[Any, Any]], *args: Any, **options: Any) -> Pair:
    """Return the pair to use for this call of the ops function `f`.

    Every array argument must be NumPy's float32 (or integers), and the kernel's own guard must
    accept; otherwise it is the plain pair.
    """
    if isinstance(args[0], np.ndarray) and f.__name__ in FUSED:
        module = fused(f.__name__, *args, **options)
        if module is not None:
            return Pair(getattr(module, f.__name__), getattr(module, f"{f.__name__}_backward"))
    return pair_of(f)


def fused(name: str, *args: Any, **options: Any) -> ModuleType | None:
    """Return the module `kernels.<name>` if kernels are on and its guard accepts the arguments."""
    if not _enabled.get():
        return None
    module = _load(name)
    return module if module.accepts(*args, **options) else None


@cache
def _load(name: str) -> ModuleType:
    return importlib.import_module(f"pellucid.kernels.{name}")

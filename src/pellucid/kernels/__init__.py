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

from pellucid.pair import Pair, pair_of

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

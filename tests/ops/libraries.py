"""The array libraries that are installed here, and the way to each and back."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np

from pellucid.check import OpCase

ALL = ("array_api_strict", "torch", "jax")
INSTALLED = [name for name in ALL if importlib.util.find_spec(name)]
ON_THE_HOST = ("cu_q", "cu_k")  # where sequences begin stays in NumPy, whatever the rows are in


def to(library: str, x: Any) -> Any:
    """Copy a NumPy array into a library; anything else is left as it is."""
    if not isinstance(x, np.ndarray):
        return x
    if library == "jax":
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        return jax.numpy.asarray(x)
    return importlib.import_module(library).asarray(x.copy())


def back(x: Any) -> np.ndarray:
    """Return a library's array as NumPy's; fails if it has become something else on the way."""
    return np.asarray(x)


def fixed_in(library: str, case: OpCase) -> dict[str, Any]:
    return {k: v if k in ON_THE_HOST else to(library, v) for k, v in case.fixed.items()}


def same_library(a: Any, b: Any) -> bool:
    return type(a).__module__.split(".")[0] == type(b).__module__.split(".")[0]

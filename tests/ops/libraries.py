"""The array libraries that ops run on, and the way to each and back.

CuPy, and PyTorch on a GPU, run where there is a GPU: `pytest tests/ops -k "cupy or cuda"`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import installed

from pellucid.check import OpCase

ON_THE_HOST = (
    "cu_q",
    "cu_k",
    "offset",
)  # where sequences begin stays in NumPy, whatever the rows are in


def cupy_runs() -> bool:
    """Whether CuPy is here and finds a GPU; without one it imports and then fails."""
    if not installed("cupy"):
        return False
    runtime = importlib.import_module("cupy").cuda.runtime
    try:
        return bool(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:
        return False


def torch_runs_on_a_gpu() -> bool:
    """PyTorch is asked only where there is a GPU's device file: importing it takes seconds."""
    if not installed("torch") or not Path("/dev/nvidiactl").exists():
        return False
    return bool(importlib.import_module("torch").cuda.is_available())


ON_A_GPU: dict[str, Callable[[], bool]] = {"cupy": cupy_runs, "torch-cuda": torch_runs_on_a_gpu}
LIBRARIES: list[Any] = [
    "array_api_strict",
    *(pytest.param(name, marks=pytest.mark.oracle(name)) for name in ("torch", "jax")),
    *(name for name, runs in ON_A_GPU.items() if runs()),
]
every_library = pytest.mark.parametrize("library", ["numpy", *LIBRARIES])


def to(library: str, x: Any) -> Any:
    """Copy a NumPy array into a library; anything else is left as it is."""
    if not isinstance(x, np.ndarray):
        return x
    if library == "jax":
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        return jax.numpy.asarray(x)
    if library == "torch-cuda":
        return importlib.import_module("torch").asarray(x.copy(), device="cuda")
    return importlib.import_module(library).asarray(x.copy())


def back(x: Any) -> np.ndarray:
    """Return a library's array as NumPy's; fails if it has become something else on the way."""
    if type(x).__module__.partition(".")[0] == "cupy":
        return np.asarray(x.get())
    return np.asarray(x.cpu() if hasattr(x, "cpu") else x)


def fixed_in(library: str, case: OpCase) -> dict[str, Any]:
    return {k: v if k in ON_THE_HOST else to(library, v) for k, v in case.fixed.items()}


def same_library(a: Any, b: Any) -> bool:
    return type(a).__module__.split(".")[0] == type(b).__module__.split(".")[0]


def without_dropout(model: Any) -> Any:
    """Switch dropout off, whose bits a GPU draws otherwise; return the model."""
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
        if hasattr(module, "p"):
            module.p = 0.0
    return model

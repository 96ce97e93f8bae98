"""A second process that compiles, from the last, what a first training step will ask for.

Numba compiles in one thread at a time, so a second processor helps only from a process of its own.
It fills the same cache. The one that trains compiles the kernels as it comes to them; this one goes
the other way, and they meet in the middle: whoever comes second finds the kernel in the cache.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.kernels.backend.compile import Kernel

_log = logging.getLogger(__name__)

TRAINING = (
    "adam._step",
    "global_norm._squares",
    "embedding._add",
    "flash._backward",
    "bias_act_dropout._relu_backward",
    "add_dropout_norm._backward",
    "linear_cross_entropy._chunk",
    "bias_act_dropout._relu",
    "add_dropout_norm._forward",
    "flash._forward",
    "dropout._rows",
)
"""The kernels of a training step that take long, the one that is needed last first."""


def begin(missing: str) -> None:
    """Start the process when a kernel of `TRAINING` was not in the cache; once.

    It is a help and no more: where it cannot be started, everything goes on without it.
    """
    if missing in TRAINING:
        _begin()


@cache
def _begin() -> None:
    from pellucid.kernels.backend.threads import available

    # A frozen program's executable is that program, not a Python.
    if available() == 1 or not sys.executable or getattr(sys, "frozen", False):
        return
    try:
        process = _start(TRAINING)
    except OSError as error:
        _log.debug("no second process compiles: %s", error)
        return
    # Somebody has to wait for it, or it stays in the list of processes when it is done.
    threading.Thread(target=process.wait, name="pellucid-ahead", daemon=True).start()


def _start(kernels: tuple[str, ...]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    # With one thread to its name it starts no third process; -P: nor a random.py of this folder.
    own = {"PELLUCID_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import compile_all; compile_all({kernels})"],
        stdin=nothing, stdout=nothing, stderr=nothing, env=os.environ | own,
    )  # fmt: skip


def compile_all(kernels: tuple[str, ...]) -> None:
    """Compile kernels by name, or find them in the cache."""
    for name in kernels:
        module, function = name.split(".")
        kernel: Kernel = getattr(importlib.import_module(f"pellucid.kernels.{module}"), function)
        kernel.ready()

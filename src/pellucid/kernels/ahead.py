"""A second process that compiles, from the last, what a first step or search will ask for.

Numba compiles in one thread at a time, so a second processor helps only from a process of its own.
It fills the same cache. The one that trains compiles the kernels as it comes to them; this one goes
the other way, and they meet in the middle: whoever comes second finds the kernel in the cache.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.kernels.compile import Kernel

TRAINING = (
    "adam._step",
    "adam._squares",
    "embedding._add",
    "flash._backward",
    "bias_act_dropout._relu_backward",
    "add_dropout_norm._backward",
    "linear_cross_entropy._chunk",
    "bias_act_dropout._relu",
    "add_dropout_norm._forward",
    "flash._forward",
)
"""The kernels of a training step that take long, the one that is needed last first."""
SEARCH = ("decode.search", "decode.read")
"""The same of a search."""


@cache
def begin(search: bool) -> None:
    """Start the process, if there is a processor for it; once for training, once for a search."""
    from pellucid.kernels.threads import available

    if available() > 1 and sys.executable:
        process = _start(SEARCH if search else TRAINING)
        # Somebody has to wait for it, or it stays in the list of processes when it is done.
        threading.Thread(target=process.wait, name="pellucid-ahead", daemon=True).start()


def _start(kernels: tuple[str, ...]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    # With one thread to its name it starts no third process.
    own = {"PELLUCID_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import compile_all; compile_all({kernels})"],
        stdin=nothing, stdout=nothing, stderr=nothing, env=os.environ | own,
    )  # fmt: skip


def compile_all(kernels: tuple[str, ...]) -> None:
    """Compile kernels by name, or find them in the cache."""
    for name in kernels:
        module, function = name.split(".")
        kernel: Kernel = getattr(importlib.import_module(f"pellucid.kernels.{module}"), function)
        kernel.ready()

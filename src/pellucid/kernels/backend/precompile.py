"""A second process that compiles, from the last, what a first training step will need.

Numba compiles in one thread at a time, so a second processor helps only from another process.
It fills the same cache. The training process compiles the kernels in the order it needs them, this
one in the opposite order; when they meet, each finds the other's kernels in the cache.
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
    "bias_act_dropout._backward_from_output.relu",
    "linear._backward",
    "add_dropout_norm._backward",
    "linear_cross_entropy._chunk",
    "bias_act_dropout._forward.relu",
    "add_dropout_norm._forward",
    "flash._forward",
    "linear._forward",
    "dropout._rows",
)
"""The kernels of a training step, the one needed last first.

Those of `matmul` are not among them: generating needs them too, and they are short. A third part is
the argument of a function that makes kernels.
"""


def begin(missing: str) -> None:
    """Start the process, once, if the kernel missing from the cache is one of `TRAINING`.

    It only saves time: where it cannot be started, the training process compiles everything.
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
        _log.debug("the process that compiles kernels could not be started: %s", error)
        return
    # A finished process stays in the system's list until it is waited for.
    threading.Thread(target=process.wait, name="pellucid-precompile", daemon=True).start()


def _start(kernels: tuple[str, ...]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    # With one thread it starts no third process; with -P it imports nothing from this folder.
    own = {"PELLUCID_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import compile_all; compile_all({kernels})"],
        stdin=nothing, stdout=nothing, stderr=nothing, env=os.environ | own,
    )  # fmt: skip


def compile_all(kernels: tuple[str, ...]) -> None:
    """Compile kernels by name, or load them from the cache."""
    for name in kernels:
        module, function, *arguments = name.split(".")
        found = getattr(importlib.import_module(f"pellucid.kernels.{module}"), function)
        kernel: Kernel = found(*arguments) if arguments else found
        kernel.compile()

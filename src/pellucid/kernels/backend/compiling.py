"""The one lock of importing and compiling kernels, which a fork waits for.

A child has only the thread that forked. A lock that another thread held in that moment, ours,
Numba's or that of a module being imported, would stay locked in it for ever.
"""

from __future__ import annotations

import logging  # noqa: F401 - see the end
import os
import sys
import threading
from typing import Any

compiling = threading.RLock()
"""Held while kernels are imported or compiled; Numba compiles in one thread at a time anyway."""

_held: list[Any] = []


def _before_fork() -> None:
    compiling.acquire()
    numba = sys.modules.get("numba.core.compiler_lock")
    # after ours, as everywhere; a program may compile functions of its own
    theirs = getattr(numba, "global_compiler_lock", None)
    if theirs is not None:
        theirs.acquire()
    _held.append(theirs)


def _after_fork() -> None:
    theirs = _held.pop()
    if theirs is not None:
        theirs.release()
    compiling.release()


# The hooks before a fork run last registered first. logging's takes its lock, which an import that
# we wait for may need: ours must come before it, and so be registered after it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )

"""The processor that this process runs on, and how much of it the process may use."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor() -> str:
    """Return the processor's name or, where it is not known, its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):  # not Linux, or it does not say
        return platform.processor() or platform.machine()


def processors() -> int:
    """Return how many processors this process may use; all of them where it cannot be bound."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

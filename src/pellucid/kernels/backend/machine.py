"""Describe the processor, and everything else on which the bits of results depend."""

import math
import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pellucid import __version__
from pellucid.core.dispatch import AVAILABLE
from pellucid.core.errors import optional

CGROUP = Path("/sys/fs/cgroup")
"""Where Linux says what a container may use."""


def processor() -> str:
    """Return the processor's name, or its architecture if the name is not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):  # not Linux, or no name is given
        return platform.processor() or platform.machine()


def processors() -> int:
    """Return the number of processors that this process may use, by its affinity and quota."""
    bound = hasattr(os, "sched_getaffinity")
    own = len(os.sched_getaffinity(0)) if bound else os.cpu_count() or 1
    return max(1, math.ceil(min(own, _quota())))


def _quota() -> float:
    """Return the limit of processor time of this container, in processors; infinity without one."""
    for names in ("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"):  # cgroup v2, v1
        with suppress(OSError, ValueError):
            texts = [(CGROUP / name).read_text(encoding="ascii") for name in names]
            time, period = " ".join(texts).replace("max", "-1").split()
            return int(time) / int(period) if int(time) > 0 else math.inf
    return math.inf


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of packages by name; a missing one is "not installed as a package"."""
    found = dict.fromkeys(packages, "not installed as a package")
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def environment() -> dict[str, str]:
    """Return versions, BLAS threads and kernels of this process, for the record of a run.

    Results are sure to be the same bit for bit only where all of these are the same. Raises
    `UserError` without threadpoolctl.

    >>> "numpy" in environment() and "python" in environment()
    True
    """
    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "kernels": "on" if AVAILABLE and os.environ.get("PELLUCID_KERNELS") != "off" else "off",
        "pellucid": __version__,  # that of this code: an installation's can be out of date
        **versions("numpy", "numba"),
    }
    control = optional("threadpoolctl", "this needs threadpoolctl", extra="train")
    for pool in control.threadpool_info():
        if pool["user_api"] == "blas":
            details = f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}"
            found["blas"] = details.strip()
            found["blas threads"] = str(pool["num_threads"])
    return found

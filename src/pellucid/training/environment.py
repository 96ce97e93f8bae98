"""Where a run was made: the same bits are promised only where none of this differs."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from threadpoolctl import threadpool_info


def environment() -> dict[str, str]:
    """Return the versions, the threads and the processor's kernels that this process computes with.

    >>> "numpy" in environment() and "python" in environment()
    True
    """
    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "kernels": "off" if os.environ.get("PELLUCID_KERNELS") == "off" else "on",
    }
    for package in ("pellucid", "numpy", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            details = f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}"
            found["blas"] = details.strip()
            found["blas threads"] = str(pool["num_threads"])
    return found


def changes(
    before: Mapping[str, Any], now: Mapping[str, Any], absent: str = "unknown"
) -> list[str]:
    """List what differs, as `name: before -> now`; `absent` stands for what is not there.

    >>> changes({"blas threads": "2"}, {"blas threads": "4", "numba": "0.61"})
    ['blas threads: 2 -> 4', 'numba: unknown -> 0.61']
    """
    names = dict.fromkeys([*before, *now])
    return [
        f"{name}: {before.get(name, absent)} -> {now.get(name, absent)}"
        for name in names
        if before.get(name) != now.get(name)
    ]

"""Pytest plugin: use the thread pool for systems other than Linux.

    NUMBA_CACHE_DIR=FOLDER PORTABLE_POOL=windows python -m pytest -p portable_pool tests/kernels

Without a futex a caller only polls, as on macOS. Windows also lacks sched_yield and the POSIX
clock. The pool is two kernels that all others call, so only these are compiled from source. FOLDER
must be used for this alone, because a cached kernel does not record which pool it uses.
"""

from __future__ import annotations

import os

from pellucid.kernels.backend import prepared, thread_pool

thread_pool._FUTEX = None
thread_pool._POSIX = os.environ.get("PORTABLE_POOL") != "windows"
_prepared = prepared.text


def _text(name: str, digest: str) -> str | None:
    """Return the prepared text of a kernel, except for those of the pool."""
    return None if name.startswith(thread_pool.__name__) else _prepared(name, digest)


prepared.text = _text

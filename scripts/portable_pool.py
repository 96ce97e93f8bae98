"""A plugin for pytest: the thread pool that other systems than Linux get.

    NUMBA_CACHE_DIR=FOLDER PORTABLE_POOL=windows python -m pytest -p portable_pool tests/kernels

Without a futex a caller only polls; that is macOS. On Windows there is no sched_yield either, and
no clock of POSIX. The pool is two kernels that all others call, so only these are compiled from
their source; FOLDER must be theirs alone, since a cached kernel does not say which pool it is.
"""

from __future__ import annotations

import os

from pellucid.kernels.backend import prepared, thread_pool

thread_pool._FUTEX = None
thread_pool._POSIX = os.environ.get("PORTABLE_POOL") != "windows"
_prepared = prepared.text


def _text(name: str, digest: str) -> str | None:
    return None if name.startswith(thread_pool.__name__) else _prepared(name, digest)


prepared.text = _text

"""Memory that a step frees is kept for the next one."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
NEVER, LARGEST = -1, 32 << 20  # the largest that glibc takes


@cache
def keep_freed_memory() -> bool:
    """Have glibc keep what this process frees; return whether there is glibc.

    A step frees what it allocated, and the next step allocates the same again. glibc returns freed
    memory to the system above a limit that follows from earlier sizes; every page that is taken
    again is a page fault, and is cleared. Other C libraries have other rules and stay as they are.
    Blocks of over 32 MiB are always returned.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version")):
        return False
    return bool(libc.mallopt(M_TRIM_THRESHOLD, NEVER) and libc.mallopt(M_MMAP_THRESHOLD, LARGEST))

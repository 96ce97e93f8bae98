"""Make the C library keep freed memory, which the next training step allocates again."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
NEVER, LARGEST = -1, 32 << 20  # the largest that glibc takes


@cache
def keep_freed_memory() -> bool:
    """Tell glibc to keep the memory that this process frees.

    Returns whether that succeeded.

    A training step frees its arrays, and the next step allocates the same sizes again. By default
    glibc returns much of that memory to the system, and every page allocated again costs a page
    fault and is cleared. Blocks of over 32 MiB are returned in any case. Other C libraries than
    glibc are not changed.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version")):
        return False
    return bool(libc.mallopt(M_TRIM_THRESHOLD, NEVER) and libc.mallopt(M_MMAP_THRESHOLD, LARGEST))

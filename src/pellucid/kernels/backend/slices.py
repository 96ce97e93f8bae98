"""Process all parameters of a model in one kernel call, as slices of their arrays.

A model has many small parameters. So one call gets the addresses of all of them, and each task
processes a slice of one.
"""

from collections.abc import Iterable, Sequence
from ctypes import addressof, c_char
from functools import lru_cache

import numpy as np

from pellucid.kernels.backend.compile import inner, numbas
from pellucid.kernels.backend.simd import pointer

Array = np.ndarray
carray = numbas("numba.carray")
_SLICE = 1 << 16  # numbers worth a separate task
_Nothing = c_char * 0


def whole(arrays: Iterable[Array]) -> bool:
    """Return whether all arrays are float32, C-contiguous, aligned and writeable."""
    return all(x.dtype == np.float32 and x.flags.carray for x in arrays)


def address(x: Array) -> int:
    """Return the memory address of the first number of an array; it must be `whole`."""
    return addressof(_Nothing.from_buffer(x.data))  # a fifth of the time of `x.__array_interface__`


def slices_of(arrays: Sequence[Array]) -> Array:
    """Divide arrays into slices; return rows (index of the array, first number, size)."""
    return _slices(tuple(x.size for x in arrays))


@lru_cache(maxsize=8)
def _slices(sizes: tuple[int, ...]) -> Array:
    """Compute `slices_of` for arrays of these sizes; cached."""
    slices = [
        (which, first, min(_SLICE, size - first))
        for which, size in enumerate(sizes)
        for first in range(0, size, _SLICE)
    ]
    return np.array(slices, np.int64).reshape(-1, 3)


@inner()
def floats(address, first, size):
    """Return `size` floats of the array at an address, from number `first` on, as an array."""
    return carray(pointer(address, 4 * first), (size,), np.float32)

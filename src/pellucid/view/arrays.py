"""Arrays as text, small: whole numbers of 8, 16 or 24 bits, one factor for each head."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray


class Precision(NamedTuple):
    """How many bits each number of a map gets."""

    q: int
    k: int
    v: int
    doutputs: int

    def size(self, numbers: int) -> int:
        """Return the characters that maps of this many numbers in each array take."""
        return numbers * sum(self) // 8 * 4 // 3


PRECISIONS = (
    Precision(24, 24, 24, 24),  # all as float32 would have it
    Precision(24, 24, 24, 16),  # gradients off in the fifth digit
    Precision(16, 16, 8, 8),  # weights off in the fourth digit, the others in the third
)
"""Finest first; a page takes the first that keeps it small enough."""


def as_text(x: Array, bits: int) -> dict[str, Any]:
    """Return x (H, …) as base64 of its bits-bit whole numbers, little end first.

    x[h] ≈ factors[h] · numbers[h], off by half a factor at most.

    >>> as_text(np.array([[1.0, -0.5]]), 8)
    {'shape': [1, 2], 'bits': 8, 'factors': [0.007874015748031496], 'data': 'f8A='}
    """
    numbers, factors = _quantise(x, bits)
    octets = np.ascontiguousarray(numbers.astype("<i4")).view(np.uint8).reshape(-1, 4)
    data = np.ascontiguousarray(octets[:, : bits // 8]).tobytes()
    return {
        "shape": list(x.shape),
        "bits": bits,
        "factors": factors.ravel().tolist(),
        "data": base64.b64encode(data).decode("ascii"),
    }


def rounded(x: Array, bits: int) -> Array:
    """Return x as `as_text` keeps it."""
    numbers, factors = _quantise(x, bits)
    near: Array = numbers * factors
    return near


def _quantise(x: Array, bits: int) -> tuple[Array, Array]:
    x = np.asarray(x, np.float64)
    most = 2 ** (bits - 1) - 1
    largest = np.abs(x).max(axis=tuple(range(1, x.ndim)), keepdims=True, initial=0.0)
    factors = np.where(largest > 0, largest, 1.0) / most
    return np.rint(x / factors).astype(np.int64), factors

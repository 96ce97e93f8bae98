"""exp in float32 as a polynomial, and the dropout hash; for numbers and for vectors alike.

`np.exp` in Numba is a call per number. A polynomial is a dozen multiply-adds on a whole vector.
`exp` is compiled without reordering: its rounding trick is an addition and a subtraction that a
reordering compiler would remove.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from pellucid.kernels.compile import EXACT, inner
from pellucid.kernels.simd import bits, choose, number, uints

_LOG2_E = np.float32(1.44269504)
_LN2_HIGH = np.float32(0.693359375)  # few bits: its product with an integer up to 127 is exact
_LN2_LOW = np.float32(-2.12194440e-4)
_ROUND = np.float32(12582912.0)  # 1.5 · 2²³: adding it leaves the nearest integer in the low bits
_SMALLEST = np.float32(-87.0)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_EXPONENT, _ONE_BITS = np.uint32(23), np.uint32(0x3F800000)
# exp(r) = 1 + r + r² q(r) on |r| ≤ ln 2 / 2, fitted to a relative error of 3.1e-9
_Q0, _Q1, _Q2, _Q3, _Q4 = (
    np.float32(c) for c in (0.499999934, 0.166665201, 0.0416683943, 0.00836878087, 0.00138144627)
)


@inner(EXACT)
def exp(x):
    """eˣ for x ≤ 0 (and up to 88) to 1 ulp; 0 below −87, where float32's normal numbers end."""
    shifted = x * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    q = _Q4 * r + _Q3
    q = q * r + _Q2
    q = q * r + _Q1
    q = q * r + _Q0
    y = (q * (r * r) + r) + _ONE
    two_to_n = number(_uint((_uint(bits(shifted) << _EXPONENT)) + _ONE_BITS))
    return choose(x < _SMALLEST, _ZERO, y * two_to_n)


def _uint(x: np.uint32) -> np.uint32:
    """Keep 32 bits of a number, which Numba widens in every operation; a vector stays as it is."""
    return np.uint32(x)


@overload(_uint, inline="always")
def _uint_overload(x):
    if x == uints:
        return lambda x: x
    return lambda x: np.uint32(x)


_HALF, _13 = np.uint32(16), np.uint32(13)
_MIX1, _MIX2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_GOLDEN = np.uint32(0x9E3779B9)


@inner()
def mix(h):
    """The twin of `rng.mix`."""
    h = _uint(_uint(h ^ _uint(h >> _HALF)) * _MIX1)
    h = _uint(_uint(h ^ _uint(h >> _13)) * _MIX2)
    return _uint(h ^ _uint(h >> _HALF))


@inner()
def channel_bits(row, channel):
    """The twin of `rng.random_bits`; `row` is one of `Rng.row_hash`."""
    return mix(_uint(_uint(channel * _GOLDEN) + row))

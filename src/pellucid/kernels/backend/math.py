"""Float32 functions computed by polynomials, and the dropout hash.

`exp`, `tanh`, `log` and the hash are for numbers and for vectors (`simd`), the rest for numbers.

`np.exp` in Numba is a function call for each number; a polynomial is a dozen multiply-adds on a
whole vector. `exp` is compiled without reordering, because it rounds by an addition and a
subtraction, which a reordering compiler would remove.
"""

from typing import Any

import numpy as np

from pellucid.kernels.backend.compile import EXACT, inner, instruction
from pellucid.kernels.backend.simd import bits, number, select, uints


def _polynomial(*coefficients: float) -> Any:
    """Return the function c₀ + c₁ x + c₂ x² … of a float32 by Horner's rule."""
    c, rest = np.float32(coefficients[0]), coefficients[1:]
    if not rest:
        return inner(EXACT)(lambda x: c)
    higher = _polynomial(*rest)
    return inner(EXACT)(lambda x: higher(x) * x + c)


_LOG2_E = np.float32(1.44269504)
_LN2_HIGH = np.float32(0.693359375)  # few bits: its product with an integer up to 127 is exact
_LN2_LOW = np.float32(-2.12194440e-4)
_ROUND = np.float32(12582912.0)  # 1.5 · 2²³: adding it leaves the nearest integer in the low bits
_SMALLEST = np.float32(-87.0)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_EXPONENT, _ONE_BITS = np.uint32(23), np.uint32(0x3F800000)
# exp(r) = 1 + r + r² q(r) on |r| ≤ ln 2 / 2, fitted to a relative error of 3.1e-9
_exp = _polynomial(0.499999934, 0.166665201, 0.0416683943, 0.00836878087, 0.00138144627)


@inner(EXACT)
def exp(x):
    """Compute eˣ for x up to 88, to 1 ulp; 0 below −87.

    There eˣ is near the smallest normal float32.
    """
    shifted = x * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    y = (_exp(r) * (r * r) + r) + _ONE
    two_to_n = number(_uint((_uint(bits(shifted) << _EXPONENT)) + _ONE_BITS))
    return select(x < _SMALLEST, _ZERO, y * two_to_n)


_MAGNITUDE, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)
_TWO, _SMALL = np.float32(2.0), np.float32(0.7)
# tanh(x) = x + x³ p(x²) on |x| ≤ 0.7, fitted to a relative error of 7e-10
_tanh = _polynomial(
    -0.333333245, 0.133329822, -0.0539209069, 0.0215710427, -0.00788350235, 0.0018959136
)


@inner(EXACT)
def tanh(x):
    """Compute tanh to 3 ulp: near 0 by a polynomial, else by (1 − e⁻²ˣ) / (1 + e⁻²ˣ)."""
    size = number(_uint(bits(x) & _MAGNITUDE))
    e = exp(size * -_TWO)
    far = (_ONE - e) / (_ONE + e)
    far = number(_uint(bits(far) | _uint(bits(x) & _SIGN)))
    square = x * x
    return select(size < _SMALL, x + x * (square * _tanh(square)), far)


@inner()
def inverse_root(x):
    """Compute 1 / √x for x > 0; NaN for inf, which means that x has overflowed."""
    return np.float32(np.nan) if x == np.float32(np.inf) else _ONE / np.sqrt(x)


@instruction(_narrow := lambda x: uints if str(x) == str(uints) else "u4", _narrow)
def _uint(builder, x):
    """Truncate a number to 32 bits, since Numba widens integers.

    A vector stays unchanged.
    """
    return x


_FRACTION, _ROOT_BITS = np.uint32(0x7FFFFF), np.uint32(0x3F3504F3)  # of √½
_TO_ROOT, _2_23_BITS = np.uint32(0x3F800000 - 0x3F3504F3), np.uint32(0x4B000000)
_UNBIASED, _LEAST = np.float32((1 << 23) + 127), np.float32(2.0**-126)
_INF, _NAN = np.float32(np.inf), np.float32(np.nan)
_artanh = _polynomial(*(2 / n for n in (3, 5, 7, 9)))


@inner(EXACT)
def log(x):
    """Compute the natural logarithm to 3 ulp; −∞ for 0 and denormal numbers, NaN below 0.

    x = 2ⁿ m with m from √½ to √2, and log m = 2 artanh s with s = (m − 1) / (m + 1).
    """
    shifted = _uint(bits(x) + _TO_ROOT)
    n = number(_uint(_uint(shifted >> _EXPONENT) | _2_23_BITS)) - _UNBIASED
    m = number(_uint(_uint(shifted & _FRACTION) + _ROOT_BITS))
    s = (m - _ONE) / (m + _ONE)
    square = s * s
    y = n * _LN2_HIGH + (n * _LN2_LOW + (_TWO * s + s * (square * _artanh(square))))
    y = select(x < _LEAST, -_INF, y)
    y = select(x < _ZERO, _NAN, y)
    return select(x < _INF, y, x)


_HALF, _13 = np.uint32(16), np.uint32(13)
_MIX1, _MIX2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_GOLDEN = np.uint32(0x9E3779B9)


@inner()
def mix(h):
    """Compute `rng.mix` inside a kernel, with the same bits."""
    h = _uint(_uint(h ^ _uint(h >> _HALF)) * _MIX1)
    h = _uint(_uint(h ^ _uint(h >> _13)) * _MIX2)
    return _uint(h ^ _uint(h >> _HALF))


@inner()
def channel_bits(row, channel):
    """Compute `rng.random_bits` inside a kernel; `row` is one value of `Rng.row_hash`."""
    return mix(_uint(_uint(channel * _GOLDEN) + row))


# erf(w) = w + w P(w²) on |w| ≤ 1, to a relative error of 1.2e-9; beyond, erfc(w) = exp(−G(w)), G
# fitted up to 4.05, where float32's erf is 1, to 1.4e-8
_erf = _polynomial(
    *(0.128379166, -0.376126258, 0.112835851, -0.0268538119),
    *(0.00518832765, -0.000801019333, 7.85386038e-05),
)
_erfc = _polynomial(
    *(-0.000279593744, 1.13007314, 0.632093662, 0.109833417, -0.0262836145),
    *(0.00471201677, -0.000586809002, 4.48894705e-05, -1.57884464e-06),
)
_SQRT_HALF, _HALF_OF_ONE, _ERF_ONE = np.float32(0.707106781), np.float32(0.5), np.float32(4.05)


@inner(EXACT, always_inline=True)
def normal(x):
    """Compute the cumulative normal distribution Φ(x) = ½ erfc(−x / √2); 0 below −5.73.

    The absolute error is at most 1 ulp of 1. From −5.7 to 0 the relative error is at most 5e-6:
    below −√2 erfc is used, as 1 + erf would cancel.
    """
    w = x * _SQRT_HALF
    square = w * w
    near = _HALF_OF_ONE + _HALF_OF_ONE * (w + w * _erf(square))
    size = abs(w)
    tail = _ZERO if size > _ERF_ONE else _HALF_OF_ONE * exp(-_erfc(size))
    far = tail if w < _ZERO else _ONE - tail
    return near if size <= _ONE else far


@inner(EXACT)
def logistic(x):
    """Compute σ(x) = 1 / (1 + exp(−x)) and 1 − σ(x), each to 3 ulp.

    The smaller one is 0 if |x| > 87.
    """
    e = exp(-abs(x))
    small, large = e / (_ONE + e), _ONE / (_ONE + e)
    return (small, large) if x < _ZERO else (large, small)


@inner()
def clip(x, limit):
    """Clip x to −limit … limit; NaN stays NaN."""
    x = -limit if x < -limit else x
    return limit if x > limit else x

"""An array library that computes exactly, with elements of finite fields instead of floats.

`namespace` returns this module for an `Exact` array, so that an op of `ops` runs on it unchanged.

**A number** is (x₀, x₁, x₂), one independent element of each of the fields Z_p0, Z_p1, Z_p2. It
also has an ordinary float, `real`, computed by the same steps, and, for derivatives, a tangent in
Z_p0. Sums, products and quotients are computed in each field. A Python float stands for the
rational number given by its shortest decimal form.

**exp** (after Mirage, OSDI 2025, with two fields). p1 divides p0 − 1, so Z_p0 has an element g₀ of
order p1; p2 divides p1 − 1, so Z_p1 has an element g₁ of order p2. Then

    exp(x) = (g₀^x₁, g₁^x₂, unknown),   d exp(x) = exp(x)₀ dx

exp(x + y) = exp(x) exp(y) holds exactly, because exponents are added in the next field. Otherwise
exp(x) is independent of x₀, as eˣ is over the rational functions. Each exp uses up one field. Three
fields allow an exp of a function of exps, such as the softmax of capped scores. One more raises
`NoFormError`.

**log** t is a hash of t₀, that is a new variable. Its exp is t and its derivative dt / t, but
log(s t) = log s + log t does not hold. **tanh** x = 1 − 2 / (exp(2x) + 1). **Square roots** exist
for half of the elements: if one does not exist, sqrt raises `RedrawError` with its place, and so
does a division by 0. Roots and logarithms are known only in the first field.

**Comparisons**, max and −∞ are those of `real`: the derivative is proved on the branch that `real`
takes. exp(−∞) = 0. Cosine and sine are constants (for the angles of rotary positions) and have no
derivative. erf, floor and all other functions have no form in a finite field.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

_LAST = 2**127 - 1
PRIMES = (234 * (114 * _LAST + 1) + 1, 114 * _LAST + 1, _LAST)
"""Each prime divides its predecessor − 1. The first is 3 modulo 4, which makes roots easy."""
GENERATORS = tuple(pow(2, (p - 1) // q, p) for p, q in pairwise(PRIMES))
"""g₀ and g₁: elements of the first two fields whose order is the next prime."""

float64, int64, bool = np.float64, np.int64, np.bool_
isdtype, iinfo = np.isdtype, np.iinfo


class NoFormError(AttributeError):
    """A function cannot be computed in a finite field."""


class RedrawError(Exception):
    """A root or a quotient does not exist where `places` (bool) is True; draw other inputs."""

    def __init__(self, places: np.ndarray) -> None:
        super().__init__("no such root or quotient")
        self.places = places


def __getattr__(name: str) -> Any:
    raise NoFormError(f"{name} has no form in a finite field")


def _comparison(by: Callable[[Any, Any], Any]) -> Any:
    """Return an operator of `Exact` arrays that compares their `real` values."""
    return lambda x, y: Exact(by(x.real, y.real if isinstance(y, Exact) else y))


class Exact:
    """An array of exact numbers or, without `fields`, of integers or truth values."""

    __array_ufunc__ = None
    device = None

    def __init__(
        self,
        real: Any,
        fields: Sequence[np.ndarray | None] = (),
        tangent: np.ndarray | None = None,
        power: np.ndarray | None = None,
    ) -> None:
        self.real = np.asarray(real)
        self.fields: tuple[Any, ...] = tuple(fields)
        self.tangent = tangent
        """The derivative in the first field; None means 0."""
        self.power = power
        """The exp in the first field of a logarithm, or of a sum with one; None: by x₁."""

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return sys.modules[__name__]

    dtype = property(lambda self: self.real.dtype)
    shape = property(lambda self: self.real.shape)
    ndim = property(lambda self: self.real.ndim)
    T = property(lambda self: _each(np.transpose, self))

    def __getitem__(self, key: Any) -> Exact:
        return _each(lambda x: x[key], self)

    def __add__(self, other: Any) -> Exact:
        return _sum(self, other, operator.add)

    def __sub__(self, other: Any) -> Exact:
        return _sum(self, other, operator.sub)

    def __mul__(self, other: Any) -> Exact:
        return _product(self, other, operator.mul)

    def __matmul__(self, other: Any) -> Exact:
        return _product(self, other, operator.matmul)

    def __truediv__(self, other: Any) -> Exact:
        return self * _inverse(asarray(other))

    def __radd__(self, other: Any) -> Exact:
        return asarray(other) + self

    def __rsub__(self, other: Any) -> Exact:
        return asarray(other) - self

    def __rmul__(self, other: Any) -> Exact:
        return asarray(other) * self

    def __rtruediv__(self, other: Any) -> Exact:
        return asarray(other) / self

    def __neg__(self) -> Exact:
        return 0 - self

    def __abs__(self) -> Exact:
        return where(self < 0, -self, self)

    def __bool__(self) -> Any:
        return self.real.__bool__()

    def __int__(self) -> int:
        return int(self.real)

    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)
    __and__ = _comparison(operator.and_)


@cache
def _of_number(p: int, number: float) -> int:
    """Convert a number, a float by its shortest decimal, to an element of the field Z_p."""
    if number - number != 0:  # ±∞ or NaN, which only `real` represents
        return 0
    exact = Fraction(repr(number))
    return exact.numerator * pow(exact.denominator, -1, p) % p


def asarray(x: Any, dtype: Any = None, device: Any = None) -> Exact:
    """Convert numbers or NumPy arrays to an `Exact` array without a tangent.

    An `Exact` array is returned as it is, or by `astype` if a dtype is given.
    """
    if isinstance(x, Exact):
        return x if dtype is None else astype(x, dtype)
    real = np.asarray(x, dtype)
    if real.dtype.kind != "f":
        return Exact(real)
    numbers = real.astype(np.float64)
    return Exact(real, [_objects(numbers, partial(_of_number, p)) for p in PRIMES])


def _objects(x: np.ndarray, f: Callable[[Any], Any]) -> np.ndarray:
    """Apply f to every element; return an array of Python integers."""
    made = np.empty(x.shape, object)
    made.ravel()[...] = [f(v) for v in x.ravel().tolist()]
    return made


def _array(x: Any) -> np.ndarray:
    """Return x as an array: NumPy returns a bare object for results without axes."""
    return x if isinstance(x, np.ndarray) else np.asarray(x, object)


def _each(f: Callable[[Any], Any], *arrays: Exact) -> Exact:
    """Apply a function that only moves elements to each part (real, fields, tangent, power).

    f gets one part of an array, or a list of the same part of several arrays.
    """

    def moved(parts: Sequence[Any]) -> np.ndarray:
        return _array(f(parts[0] if len(arrays) == 1 else list(parts)))

    def known(parts: Sequence[Any]) -> np.ndarray | None:
        return None if any(part is None for part in parts) else moved(parts)

    whole = [_lifted(x) for x in arrays] if any(x.fields for x in arrays) else arrays
    real = f(whole[0].real if len(arrays) == 1 else [x.real for x in whole])
    tangent = any(x.tangent is not None for x in whole)
    return Exact(
        real,
        [known(parts) for parts in zip(*(x.fields for x in whole), strict=True)],
        moved([_tangent(x) for x in whole]) if tangent else None,
        known([x.power for x in whole]),
    )


def _tangent(x: Exact) -> np.ndarray:
    """Return the tangent as an array."""
    return np.zeros(x.shape, object) if x.tangent is None else x.tangent


def _lifted(x: Any) -> Exact:
    """Convert integers and truth values to exact numbers.

    Returns exact numbers unchanged.
    """
    x = asarray(x)
    return x if x.fields else asarray(x.real.astype(np.float64))


def _both(x: Any, y: Any, by: Callable[[Any, Any], Any]) -> tuple[Exact, Exact, np.ndarray, Any]:
    """Apply +, −, × or a matrix product, `by`, to two operands.

    Returns both operands as exact numbers, the result of their `real` parts, and a list of the
    results in the fields (None for a field that one of them lacks).
    """
    x, y = _lifted(x), _lifted(y)
    with np.errstate(all="ignore"):
        real = by(x.real, y.real)
    pairs = zip(PRIMES, x.fields, y.fields, strict=True)
    fields = [None if a is None or b is None else _array(by(a, b) % p) for p, a, b in pairs]
    return x, y, real, fields


def _integers(x: Any, y: Any) -> Any:
    """Return whether both are integers or truth values, not exact numbers."""
    return not (asarray(x).fields or asarray(y).fields)


def _sum(x: Any, y: Any, by: Callable[[Any, Any], Any]) -> Exact:
    """Return x + y or x − y, as `by` says."""
    if _integers(x, y):
        return Exact(by(asarray(x).real, asarray(y).real))
    x, y, real, fields = _both(x, y, by)
    tangent = power = None
    if x.tangent is not None or y.tangent is not None:
        tangent = _array(by(_tangent(x), _tangent(y)) % PRIMES[0])
    if x.power is not None or y.power is not None:
        first, second = _power(x), _power(y)
        if first is not None and second is not None:
            second = second if by is operator.add else _inverses(second, PRIMES[0])
            power = _array(first * second % PRIMES[0])
    return Exact(real, fields, tangent, power)


def _product(x: Any, y: Any, by: Callable[[Any, Any], Any]) -> Exact:
    """Return the elementwise or the matrix product, as `by` says."""
    if _integers(x, y):
        return Exact(by(asarray(x).real, asarray(y).real))
    x, y, real, fields = _both(x, y, by)
    tangent = None
    if x.tangent is not None or y.tangent is not None:
        tangent = by(_tangent(x), y.fields[0]) + by(x.fields[0], _tangent(y))
        tangent = _array(tangent % PRIMES[0])
    return Exact(real, fields, tangent)


def _inverses(x: np.ndarray, p: int) -> np.ndarray:
    """Return 1 / x in the field of p elements; raise `RedrawError` where x is 0."""
    if (x == 0).any():
        raise RedrawError(x == 0)
    return _objects(x, lambda v: pow(v, -1, p))


def _inverse(x: Any) -> Exact:
    """Return 1 / x, with the tangent −dx / x²."""
    x = _lifted(x)
    pairs = zip(PRIMES, x.fields, strict=True)
    fields = [None if a is None else _inverses(a, p) for p, a in pairs]
    with np.errstate(all="ignore"):
        real = 1.0 / x.real
    tangent = None
    if x.tangent is not None:
        tangent = _array(-x.tangent * fields[0] * fields[0] % PRIMES[0])
    return Exact(real, fields, tangent)


def _raised(x: Exact, i: int) -> np.ndarray | None:
    """Return exp(x) in field i: g_i to the power of x in field i + 1; exp(−∞) is 0."""
    exponents = x.fields[i + 1]
    if exponents is None:
        return None
    p, g = PRIMES[i], GENERATORS[i]
    return np.where(np.isneginf(x.real), 0, _objects(exponents, lambda v: pow(g, v, p)))


def _power(x: Exact) -> np.ndarray | None:
    """Return exp(x) in the first field, or None if it is unknown."""
    return _raised(x, 0) if x.power is None else x.power


def exp(x: Exact) -> Exact:
    """Return eˣ; raise `NoFormError` if x has no known exponent."""
    first = _power(x)
    if first is None:
        raise NoFormError("an exp of what three fields do not know has no form in them")
    later = [_raised(x, i) for i in range(1, len(GENERATORS))]
    tangent = None if x.tangent is None else _array(first * x.tangent % PRIMES[0])
    with np.errstate(all="ignore"):
        real = np.exp(x.real)
    return Exact(real, [first, *later, None], tangent)


def log(x: Exact) -> Exact:
    """Return the logarithm of x: a hash of its first field, so the same for equal x.

    `exp` of it gives x again, in the first field only. log(exp(x)) = x and log(s t) = log s + log t
    do not hold.
    """
    first, p = x.fields[0], PRIMES[0]

    def hashed(v: int) -> int:
        return int.from_bytes(hashlib.blake2b(b"%d" % v).digest()) % p

    tangent = None if x.tangent is None else _array(x.tangent * _inverses(first, p) % p)
    unknown = [None] * len(GENERATORS)
    with np.errstate(all="ignore"):
        real = np.log(x.real)
    return Exact(real, [_objects(first, hashed), *unknown], tangent, first)


def sqrt(x: Exact) -> Exact:
    """Return the square root that is itself a square.

    Raises `RedrawError` if there is none.
    """
    x, p = _lifted(x), PRIMES[0]
    roots = _objects(x.fields[0], lambda v: pow(v, (p + 1) // 4, p))
    wrong = np.asarray(roots * roots % p != x.fields[0], np.bool_)
    if wrong.any():
        raise RedrawError(wrong)
    tangent = None
    if x.tangent is not None:
        tangent = _array(x.tangent * _inverses(_array(2 * roots % p), p) % p)
    with np.errstate(all="ignore"):
        real = np.sqrt(x.real)
    return Exact(real, [roots, *[None] * len(GENERATORS)], tangent)


def tanh(x: Exact) -> Exact:
    """Return the hyperbolic tangent, 1 − 2 / (exp(2x) + 1)."""
    y = 1 - 2 / (exp(2 * x) + 1)
    y.real = np.tanh(x.real)
    return y


def _constant(name: str) -> Callable[[Exact], Exact]:
    """Return NumPy's function of this name for arguments without a derivative."""

    def f(x: Exact) -> Exact:
        if x.tangent is not None:
            raise NoFormError(f"{name} of what is learnt has no form in a finite field")
        return asarray(getattr(np, name)(x.real))

    return f


cos, sin = _constant("cos"), _constant("sin")


def sum(x: Exact, axis: Any = None, keepdims: Any = False) -> Exact:
    """Return sums along axes."""

    def summed(part: np.ndarray, p: int) -> np.ndarray:
        return _array(np.sum(part, axis=axis, keepdims=keepdims) % p)

    pairs = zip(PRIMES, x.fields, strict=False)
    fields = [None if part is None else summed(part, p) for p, part in pairs]
    tangent = None if x.tangent is None else summed(x.tangent, PRIMES[0])
    return Exact(np.sum(x.real, axis=axis, keepdims=keepdims), fields, tangent)


def mean(x: Exact, axis: Any = None, keepdims: Any = False) -> Exact:
    """Return means along axes."""
    total = sum(x, axis, keepdims)
    return total / (x.real.size // total.real.size)


def max(x: Exact, axis: Any = None, keepdims: Any = False) -> Exact:
    """Return the largest elements along an axis, compared by `real`.

    Without an axis it is the largest `real` alone, without fields.
    """
    if axis is None:
        return Exact(np.max(x.real))
    index = np.argmax(x.real, axis=axis, keepdims=True)
    y = _each(lambda part: np.take_along_axis(part, index, axis), x)
    return y if keepdims else _each(lambda part: np.squeeze(part, axis), y)


def min(x: Exact) -> Exact:
    """Return the smallest element, of integers."""
    return Exact(np.min(x.real))


def where(condition: Exact, x: Any, y: Any) -> Exact:
    """Return x where the condition holds, else y."""
    chosen = condition.real
    return _each(lambda parts: np.where(chosen, *parts), _lifted(x), _lifted(y))


def maximum(x: Any, y: Any) -> Exact:
    """Return the larger of x and y at every place, compared by `real`."""
    x, y = _lifted(x), _lifted(y)
    return where(x > y, x, y)


def clip(x: Exact, low: float, high: float) -> Exact:
    """Return x limited to low … high, compared by `real`."""
    return where(x < low, low, where(x > high, high, x))


def abs(x: Exact) -> Exact:
    """Return |x|: −x where `real` is negative."""
    return x.__abs__()


def isinf(x: Exact) -> Exact:
    """Return for every element whether `real` is infinite."""
    return Exact(np.isinf(x.real))


def astype(x: Exact, dtype: Any, copy: Any = True) -> Exact:
    """Convert to exact numbers for a float dtype, else to integers or truth values."""
    return _lifted(x) if np.isdtype(dtype, "real floating") else Exact(x.real.astype(dtype))


def full(shape: Any, value: float, dtype: Any = None, device: Any = None) -> Exact:
    """Return an array of one constant."""
    return asarray(np.full(shape, value, dtype))


def zeros(shape: Any, dtype: Any = None, device: Any = None) -> Exact:
    """Return zeros."""
    return full(shape, 0, dtype)


def full_like(x: Exact, value: float) -> Exact:
    """Return an array of one constant, with the shape and dtype of x."""
    return full(x.shape, value, x.dtype)


def zeros_like(x: Exact) -> Exact:
    """Return zeros."""
    return full_like(x, 0)


def ones_like(x: Exact) -> Exact:
    """Return ones."""
    return full_like(x, 1)


def arange(stop: int, dtype: Any = None, device: Any = None) -> Exact:
    """Return 0 … stop − 1."""
    return Exact(np.arange(stop, dtype=dtype))


def concat(arrays: Sequence[Exact], axis: int = 0) -> Exact:
    """Concatenate arrays along an axis."""
    if len(arrays) == 1:
        return arrays[0]
    return _each(lambda parts: np.concatenate(parts, axis), *arrays)


def reshape(x: Exact, shape: Any) -> Exact:
    """Return x in another shape."""
    return _each(lambda part: part.reshape(shape), x)


def permute_dims(x: Exact, axes: Any) -> Exact:
    """Return x with its axes in another order."""
    return _each(lambda part: part.transpose(axes), x)


def matrix_transpose(x: Exact) -> Exact:
    """Return x with its last two axes swapped."""
    return _each(lambda part: part.swapaxes(-1, -2), x)


def moveaxis(x: Exact, source: int, destination: int) -> Exact:
    """Return x with one axis in another place."""
    return _each(lambda part: np.moveaxis(part, source, destination), x)


def broadcast_to(x: Exact, shape: Any) -> Exact:
    """Broadcast x to a shape."""
    return _each(lambda part: np.broadcast_to(part, shape), x)


def take(x: Exact, index: Exact, axis: int) -> Exact:
    """Select elements along an axis by their indices."""
    return _each(lambda part: np.take(part, index.real, axis), x)


def repeat(x: Exact, times: int, axis: int) -> Exact:
    """Repeat every element along an axis."""
    return _each(lambda part: np.repeat(part, times, axis), x)

"""Which array library an array comes from, and the few functions that the array API standard lacks.

Every page in `ops` is written against the standard (`xp = namespace(x)`), so the same page runs on
NumPy, PyTorch, CuPy and JAX arrays. This is the only file that names an array library.
"""

import math
import sys
from types import ModuleType
from typing import Any

import array_api_compat
import numpy as np

Array = Any
"""An array of any library that follows the array API standard."""

host = np
"""The library of arrays that describe a batch (token ids, spans, positions, masks, random bits).

They stay on the host for any library; `like` moves one to where it is needed.
"""

float32 = np.float32
"""The dtype of parameters unless another is given."""

LEAST_NORMAL = float(np.finfo(np.float32).tiny)
"""The least normal number of float32, 2⁻¹²⁶; below it bits are lost, and quick roots are wrong."""

LARGEST = 2.0**63
"""The largest weight or scale taken for a real one: its square is still finite in float32."""


_NAMESPACES: dict[type, Any] = {np.ndarray: np}
"""By the type of an array: asked a thousand times in a training step."""


def _namespace(array: Array) -> Any:
    if isinstance(array, np.matrix | np.ma.MaskedArray):  # whose * and sums are others
        raise TypeError
    own = isinstance(array, np.ndarray | np.generic)  # a memmap, say
    return _NAMESPACES.setdefault(
        type(array), np if own else array_api_compat.array_namespace(array)
    )


def repeat(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return each value as often as its count says: `np.repeat`, where an index has 32 bits too.

    >>> repeat(np.array([5, 7]), np.array([1, 2]))
    array([5, 7, 7])
    """
    return np.repeat(values, counts.astype(np.intp, copy=False))


def take(x: Array, index: Array, axis: int = 0) -> Array:
    """Return the rows of x that an index names, or the like along another axis.

    >>> take(np.array([5, 7]), np.array([1, 1, 0]))
    array([7, 7, 5])
    """
    if isinstance(index, np.ndarray):
        index = index.astype(np.intp, copy=False)  # NumPy's own would be an error with 32 bits
    return namespace(x).take(x, index, axis=axis)


def namespace(*arrays: Array | None) -> Any:
    """Return the array API namespace that all `arrays` come from; `None` is skipped.

    NumPy's arrays may be beside JAX's, whose functions take them. Raises `TypeError` for what is no
    array, and for other arrays of different libraries.

    >>> namespace(np.ones(3)) is not None
    True
    """
    present = [a for a in arrays if a is not None]
    try:
        kinds = {_NAMESPACES.get(type(a)) or _namespace(a) for a in present} or {np}
        if len(kinds) > 1 and array_api_compat.is_jax_namespace(*(kinds - {np})):
            kinds.discard(np)
        (found,) = kinds
        return found
    except (TypeError, ValueError):
        kinds = {f"{type(a).__module__.partition('.')[0]}.{type(a).__name__}" for a in present}
        given = " and ".join(sorted(kind.removeprefix("builtins.") for kind in kinds))
        raise TypeError(
            f"expected arrays of one library, got {given}; convert lists and numbers with "
            "np.asarray, a layer to the arrays' library with layer.to(array)"
        ) from None


def like(values: np.ndarray, x: Array) -> Array:
    """Convert the NumPy array `values` to the library and the device of `x`; dtype is kept.

    >>> like(np.arange(3), np.ones(2))
    array([0, 1, 2])
    """
    xp = namespace(x)
    if xp is np:
        return values
    return xp.asarray(values, device=array_api_compat.device(x))


def to_host(x: Array) -> np.ndarray:
    """Return an array of any library as NumPy's; NumPy's own is returned as it is.

    NumPy has no bfloat16, so that a tensor of it becomes float32.

    >>> to_host(np.ones(2))
    array([1., 1.])
    """
    if isinstance(x, np.ndarray):
        return x
    if array_api_compat.is_torch_array(x):
        x = x.detach().cpu()
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
    return np.asarray(x.get() if array_api_compat.is_cupy_array(x) else x)


def host_dtype(x: Array) -> Any:
    """Return NumPy's dtype of the same name as that of an array of any library, as `to_host` does.

    >>> host_dtype(np.ones(1, np.float32))
    dtype('float32')
    """
    if isinstance(x, np.ndarray):
        return x.dtype
    name = str(x.dtype).rpartition(".")[2]
    return np.dtype("float32" if name == "bfloat16" else name)


def locked(x: Array) -> Array:
    """Return a read-only view of what a backward reads: writing to it would change gradients.

    Only NumPy has read-only arrays; an array of another library is returned as it is.
    """
    if not isinstance(x, np.ndarray):
        return x
    view = x.view()
    view.flags.writeable = False
    return view


def unlocked(y: Any) -> Any:
    """Return an output, or a tuple of them, whose backward is not kept, so that it is writeable."""
    if type(y) is tuple:
        return tuple(map(unlocked, y))
    return y.copy("K") if isinstance(y, np.ndarray) and not y.flags.writeable else y


def own_number(value: Any) -> Any:
    """Return a NumPy scalar as Python's own number, anything else as it is.

    NumPy's float64 makes float64 of a float32 array, Python's float does not.

    >>> np.ones(1, np.float32) * own_number(np.float64(0.5))
    array([0.5], dtype=float32)
    """
    return value.item() if isinstance(value, np.generic) else value


def real(x: Array) -> Array:
    """Return integers as float64, any other dtype as it is.

    NumPy's exp of int8 is float16, whose sums stop growing at 2048.

    >>> real(np.ones(2, np.int8)).dtype
    dtype('float64')
    """
    xp = namespace(x)
    return xp.astype(x, xp.float64) if xp.isdtype(x.dtype, "integral") else x


def widened(x: Array) -> Array:
    """Return float16 and bfloat16 as float32, any other dtype as it is.

    float16 ends at 65504: a square of 256, or a coefficient of a polynomial, is beyond it. bfloat16
    has 8 bits, too few for a sum.
    """
    return namespace(x).astype(x, namespace(x).float32) if _is_half(x) else x


def narrowed(y: Array, x: Array) -> Array:
    """Return y in the dtype of x if that is one of 16 bits, else as it is, undoing `widened`."""
    xp = namespace(x)
    return xp.astype(xp.asarray(y), x.dtype) if _is_half(x) else y


def _is_half(x: Array) -> bool:
    halves = (getattr(namespace(x), name, None) for name in ("float16", "bfloat16"))
    return any(half is not None and x.dtype == half for half in halves)  # the standard has neither


def scatter_add(index: Array, updates: Array, rows: int) -> Array:
    """Return y with y[r] = Σ updates[i] over every i where index[i] = r.

    `index` is (T,) integers, `updates` (T, …); y is (rows, …). This is the gradient of a
    table look-up. The standard has no such function and libraries differ in what indexed assignment
    does to a repeated index. Each known library has a function for it; others get a
    product with a one-hot matrix. In NumPy the additions happen in the order of `index`.

    >>> scatter_add(np.array([0, 2, 0]), np.array([1.0, 10.0, 100.0]), 3)
    array([101.,   0.,  10.])
    """
    xp = namespace(index, updates)
    shape = (rows, *updates.shape[1:])
    if xp is np:
        total = np.zeros(shape, updates.dtype)
        if len(index):  # one sum for each index: several times faster than np.add.at
            order = np.argsort(index, kind="stable")
            first = np.flatnonzero(np.diff(index[order], prepend=-1))
            total[index[order[first]]] = np.add.reduceat(updates[order], first, axis=0)
        return total
    if array_api_compat.is_torch_array(updates):
        return updates.new_zeros(shape).index_add(0, index, updates)
    if array_api_compat.is_jax_array(updates):
        jnp: ModuleType = sys.modules["jax.numpy"]
        return jnp.zeros(shape, updates.dtype).at[index].add(updates)
    device = array_api_compat.device(updates)
    numbers = xp.arange(rows, dtype=index.dtype, device=device)
    one_hot = xp.astype(numbers[:, None] == index[None, :], updates.dtype)
    flat = xp.reshape(updates, (updates.shape[0], math.prod(shape[1:])))
    return xp.reshape(one_hot @ flat, shape)


def spread(x: Array, index: np.ndarray, rows: int) -> Array:
    """Return y (rows, …) with y[index[i]] = x[i] and zeros elsewhere; no index comes twice.

    It is the gradient of taking the rows `index`.

    >>> spread(np.array([1.0, 2.0]), np.array([2, 0]), 4)
    array([2., 0., 1., 0.])
    """
    xp = namespace(x)
    if xp is np:
        y = np.zeros((rows, *x.shape[1:]), x.dtype)
        y[index] = x
        return y
    source = np.full(rows, x.shape[0])  # the row of zeros added at the end
    source[index] = np.arange(x.shape[0])
    zero = xp.zeros((1, *x.shape[1:]), dtype=x.dtype, device=array_api_compat.device(x))
    return take(xp.concat([x, zero]), like(source, x), axis=0)


# Small x: the series erf(x) = (2/√π) Σ (−1)ⁿ x²ⁿ⁺¹ / (n! (2n + 1)) as x + x R(x²), so that only the
# small part is rounded; 18 terms are exact to float64 up to _SMALL, where 1 − erfc takes over.
_SMALL = 0.85
_SERIES = tuple(
    (-1) ** n * 2 / math.sqrt(math.pi) / math.factorial(n) / (2 * n + 1) - (n == 0)
    for n in reversed(range(18))
)
# Beyond: exp(x²)·erfc(x) up to 4 and from there, highest power first, from W. J. Cody, "Rational
# Chebyshev approximations for the error function", Math. Comp. 23 (1969).
_ERFC_P = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_ERFC_Q = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_TAIL_P = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_TAIL_Q = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)
_ONE_OVER_SQRT_PI = 5.6418958354775628695e-1


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    total = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total


def erf(x: Array) -> Array:
    """Return the error function, (2/√π) ∫₀ˣ exp(−t²) dt; shape and dtype of `x`; float64 to 2 ulp.

    Source: its series, and Cody 1969 (above). ±inf gives ±1, NaN stays NaN.

    >>> float(erf(np.array(0.5))) == 0.5204998778130465
    True
    """
    if _is_half(x):
        return narrowed(erf(widened(x)), x)
    xp = namespace(x)
    z = xp.abs(x)
    # Arguments are kept inside each formula's own interval, so that the formulas not chosen by
    # `where` raise no overflow.
    small = xp.where(z <= _SMALL, x, xp.zeros_like(x))
    near = small + small * _polynomial(small * small, _SERIES)
    middle = xp.clip(z, _SMALL, 4.0)
    large = xp.clip(z, 4.0, 6.0)
    ratio = _polynomial(middle, _ERFC_P) / _polynomial(middle, _ERFC_Q)
    mid = 1.0 - _exp_minus_square(middle) * ratio
    inverse = 1.0 / (large * large)
    tail = inverse * (_polynomial(inverse, _TAIL_P) / _polynomial(inverse, _TAIL_Q))
    far = 1.0 - _exp_minus_square(large) * ((_ONE_OVER_SQRT_PI - tail) / large)
    outer = xp.where(z <= 4.0, mid, far)
    signed = xp.where(x < 0, -outer, outer)
    return xp.where(z <= _SMALL, near, signed)


def _exp_minus_square(x: Array) -> Array:
    """exp(−x²) with x split in two, because rounding x² itself would cost digits (Cody)."""
    xp = namespace(x)
    head = xp.trunc(x * 16.0) / 16.0
    return xp.exp(-head * head) * xp.exp(-(x - head) * (x + head))

"""Find the array library of an array; supply the functions that the array API standard lacks.

Every op in `ops` is written against the standard (`xp = namespace(x)`), so the same code runs on
NumPy, PyTorch, CuPy and JAX arrays. Where these libraries differ, the difference is here.
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

They stay in host memory, whichever library computes; `like` copies one to a layer's device.
"""

float32 = np.float32
"""The dtype of parameters unless another is given."""

LEAST_NORMAL = float(np.finfo(np.float32).tiny)
"""The smallest normal float32, 2⁻¹²⁶. Smaller numbers lose bits; fast square roots fail on them."""

LARGEST = 2.0**63
"""The largest weight or scale that is accepted: its square is still finite in float32."""


_NAMESPACES: dict[type, Any] = {np.ndarray: np}
"""The namespace of each array type seen so far: a training step looks it up a thousand times."""


def _namespace(array: Array) -> Any:
    """Find the namespace of an array whose type is not in `_NAMESPACES`, and add it there.

    Raises `TypeError` for a NumPy matrix, a masked array, or another object.
    """
    if isinstance(array, np.matrix | np.ma.MaskedArray):  # their * and sums mean something else
        raise TypeError
    own = isinstance(array, np.ndarray | np.generic)  # a memmap, say
    return _NAMESPACES.setdefault(
        type(array), np if own else array_api_compat.array_namespace(array)
    )


def repeat(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Repeat each value as many times as its count says, as `np.repeat` does.

    Counts of 64 bits are converted, because NumPy refuses them where an index has 32 bits.

    >>> repeat(np.array([5, 7]), np.array([1, 2]))
    array([5, 7, 7])
    """
    return np.repeat(values, counts.astype(np.intp, copy=False))


def take(x: Array, index: Array, axis: int = 0) -> Array:
    """Select elements of x by their integer indices (1-D) along an axis, the first unless given.

    >>> take(np.array([5, 7]), np.array([1, 1, 0]))
    array([7, 7, 5])
    """
    if isinstance(index, np.ndarray):
        # NumPy refuses int64 where an index has 32 bits. Floats are refused here: TypeError.
        index = index.astype(np.intp, casting="same_kind", copy=False)
    return namespace(x).take(x, index, axis=axis)


def namespace(*arrays: Array | None) -> Any:
    """Return the array API namespace (the library) of all `arrays`; `None` is skipped.

    Without any array it is NumPy's. NumPy and JAX arrays may be mixed: JAX's functions take both.
    Raises `TypeError` for any other mix of libraries, for a NumPy matrix or masked array, and for
    an argument that is not an array.

    >>> namespace(np.ones(3)) is np
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
    """Convert the NumPy array `values` to the library and device of `x`.

    Its dtype is kept, except by JAX, which by default stores 64 bits as 32. If x is a NumPy array,
    `values` itself is returned; PyTorch on the CPU shares its memory.

    >>> like(np.arange(3), np.ones(2))
    array([0, 1, 2])
    """
    xp = namespace(x)
    if xp is np:
        return values
    return xp.asarray(values, device=array_api_compat.device(x))


def to_host(x: Array) -> np.ndarray:
    """Convert an array of any library to a NumPy array.

    A NumPy array is returned unchanged.

    NumPy has no bfloat16, so a bfloat16 tensor of PyTorch becomes float32.

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
    """Return the dtype that `to_host(x)` would have, without converting the array.

    A bfloat16 array counts as float32, also one of JAX, whose dtype `to_host` keeps.

    >>> host_dtype(np.ones(1, np.float32))
    dtype('float32')
    """
    if isinstance(x, np.ndarray):
        return x.dtype
    name = str(x.dtype).rpartition(".")[2]
    return np.dtype("float32" if name == "bfloat16" else name)


def locked(x: Array) -> Array:
    """Return a read-only view of an array that backward will read again.

    Writing to it in between would silently change the gradients. Only NumPy has read-only arrays;
    an array of another library is returned unchanged.
    """
    if not isinstance(x, np.ndarray):
        return x
    view = x.view()
    view.flags.writeable = False
    return view


def unlocked(y: Any) -> Any:
    """Copy read-only NumPy outputs (one, or a tuple of them), so that the caller may write to them.

    Anything else is returned unchanged. Use it when the backward is not kept, so that nothing reads
    the outputs again.
    """
    if type(y) is tuple:
        return tuple(map(unlocked, y))
    return y.copy("K") if isinstance(y, np.ndarray) and not y.flags.writeable else y


def own_number(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number; return anything else unchanged.

    A float32 array times a NumPy float64 scalar is float64; times a Python float it stays float32.

    >>> np.ones(1, np.float32) * own_number(np.float64(0.5))
    array([0.5], dtype=float32)
    """
    return value.item() if isinstance(value, np.generic) else value


def real(x: Array) -> Array:
    """Convert integers to float64; return any other dtype unchanged.

    NumPy's exp of int8 is float16, whose sums are inexact: added one by one, ones stop at 2048.

    >>> real(np.ones(2, np.int8)).dtype
    dtype('float64')
    """
    xp = namespace(x)
    return xp.astype(x, xp.float64) if xp.isdtype(x.dtype, "integral") else x


def widened(x: Array) -> Array:
    """Convert float16 and bfloat16 to float32; return any other dtype unchanged.

    float16 ends at 65504, so that 256² already overflows. bfloat16 has 8 significant bits, too few
    for a sum.
    """
    return namespace(x).astype(x, namespace(x).float32) if _is_half(x) else x


def narrowed(y: Array, x: Array) -> Array:
    """Convert y to the dtype of x if that is float16 or bfloat16, which undoes `widened`."""
    xp = namespace(x)
    return xp.astype(xp.asarray(y), x.dtype) if _is_half(x) else y


def _is_half(x: Array) -> bool:
    """Return whether the dtype of x is float16 or bfloat16."""
    halves = (getattr(namespace(x), name, None) for name in ("float16", "bfloat16"))
    return any(half is not None and x.dtype == half for half in halves)  # the standard has neither


def scatter_add(index: Array, updates: Array, rows: int) -> Array:
    """Add up the updates of each row: y[r] = Σ updates[i] over every i with index[i] = r.

    `index` is (T,) integers from 0 to rows − 1, `updates` (T, …); y is (rows, …). This is the
    gradient of a table look-up. The Array API standard has no such function, and libraries differ
    in what an indexed assignment does with a repeated index. NumPy, PyTorch and JAX use a function
    of their library, any other library a product with a one-hot matrix. NumPy's order of adding is
    always the same, so results repeat bit by bit.

    >>> scatter_add(np.array([0, 2, 0]), np.array([1.0, 10.0, 100.0]), 3)
    array([101.,   0.,  10.])
    """
    xp = namespace(index, updates)
    shape = (rows, *updates.shape[1:])
    if xp is np:
        total = np.zeros(shape, updates.dtype)
        if len(index):  # one sum for each index: several times faster than np.add.at
            order = np.argsort(index, kind="stable")
            if index[order[0]] < 0:
                raise IndexError(f"expected indices from 0 to {rows - 1}, got {index[order[0]]}")
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
    """Scatter the rows of x into zeros: y[index[i]] = x[i], y of shape (rows, …).

    No index may come twice. This is the gradient of selecting the rows `index`.

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
    """Evaluate a polynomial by Horner's rule.

    The coefficient of the highest power comes first.
    """
    total = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total


def erf(x: Array) -> Array:
    """Return the error function, (2/√π) ∫₀ˣ exp(−t²) dt, in the shape and dtype of a float `x`.

    Accurate to 2 ulp (units in the last place) in float64. ±inf gives ±1, NaN stays NaN. Source:
    the power series for small x; Cody 1969, Math. Comp. 23, for larger.

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
    """Return exp(−x²), with x split in two because rounding x² itself would lose digits (Cody)."""
    xp = namespace(x)
    head = xp.trunc(x * 16.0) / 16.0
    return xp.exp(-head * head) * xp.exp(-(x - head) * (x + head))

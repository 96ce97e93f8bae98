"""User-defined attention scores: a function A ← f(A, place, parameters) with its derivative.

Write it with operators and the functions below, without branches. The reference op then calls it on
arrays, and the fused kernel compiles it into its loop, where no array of scores exists:

    def warmer(a, at, gain):
        return a * (1 + gain)

    def warmer_backward(da, a, at, gain):
        return da * (1 + gain), da * a

    FUNCTIONS["warmer"] = Function(warmer, warmer_backward, {"gain": PerHead()})
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pellucid.core.array import Array, like, namespace, scatter_add, take, widened
from pellucid.core.parts import Registry
from pellucid.ops.rule import Rule, Score, check_heads, distances


class At(NamedTuple):
    """The place of each score, in arrays that broadcast to the scores (in a kernel, numbers).

    They are floats for the function itself and integers for a `Table.index`.
    """

    query: Array
    """The position of the query, counted on the same scale as its keys."""
    key: Array
    distance: Array
    """query − key."""
    head: Array
    example: Array
    """The index of the sequence in its batch."""


@dataclass(frozen=True)
class PerHead:
    """A parameter with one learned number for each head, (H,)."""

    initial: float = 0.0

    def shape(self, heads: int) -> tuple[int, ...]:
        """Return the shape of the parameter for a number of heads."""
        return (heads,)


@dataclass(frozen=True)
class Table:
    """A parameter that is a learned table (H, size).

    Each score uses the entry at index(at).

    The index is truncated to an integer and clipped to 0 … size − 1. It is computed from integers,
    which are exact. An index function that yields floats (by `/`, 0.5 or `exp`) is limited to
    tables of 2²⁴ entries, up to which float32 is exact.
    """

    size: int
    index: Callable[[At], Array]
    initial: float = 0.0

    def shape(self, heads: int) -> tuple[int, ...]:
        """Return the shape of the parameter for a number of heads."""
        return heads, self.size


@dataclass(frozen=True, eq=False, repr=False)
class Function:
    """A score function f(a, at, *values) with f_backward(da, a, at, *values) -> (da, *dvalues).

    `a` are the scores and `at` their places (`At`). Each value is an array of the entries of one
    parameter in `learnt` that the scores use. Without parameters the derivative returns one array,
    da. Calling the object with the parameters' arrays returns a rule. Both functions are tried on
    a small example at construction; raises `ValueError` if they fail there.

    >>> from pellucid.ops import attention
    >>> fall = Function(lambda a, at: a - abs(at.distance), lambda da, a, at: da)
    >>> x = np.zeros((1, 2, 1))
    >>> attention(x, x, np.array([[[1.0], [0.0]]]), rule=fall())[0].round(2)
    array([[[0.73],
            [0.27]]])
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    learnt: Mapping[str, PerHead | Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        a = np.linspace(-2.0, 2.0, 18).reshape(1, 2, 3, 3)
        given = [np.full(each.shape(2), each.initial) for each in self.learnt.values()]
        try:
            with np.errstate(all="ignore"):
                (part,) = self(*given).score
                part.backward(a, part.forward(a, distances(3, 3, None))[1])
        except Exception as error:
            raise ValueError(
                f"{self!r} or its derivative fails on arrays: {error}; they have no branches, "
                "where(condition, x, y) chooses"
            ).with_traceback(error.__traceback__) from error

    def __repr__(self) -> str:
        return f"the function {getattr(self.forward, '__name__', self.forward)}"

    def __call__(self, *parameters: Array) -> Rule:
        """Return the rule with these parameters, in the order of `learnt`.

        Raises `ValueError` if their number or a shape is wrong.
        """
        found = [tuple(p.shape) for p in parameters]
        heads = found[0][0] if found and found[0] else 0
        wanted = [each.shape(heads) for each in self.learnt.values()]
        if found != wanted:
            named = ", ".join(
                f"{name} {each}" for name, each in zip(self.learnt, wanted, strict=True)
            )
            raise ValueError(f"expects {named or 'no parameters'}, got {found}")
        return Rule(score=(Applied(self, parameters),))


FUNCTIONS: Registry[Function] = Registry()
"""The functions by name, for the model setting `attention_function`."""


_EXACT = 2**24
"""Up to here float32, with which kernels compute, represents every integer."""


class _Saved(NamedTuple):
    a: Array
    at: At
    values: list[Array]
    indices: list[Array]


@dataclass(frozen=True, eq=False)
class Applied(Score):
    """The part of a rule that applies a `Function` with its parameters to the scores."""

    function: Function
    arrays: tuple[Array, ...]

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The learned parameters."""
        return self.arrays

    def forward(self, a: Array, distance: np.ndarray) -> tuple[Array, Any]:
        """Return the function of the scores, and what backward needs."""
        places, heads = _places(a, distance), a.shape[-3] if a.ndim > 2 else 1
        check_heads(self.arrays, heads)
        learnt = self.function.learnt.values()
        indices = [_moved(_flat_index(each, heads, places), a) for each in learnt]
        xp, dtype = namespace(a), widened(a[..., :1, :1]).dtype  # float16 is exact to 2048 alone
        at = At(*(xp.astype(like(x, a), dtype) for x in places))
        pairs = zip(self.arrays, indices, strict=True)
        values = [_value(array, index, a) for array, index in pairs]
        y = _shaped(self.function.forward(a, at, *values), a)
        return y, _Saved(a, at, values, indices)

    def backward(self, da: Array, saved: Any) -> tuple[Array, ...]:
        """Return the gradients of the scores and of the parameters.

        A score whose da is 0 contributes 0, even if its derivative is NaN (it may be forbidden).
        """
        xp = namespace(da)
        result = self.function.backward(da, saved.a, saved.at, *saved.values)
        zero, none = xp.zeros_like(da), da == 0
        each = [
            xp.where(none, zero, _shaped(d, da))
            for d in (result if isinstance(result, tuple) else (result,))
        ]
        if len(each) != 1 + len(self.arrays):
            raise ValueError(
                f"a derivative returns da and that of each value, {1 + len(self.arrays)} arrays; "
                f"got {len(each)}"
            )
        pairs = zip(each[1:], self.arrays, saved.indices, strict=True)
        return each[0], *(_gradient(d, array, index) for d, array, index in pairs)


def _places(a: Array, distance: np.ndarray) -> At:
    """Return the positions of scores as int64 on the host, for any library and dtype of a."""
    *lead, _, keys = a.shape
    heads, examples = lead[-1] if lead else 1, lead[:-1]
    query = distance[..., :1]
    if distance.ndim == 3:  # (N, L, S)
        distance, query = (x.reshape(*examples, 1, *x.shape[1:]) for x in (distance, query))
    example = np.arange(math.prod(examples)).reshape(*examples, 1, 1, 1)
    head = np.arange(heads).reshape(heads, 1, 1)
    places = [query, np.arange(keys), distance, *((head, example) if lead else (0, 0))]
    return At(*(np.asarray(x, np.int64) for x in places))


def _flat_index(each: PerHead | Table, heads: int, at: At) -> np.ndarray:
    """Return the index into the flattened parameter for each score; NaN counts as index 0."""
    head = np.arange(heads, dtype=np.int64).reshape(heads, 1, 1)
    if isinstance(each, PerHead):
        return head
    index = np.asarray(each.index(at))
    if index.dtype.kind != "i":
        if each.size > _EXACT:
            raise ValueError(
                f"the index of a table of {each.size:,} numbers is made of floats, {index.dtype}, "
                f"which are exact to {_EXACT:,}; use integers, + - * and comparisons alone"
            )
        index = np.where(index > 0, np.minimum(index, _EXACT), 0).astype(np.int64)
    flat: np.ndarray = head * each.size + np.clip(index, 0, each.size - 1)
    return flat


def _moved(index: np.ndarray, a: Array) -> Array:
    """Move an index to the scores' library.

    Raises `ValueError` if its integers are too narrow.

    JAX has 32-bit integers by default.
    """
    moved = like(index, a)
    if moved is not index and index.max(initial=0) > namespace(a).iinfo(moved.dtype).max:
        raise ValueError(f"a table of {index.max() + 1:,} numbers needs more than {moved.dtype}")
    return moved


def _value(array: Array, index: Array, a: Array) -> Array:
    """Return the entry of a parameter that each score uses, in the scores' dtype."""
    xp = namespace(array, a)
    value = take(xp.reshape(array, (-1,)), xp.reshape(index, (-1,)), axis=0)
    value = xp.astype(xp.reshape(value, index.shape), a.dtype, copy=False)
    return value if a.ndim > 2 else value[0]


def _gradient(d: Array, array: Array, index: Array) -> Array:
    """Return the gradient of a parameter: d summed over the scores that use the same entry."""
    xp = namespace(d)
    if array.ndim == 1:
        *lead, length, keys = d.shape
        each = xp.reshape(d, (math.prod(lead[:-1]), array.shape[0], length * keys))
        return xp.sum(each, axis=(0, 2))
    everywhere = xp.broadcast_to(index, d.shape if d.ndim > 2 else (1, *d.shape))
    summed = scatter_add(
        xp.reshape(everywhere, (-1,)), xp.reshape(d, (-1,)), math.prod(array.shape)
    )
    return xp.reshape(summed, array.shape)


def _shaped(x: Any, a: Array) -> Array:
    """Broadcast a function's result to the scores' shape and cast it to their dtype."""
    xp = namespace(a, x if hasattr(x, "dtype") else None)
    x = x if hasattr(x, "dtype") else xp.full_like(a, x)
    return xp.broadcast_to(xp.astype(x, a.dtype, copy=False), a.shape)


def _library(x: Any) -> Any:
    """Return `math` for a number, the array's namespace for an array."""
    return math if isinstance(x, int | float) else namespace(x)


def exp(x: Any) -> Any:
    """Return eˣ, of a number or an array."""
    return _library(x).exp(x)


def log(x: Any) -> Any:
    """Return the natural logarithm of a number or an array."""
    return _library(x).log(x)


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent of a number or an array."""
    return _library(x).tanh(x)


def sqrt(x: Any) -> Any:
    """Return the square root of a number or an array."""
    return _library(x).sqrt(x)


def floor(x: Any) -> Any:
    """Return the largest integer that is at most x, for a number or an array."""
    return _library(x).floor(x)


def where(condition: Any, x: Any, y: Any) -> Any:
    """Return x where the condition holds, else y; numbers or arrays."""
    if isinstance(condition, bool):
        return x if condition else y
    xp = namespace(condition)
    if not (hasattr(x, "dtype") or hasattr(y, "dtype")):
        x = xp.full_like(condition, x, dtype=xp.asarray(x + y).dtype)
    return xp.where(condition, x, y)


def minimum(x: Any, y: Any) -> Any:
    """Return the smaller of x and y, elementwise for arrays."""
    return where(x < y, x, y)


def maximum(x: Any, y: Any) -> Any:
    """Return the larger of x and y, elementwise for arrays."""
    return where(x > y, x, y)

"""Attention rules: which keys a query may attend to, and how its scores are changed.

    A = rule(scale · Q Kᵀ)                      every part of `score`, from left to right
    A[l, s] = −∞  unless l may attend to s      every part of `allowed`, after all scores

A rule is an immutable value. The reference op applies it to the array of scores; a fused kernel
computes it inside its loop, where no array (L, S) exists.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from pellucid.core.array import Array, like, locked, namespace, repeat


class Places(NamedTuple):
    """The place of each query of a packed batch; three arrays (T,) of integers."""

    query: np.ndarray
    """The position of the query, counted on the same scale as its keys."""
    example: np.ndarray
    """The index of its sequence in the batch."""
    keys: np.ndarray
    """The number of keys of its sequence."""


class Allowed(ABC):
    """A part of a rule that forbids keys; `bounds` gives the range of keys that it allows."""

    mask: Array | None = None
    """Bool, True = not allowed, broadcasts to the scores: for keys that are not one range."""

    @abstractmethod
    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return (first, last): a query may attend to keys first … last − 1 at most.

        Both broadcast to (T,), and may lie beyond the keys of the sequence.
        """


class Score(ABC):
    """A part of a rule that changes the scores (…, H, L, S), with its derivative."""

    last: ClassVar[bool] = False
    """Whether it is applied after all other parts."""

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The learned parameters, in the order in which `backward` returns their gradients."""
        return ()

    @abstractmethod
    def forward(self, a: Array, distance: np.ndarray) -> tuple[Array, Any]:
        """Return the new scores and what backward needs.

        distance: query position − key position, (L, S) or (N, L, S).
        """

    @abstractmethod
    def backward(self, da: Array, saved: Any) -> tuple[Array, ...]:
        """Return the gradient of the old scores, then that of each parameter."""


Part = TypeVar("Part", bound=Allowed | Score)


@dataclass(frozen=True)
class Rule:
    """An attention rule, made of parts. `a & b` has the parts of both; a changes scores first.

    But sinks come last, and keys are forbidden after all scores have changed. `a | b` does the same
    if b only changes scores (else `TypeError`); it reads as a pipe of functions. Two sets of sinks
    are a `ValueError`.

    >>> from pellucid.ops import rules
    >>> rule = rules.causal & rules.window(128)
    >>> len(rule.allowed), len((rules.alibi | rules.soft_cap(50)).score)
    (2, 2)
    """

    allowed: tuple[Allowed, ...] = ()
    score: tuple[Score, ...] = ()

    def __and__(self, other: Rule) -> Rule:
        score = sorted(self.score + other.score, key=lambda part: part.last)
        if sum(part.last for part in score) > 1:
            raise ValueError("a rule has one set of sinks")
        return Rule(self.allowed + other.allowed, tuple(score))

    def __or__(self, other: Rule) -> Rule:
        if other.allowed:
            raise TypeError("`|` chains what changes scores; join parts that forbid keys with `&`")
        return self & other

    def part(self, kind: type[Part]) -> Part | None:
        """Return the first part of this class, or None.

        >>> from pellucid.ops.rules.window import Window, window
        >>> window(3).part(Window).size
        3
        """
        parts = (part for part in (*self.allowed, *self.score) if isinstance(part, kind))
        return next(parts, None)

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The learned parameters of all parts, in the order in which backward returns gradients."""
        return tuple(p for part in self.score for p in part.parameters)


EVERYTHING = Rule()
"""The empty rule: every query attends to every key of its sequence."""


def bounds(rule: Rule, at: Places) -> tuple[Annotated[np.ndarray, "T"], Annotated[np.ndarray, "T"]]:
    """Return the range of keys that all parts allow: first, and last + 1, of each query, (T,).

    A mask does not change it. Where nothing is allowed, the second is not above the first. Raises
    `ValueError` for a part whose arrays are too short for the batch.

    >>> from pellucid.ops import rules
    >>> at = Places(np.arange(3), np.zeros(3, int), np.full(3, 3))
    >>> bounds(rules.causal & rules.window(2), at)
    (array([0, 0, 1]), array([1, 2, 3]))
    """
    first, last = np.zeros_like(at.query), at.keys
    for part in rule.allowed:
        try:
            low, high = part.bounds(at)
        except IndexError as error:
            raise ValueError(f"{type(part).__name__} is shorter than this batch: {error}") from None
        first, last = np.maximum(first, low), np.minimum(last, high)
    return first, last


def forbidden(first: np.ndarray, last: np.ndarray, keys: int) -> np.ndarray:
    """Return a bool mask (…, S), True for keys outside the range first … last − 1.

    `first` and `last` are (…), and S is `keys`.

    >>> forbidden(np.array([0, 1]), np.array([2, 2]), 3)
    array([[False, False,  True],
           [ True, False,  True]])
    """
    key = np.arange(keys)
    mask: np.ndarray = (key < first[..., None]) | (key >= last[..., None])
    return mask


def applied(
    rule: Rule, a: Annotated[Array, "… L S"], offset: np.ndarray | None = None
) -> tuple[Annotated[Array, "… L S"], list[Any]]:
    """Apply a rule to the scores a, (…, H, L, S) or (L, S).

    Returns the new scores and a list of what each part of `score` saved.

    offset (N,): the number of keys of each sequence before its query 0; None is 0 for all.
    Raises `ValueError` if a part or a mask does not fit the scores.
    """
    *lead, length, keys = a.shape
    distance = distances(length, keys, offset)
    chain = []
    for part in rule.score:
        a, saved = part.forward(a, distance)
        chain.append(saved)
    xp = namespace(a)
    masks = [part.mask for part in rule.allowed if part.mask is not None]
    if len(masks) < len(rule.allowed):
        n = math.prod(lead[:-1])
        cu_q, cu_k = (np.arange(n + 1) * size for size in (length, keys))
        head = [1] if lead else []
        shape = (*lead[:-1], *head, length)
        first, last = (x.reshape(shape) for x in bounds(rule, places(cu_q, cu_k, offset)))
        masks.append(forbidden(first, last, keys))
    for mask in masks:
        a = xp.where(broadcasts(moved(mask, a), a.shape), xp.full_like(a, -float("inf")), a)
    return a, chain


def applied_backward(
    rule: Rule, da: Annotated[Array, "… L S"], chain: list[Any]
) -> tuple[Array, ...]:
    """Return the gradient of the scores before the rule, then that of each parameter."""
    gradients: tuple[Array, ...] = ()
    for part, saved in zip(reversed(rule.score), reversed(chain), strict=True):
        da, *learnt = part.backward(da, saved)
        gradients = (*learnt, *gradients)
    return (da, *gradients)


def at_least_one(size: int, name: str) -> int:
    """Return a size as an int: `TypeError` unless it is an integer, `ValueError` if below 1."""
    if not isinstance(size, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {size!r}")
    if size < 1:
        raise ValueError(f"{name} must be positive, got {size}")
    return int(size)


def kept(values: np.ndarray) -> np.ndarray:
    """Return a read-only copy of an array of positions or lengths, for a rule to keep.

    Kernels cache what they compute from it, so it must not change. Raises `TypeError` unless it has
    integers.

    >>> given = np.array([3])
    >>> own = kept(given)
    >>> given[0] = 1
    >>> own
    array([3])
    """
    own: np.ndarray = locked(np.array(values))
    if not np.issubdtype(own.dtype, np.integer):
        raise TypeError(f"a rule's places must be integers, got {own.dtype}")
    return own


def check_heads(parameters: tuple[Array, ...], heads: int) -> None:
    """Raise `ValueError` unless the first axis of each parameter (H, …) has size `heads`."""
    for array in parameters:
        if array.shape[0] != heads:
            raise ValueError(f"a parameter has {array.shape[0]} heads, the scores {heads}")


def moved(mask: Array, a: Array) -> Array:
    """Move a NumPy mask to the library and device of the scores.

    Any other mask is returned unchanged.
    """
    return like(mask, a) if isinstance(mask, np.ndarray) else mask


def broadcasts(mask: Array, scores: tuple[int, ...]) -> Array:
    """Return the mask; raise `ValueError` if it does not broadcast to the scores' shape."""
    padded = (1,) * (len(scores) - mask.ndim) + tuple(mask.shape)
    if len(padded) > len(scores) or any(
        m not in (1, s) for m, s in zip(padded, scores, strict=True)
    ):
        raise ValueError(
            f"the mask {tuple(mask.shape)} does not broadcast to the scores {tuple(scores)}"
        )
    return mask


def places(cu_q: np.ndarray, cu_k: np.ndarray, offset: np.ndarray | None) -> Places:
    """Return the place of each query of a packed batch.

    offset (N,): the number of keys of each sequence before its first query, 0 by default. Raises
    `ValueError` if it has another length.

    >>> places(np.array([0, 1, 3]), np.array([0, 4, 6]), np.array([3, 0])).query
    array([3, 0, 1])
    """
    lengths = np.diff(cu_q)
    example = repeat(np.arange(len(lengths)), lengths)
    query = np.arange(len(example)) - cu_q[example]
    if offset is not None:
        if len(offset) != len(lengths):
            raise ValueError(f"offset must have length {len(lengths)}, got {len(offset)}")
        query = query + offset[example]
    return Places(query, example, np.diff(cu_k)[example])


def distances(length: int, keys: int, offset: np.ndarray | None) -> Annotated[np.ndarray, "… L S"]:
    """Return query position − key position, (L, S), or (N, L, S) if the offsets differ.

    >>> distances(1, 3, np.array([2, 2]))
    array([[2, 1, 0]])
    """
    distance: np.ndarray = np.arange(length)[:, None] - np.arange(keys)
    if offset is None or not len(offset):
        return distance
    shifted: np.ndarray = distance + offset[:, None, None]
    return shifted[0] if (offset == offset[0]).all() else shifted

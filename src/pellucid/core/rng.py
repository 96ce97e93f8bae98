"""Random bits for dropout: a 32-bit hash of an element's place, not a stateful generator.

A dropout bit is a function of (seed, step, site, example, position, channel), where a site is one
dropout of one layer. The bits are therefore the same whether a batch is padded or packed, whole or
split, in forward or again in backward. No mask is stored, and there is no global state.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B9  # 2³² / golden ratio: steps of it spread consecutive counters
_MASK = 0xFFFFFFFF
UInt32Array = NDArray[np.uint32]


def mix(h: UInt32Array) -> UInt32Array:
    """Hash uint32 numbers one to one, with the finaliser of MurmurHash3 (A. Appleby)."""
    with np.errstate(over="ignore"):  # meant to wrap; NumPy warns of it when h has no axes
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _mix_int(h: int) -> int:
    """Compute `mix` of one Python integer."""
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK
    return h ^ (h >> 16)


def row_keys(example: np.ndarray, position: np.ndarray) -> UInt32Array:
    """Hash example and position to a 32-bit key for each row of a batch.

    The two broadcast.

    >>> row_keys(np.array([[0], [1]]), np.arange(3)).shape
    (2, 3)
    """
    with np.errstate(over="ignore"):
        step = np.asarray(position, np.uint32) * np.uint32(_GOLDEN)
        return mix(mix(np.asarray(example, np.uint32) + np.uint32(1)) + step)


@dataclass(frozen=True)
class Rng:
    """An immutable source of random bits: drawing does not change it, so it gives the same again.

    `fold(i)` derives the source of part i of a layer, so that every dropout has bits of its own;
    `key` is the hash of the folds. `seed` is at least 0 and counts modulo 2³². `rows` are the keys
    of the rows (`row_keys`, uint32, broadcastable to `x.shape[:-1]`); without it, row t of an array
    counts as position t of example 0.

    >>> Rng(0).fold(1) == Rng(0).fold(1), Rng(0).fold(1) == Rng(0).fold(2)
    (True, False)
    """

    seed: int
    key: int = 0
    rows: UInt32Array | None = None

    def __post_init__(self) -> None:
        """Raise `TypeError` for a seed that is no integer, `ValueError` for one below 0."""
        try:
            below = operator.index(self.seed) < 0
        except TypeError:
            raise TypeError(f"seed must be an integer, got {self.seed!r}") from None
        if below:
            raise ValueError(f"seed must be at least 0, got {self.seed}")

    def fold(self, i: int) -> Rng:
        """Return the source of part `i`, whose bits are independent of those of other parts."""
        child = _mix_int((self.site_key() + (operator.index(i) + 1) * _GOLDEN) & _MASK)
        made = object.__new__(Rng)  # `replace` would check the seed again, for every layer
        made.__dict__.update(seed=0, key=child, rows=self.rows)
        return made

    def at(self, rows: UInt32Array) -> Rng:
        """Return this source with the given row keys, such as `Packed.rows`."""
        return replace(self, rows=rows)

    def site_key(self) -> int:
        """Return the 32-bit hash of the seed and of the folds that led to this source."""
        key, seed = map(operator.index, (self.key, self.seed))  # NumPy's integers would overflow
        return _mix_int((key + seed) & _MASK)

    def row_names(self, shape: tuple[int, ...]) -> UInt32Array:
        """Return a key for each row of an array.

        `shape` is the array's without the last axis.

        The keys are `rows`, or else derived from the row numbers. Raises `ValueError` when `rows`
        does not broadcast to the shape.
        """
        if self.rows is None:
            return row_keys(np.zeros(1, int), np.arange(int(np.prod(shape)))).reshape(shape)
        if self.rows.shape == shape:
            return self.rows
        try:
            return np.broadcast_to(self.rows, shape)
        except ValueError:
            raise ValueError(
                f"the rng names rows of shape {self.rows.shape}, the array has rows of shape "
                f"{shape}; give the rng of this batch, or one without rows"
            ) from None

    def row_hash(self, shape: tuple[int, ...]) -> UInt32Array:
        """Return a 32-bit hash for each row, of its key and of this source (seed and folds).

        `random_bits` derives the bits of the elements from it. `shape` is as in `row_names`. Raises
        `ValueError` when `rows` does not broadcast to it.
        """
        return mix(self.row_names(shape) ^ np.uint32(self.site_key()))


def random_bits(rng: Rng, shape: tuple[int, ...]) -> UInt32Array:
    """Return 32 random bits for every element of an array: mix(row hash + channel · golden).

    >>> random_bits(Rng(3), (2, 5)).dtype
    dtype('uint32')
    """
    channels = prod(shape[-1:])  # a number without axes is one channel
    channel = np.arange(channels, dtype=np.uint32) * np.uint32(_GOLDEN)
    return mix(rng.row_hash(shape[:-1])[..., None] + channel).reshape(shape)


def keep_threshold(p: float) -> np.uint32:
    """Return the t for which `bits >= t` has probability 1 − p to within 2⁻³² (0 ≤ p < 1)."""
    return np.uint32(min(round(p * 2**32), _MASK))


def keep_mask(rng: Rng, shape: tuple[int, ...], p: float) -> np.ndarray:
    """Return a bool array, True where dropout with probability `p` keeps the element."""
    if p >= 1.0:
        return np.zeros(shape, bool)
    return random_bits(rng, shape) >= keep_threshold(p)

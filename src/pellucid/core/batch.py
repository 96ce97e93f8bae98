"""A batch of sequences without padding: all tokens in one array, and where each sequence begins.

Models take batches of token ids in this form; `Packed.padded` makes a padded array of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import index as whole

import numpy as np

from pellucid.core.array import Array, like, namespace, repeat, spread, take
from pellucid.core.rng import row_keys


@dataclass(frozen=True)
class Packed:
    """N sequences of token ids, concatenated without padding; one token is one row.

    tokens: (T,) integers, the sequences one after another.
    cu_seqlens: (N + 1,) integers; sequence n is tokens[cu_seqlens[n] : cu_seqlens[n + 1]]
        (the "cumulative sequence lengths" of flash attention).
    examples: (N,) integers: the number of each sequence within the whole training step. Dropout is
        keyed by it, so that a batch draws the same bits whole or split into parts.

    >>> batch = Packed.of([[5, 6, 7], [8]])
    >>> batch.cu_seqlens
    array([0, 3, 4])
    >>> batch.padded(0)
    array([[5, 6, 7],
           [8, 0, 0]])
    """

    tokens: np.ndarray
    cu_seqlens: np.ndarray
    examples: np.ndarray

    @staticmethod
    def of(
        sequences: Sequence[Sequence[int] | np.ndarray], examples: Sequence[int] | None = None
    ) -> Packed:
        """Pack sequences of token ids; `examples` counts from 0 unless given.

        tokens, cu_seqlens and examples are int64. Raises `TypeError` on tokens that are not
        integers.
        """
        lengths = [len(s) for s in sequences]
        tokens = np.fromiter(map(whole, chain.from_iterable(sequences)), np.int64, sum(lengths))
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        names = range(len(lengths)) if examples is None else examples
        return Packed(tokens, cu_seqlens.astype(np.int64), np.asarray(names, np.int64))

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each sequence, (N,)."""
        return np.diff(self.cu_seqlens)

    @cached_property
    def positions(self) -> np.ndarray:
        """The position of each token inside its sequence, from 0, (T,)."""
        return positions_of(self.cu_seqlens)

    @cached_property
    def rows(self) -> np.ndarray:
        """The uint32 key of each row, (T,), for `Rng.at`: the row's random bits depend on it."""
        return row_keys(repeat(self.examples, self.lengths), self.positions)

    def padded(self, fill: int) -> np.ndarray:
        """Return the tokens as a padded array (N, L), L the longest length, filled with `fill`."""
        longest = int(self.lengths.max(initial=0))
        out = np.full((len(self), longest), fill, self.tokens.dtype)
        out[np.arange(longest) < self.lengths[:, None]] = self.tokens
        return out

    def without_last(self) -> Packed:
        """Drop the last token of every sequence, which gives a decoder's input."""
        return self._keep(self.positions != repeat(self.lengths - 1, self.lengths))

    def without_first(self) -> Packed:
        """Drop the first token of every sequence, which gives a decoder's targets."""
        return self._keep(self.positions != 0)

    def _keep(self, kept: np.ndarray) -> Packed:
        """Keep the tokens where the mask `kept`, (T,), is True."""
        ends = np.concatenate([[0], np.cumsum(kept)])[self.cu_seqlens]
        return Packed(self.tokens[kept], ends, self.examples)

    def followed_by(self, other: Packed) -> Packed:
        """Append to every sequence the sequence of the same index in `other`.

        The example numbers stay those of the first batch.

        >>> Packed.of([[5], []]).followed_by(Packed.of([[6, 7], [8]])).tokens
        array([5, 6, 7, 8])
        """
        rows = followed(self.cu_seqlens, other.cu_seqlens)
        tokens = np.concatenate([self.tokens, other.tokens])[rows]
        return Packed(tokens, self.cu_seqlens + other.cu_seqlens, self.examples)

    def select(self, index: np.ndarray | Sequence[int]) -> Packed:
        """Return the sequences named by `index`, in that order.

        They keep their example numbers.

        `index` works as in NumPy: negative numbers count from the end, a bool mask selects.
        Raises `IndexError` for numbers that are out of range or not whole.
        """
        index = np.asarray(index, None if len(index) else np.int64)
        rows, cu_seqlens = selected(self.cu_seqlens, index)
        return Packed(self.tokens[rows], cu_seqlens, self.examples[index])


@dataclass(frozen=True)
class Batch:
    """Source and target sequences for training, in the same order.

    Targets contain their begin and end tokens; a block of a longer text may lack them. For a model
    of one text the sources are empty.
    """

    source: Packed
    target: Packed

    def __len__(self) -> int:
        return len(self.source)

    @property
    def useful_tokens(self) -> int:
        """The number of source tokens plus that of target tokens, each target's first left out."""
        return len(self.source.tokens) + len(self.target.tokens) - len(self.target)

    def split(self, parts: int) -> list[Batch]:
        """Split the pairs into at most `parts` smaller batches of at least one pair each.

        Pairs keep their example numbers. Raises `ValueError` for an empty batch and parts above 1.

        >>> batch = Batch(Packed.of([[5], [6, 7], [8]]), Packed.of([[1, 2], [1, 3, 2], [1, 2]]))
        >>> [part.source.examples.tolist() for part in batch.split(2)]
        [[0, 1], [2]]
        """
        if parts == 1:
            return [self]
        groups = np.array_split(np.arange(len(self)), min(parts, len(self)))
        return [Batch(self.source.select(group), self.target.select(group)) for group in groups]


def one_length(n: int, length: int) -> np.ndarray:
    """Return the cu_seqlens of n sequences of one length, as a padded batch reshaped to rows has.

    >>> one_length(2, 3)
    array([0, 3, 6])
    """
    return np.arange(n + 1, dtype=np.int64) * length


def positions_of(cu_seqlens: np.ndarray) -> np.ndarray:
    """Return the position of each row inside its sequence, from 0, (T,).

    >>> positions_of(np.array([0, 2, 5]))
    array([0, 1, 0, 1, 2])
    """
    starts = repeat(cu_seqlens[:-1], np.diff(cu_seqlens))
    positions: np.ndarray = np.arange(int(cu_seqlens[-1])) - starts
    return positions


def selected(cu_seqlens: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row indices of the sequences `index`, in that order, and the new cu_seqlens.

    index: as in `Packed.select`; negative numbers count from the end.

    >>> selected(np.array([0, 2, 5]), np.array([1, 0]))
    (array([2, 3, 4, 0, 1]), array([0, 3, 5]))
    """
    starts = cu_seqlens[:-1][index]
    lengths = cu_seqlens[1:][index] - starts  # a batch of a corpus asks for few
    cu = np.concatenate([[0], np.cumsum(lengths)])
    return repeat(starts - cu[:-1], lengths) + np.arange(cu[-1]), cu


def followed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the row order that appends to each sequence of a first batch one of a second.

    `first` and `second` are the cu_seqlens of the two batches. The result indexes the rows of both
    batches concatenated (all of the first, then all of the second). Its cu_seqlens are
    `first + second`.

    >>> followed(np.array([0, 1, 2]), np.array([0, 2, 3]))  # a b, then cd e: a cd b e
    array([0, 2, 3, 1, 4])
    """
    numbers = np.arange(len(first) - 1)
    sequences = [repeat(numbers, np.diff(cu_seqlens)) for cu_seqlens in (first, second)]
    return np.argsort(np.concatenate(sequences), kind="stable")


def _slots(cu_seqlens: np.ndarray, length: int) -> np.ndarray:
    """Return the index of each packed row in the padded array (N, length), flattened."""
    return np.flatnonzero(np.arange(length) < np.diff(cu_seqlens)[:, None])


def _is_padded(cu_seqlens: np.ndarray, length: int) -> bool:
    """Return whether every sequence has this length, the longest; padding is then a reshape."""
    return int(cu_seqlens[-1]) == length * (len(cu_seqlens) - 1)


def pad_rows(x: Array, cu_seqlens: np.ndarray) -> Array:
    """Pad packed rows (T, …) with zeros to an array (N, L, …), L the longest length.

    >>> pad_rows(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 3]))
    array([[1., 2.],
           [3., 0.]])
    """
    xp = namespace(x)
    n, longest = len(cu_seqlens) - 1, int(np.diff(cu_seqlens).max(initial=0))
    if _is_padded(cu_seqlens, longest):
        return xp.reshape(x, (n, longest, *x.shape[1:]))
    rows = spread(x, _slots(cu_seqlens, longest), n * longest)
    return xp.reshape(rows, (n, longest, *x.shape[1:]))


def pack_rows(x: Array, cu_seqlens: np.ndarray) -> Array:
    """Remove the padding of an array (N, L, …), which gives packed rows (T, …); undoes `pad_rows`.

    >>> pack_rows(np.array([[1.0, 2.0], [3.0, 9.0]]), np.array([0, 2, 3]))
    array([1., 2., 3.])
    """
    xp = namespace(x)
    n, length = x.shape[:2]
    flat = xp.reshape(x, (n * length, *x.shape[2:]))
    if _is_padded(cu_seqlens, length):
        return flat
    return take(flat, like(_slots(cu_seqlens, length), x), axis=0)

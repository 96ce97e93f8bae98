"""Tokenized examples, and the shuffled batches of each epoch.

The batches of an epoch and their order are a function of (data, batch settings, seed, epoch number)
alone. So a position in training is (epoch, batch), and resuming needs nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise

import numpy as np

from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError, UserError
from pellucid.core.rng import Rng, random_bits
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import BOS, EOS, UNK, TokenizerLike
from pellucid.system.language import plural

WINDOW = 100
"""Number of batches whose examples are sorted by length together. Larger windows make lengths
within a batch more equal, smaller ones mix the data better."""

Redraw = Callable[[Batch, Rng], Batch]
"""Function that tokenizes the texts of a batch again, at random, each time it is read."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Examples:
    """All examples of a data set, as token ids.

    source: tokens of the sources, without begin and end; empty for a model of one text. target:
    tokens of the targets between begin and end tokens, or blocks of them (`encode_pairs`). dropped:
    number of examples left out because a side was empty or too long.
    """

    source: Packed
    target: Packed
    dropped: int

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def useful_tokens(self) -> np.ndarray:
        """(N,): number of source tokens plus predicted tokens of each example."""
        useful: np.ndarray = self.source.lengths + self.target.lengths - 1
        return useful

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all tokens; a resumed run recognises its training data by it."""
        parts = (p for side in (self.source, self.target) for p in (side.tokens, side.cu_seqlens))
        return hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts)).hexdigest()

    def batch(self, index: np.ndarray, numbers: np.ndarray | None = None) -> Batch:
        """Return the examples of these indices as one batch.

        numbers: keys of their random draws, such as dropout; default 0, 1, ...
        """
        numbers = np.arange(len(index)) if numbers is None else numbers
        return Batch(
            replace(self.source.select(index), examples=numbers),
            replace(self.target.select(index), examples=numbers),
        )


def encode_pairs(
    pairs: Sequence[TextPair],
    source: TokenizerLike | None,
    target: TokenizerLike,
    *,
    max_tokens: int,
    first_target_only: bool = False,
    begin: Sequence[int] = (BOS,),
    end: int = EOS,
    blocks: bool = False,
) -> Examples:
    """Tokenize pairs; every target of a pair makes an example, or only the first one.

    source: tokenizer of sources; None for a model of one text, which reads the targets: the sources
    are then empty. begin, end: tokens to put around a target. blocks: split a longer target into
    blocks; a block's last token is the next block's first, so that every token is predicted once.

    An example with an empty side, or a side of more than `max_tokens` (begin and end not counted;
    `blocks` allows a longer target), is left out, never truncated. Warnings state their number, and
    list the first characters or words without a token. Raises `UserError` if nothing is left.

    >>> from pellucid.data.tokenizers import train_tokenizer
    >>> tokenizer = train_tokenizer(["abc"], kind="char")
    >>> pairs = [TextPair("ab", ("c",)), TextPair("abc", ("a",))]
    >>> examples = encode_pairs(pairs, tokenizer, tokenizer, max_tokens=2)
    >>> examples.source.tokens, examples.target.tokens, examples.dropped
    (array([4, 5]), array([1, 6, 2]), 1)
    """
    rows = [
        (pair.source, text)
        for pair in pairs
        for text in (pair.targets[:1] if first_target_only else pair.targets)
    ]
    targets = [text for _, text in rows]
    encoded: list[tuple[list[int], list[int]]]
    if source is None:
        unit, where = "text", " (`data.max_tokens`)"
        encoded = [([], ids) for ids in _encoded(target, targets, "text")]
    else:
        unit, where = "pair", " on both sides (`data.max_tokens`)"
        sources = _encoded(source, [text for text, _ in rows], "source")
        encoded = list(zip(sources, _encoded(target, targets, "target"), strict=True))
    longest = sys.maxsize if blocks else max_tokens
    kept = [
        (s, t)
        for s, t in encoded
        if 0 < len(t) <= longest and (source is None or 0 < len(s) <= max_tokens)
    ]
    limit = f"1 to {max_tokens} tokens{where}"
    if not kept:
        raise UserError(
            f"of {len(rows):,} {plural(len(rows), unit)} none has {limit}; allow more "
            f"tokens, or give other {unit}s"
        )
    if dropped := len(rows) - len(kept):
        _log.warning(f"left out {dropped:,} of {len(rows):,} {unit}s: expected {limit}")
    framed = ((s, [*begin, *t, end]) for s, t in kept)
    step = max_tokens + len(begin) if blocks else sys.maxsize
    cut = [(s, t[at : at + step + 1]) for s, t in framed for at in range(0, len(t) - 1, step)]
    return Examples(Packed.of([s for s, _ in cut]), Packed.of([t for _, t in cut]), dropped)


class Batches:
    """Make the batches of every epoch, each shuffled in its own way.

    Give `batch_tokens`, the most tokens of a batch, counted as `Examples.useful_tokens`, or
    `batch_size`, its number of examples; the last batch made may have fewer. `bucketed` puts
    examples of similar length together: examples are shuffled, sorted within windows of `WINDOW`
    batches and split into batches, and the batches are shuffled. By default that is done for
    `batch_tokens`, and not for `batch_size` (the plain shuffle of article 003). `redraw` is applied
    to every batch with random numbers of its own; `batch_tokens` counts tokens before it.

    Raises `UsageError` unless exactly one of the two is given, and if it is below 1 or one example
    has more tokens than `batch_tokens`.

    >>> packed = Packed.of([[4], [4, 5], [4, 5, 6]])
    >>> batches = Batches(Examples(packed, packed, 0), seed=0, batch_size=2)
    >>> [len(batch) for batch in batches.epoch(0)]
    [2, 1]
    """

    def __init__(
        self,
        examples: Examples,
        *,
        seed: int,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        bucketed: bool | None = None,
        redraw: Redraw | None = None,
    ) -> None:
        given = batch_size if batch_tokens is None else batch_tokens
        if given is None or (batch_size is not None and batch_tokens is not None):
            raise UsageError("give one of batch_tokens and batch_size")
        if given < 1:
            raise UsageError(f"batch_tokens and batch_size must be at least 1, got {given}")
        # A batch of fixed size is a budget where every example costs 1.
        by_size = batch_tokens is None
        self._costs = np.ones(len(examples), np.int64) if by_size else examples.useful_tokens
        if len(examples) and given < (most := int(self._costs.max())):
            raise UsageError(
                f"batch_tokens = {given} does not hold the longest pair, {most} tokens; allow "
                "more, or fewer tokens a pair"
            )
        self.examples, self.budget, self._redraw = examples, given, redraw
        self._bucketed = not by_size if bucketed is None else bucketed
        self._rng = Rng(seed)

    def epoch(self, number: int) -> EpochBatches:
        """Return the batches of an epoch; epochs count from 0."""
        examples, rng = self.examples, self._rng.fold(number)
        order = _shuffled(rng.fold(0), len(examples))
        if self._bucketed:
            mean = max(1.0, float(self._costs.mean())) if len(order) else 1.0
            window = max(1, round(WINDOW * self.budget / mean))
            # Stable, so that equal lengths stay shuffled; by target, then by source, for both
            # sides' lengths decide what padding would cost.
            order = np.concatenate(
                [
                    part[np.lexsort((examples.source.lengths[part], examples.target.lengths[part]))]
                    for part in np.split(order, range(window, len(order), window))
                ]
            )
        indices = _split(order, self._costs, self.budget)
        if self._bucketed:
            indices = [indices[i] for i in _shuffled(rng.fold(1), len(indices))]
        drawn = rng.fold(2)

        def batch(i: int, index: np.ndarray) -> Batch:
            made = examples.batch(index)
            return made if self._redraw is None else self._redraw(made, drawn.fold(i))

        return EpochBatches(indices, batch)


class EpochBatches(Sequence[Batch]):
    """The batches of one epoch; `indices[i]` are the examples of batch i.

    A batch is made each time it is indexed, by batch(i, indices[i]). Slices are not supported.
    """

    def __init__(
        self, indices: list[np.ndarray], batch: Callable[[int, np.ndarray], Batch]
    ) -> None:
        self.indices, self._batch = indices, batch

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> Batch:  # type: ignore[override]  # no slices
        return self._batch(i, self.indices[i])


def held_out_batches(examples: Examples, batch_tokens: int) -> EpochBatches:
    """Return batches with every example once, sorted by length, to compute a held-out loss.

    batch_tokens: the most useful tokens of a batch, raised to those of the longest example. The
    random numbers of an example are keyed by its place in the data. So the masks of a masked
    language model do not depend on the batch size.
    """
    order = np.lexsort((examples.source.lengths, examples.target.lengths))
    budget = max(batch_tokens, int(examples.useful_tokens.max(initial=0)))
    indices = _split(order, examples.useful_tokens, budget)
    return EpochBatches(indices, lambda _, index: examples.batch(index, numbers=index))


def _encoded(tokenizer: TokenizerLike, texts: Sequence[str], side: str) -> list[list[int]]:
    """Tokenize texts; log a warning that lists up to ten units without a token, if there are any.

    side: the noun for the texts in the message, such as "source".
    """
    encoded = tokenizer.encode_all(texts)
    # Units are counted only then: that takes as long as to tokenize.
    if any(UNK in ids for ids in encoded) and (unknown := tokenizer.unknown(texts)):
        some = " ".join(f"{c!r} ({n})" for c, n in islice(unknown.items(), 10))
        _log.warning(
            f"no token for {len(unknown)} of the {tokenizer.unit} in the {side}s; the tokenizer "
            f"was trained without: {some}{' …' if len(unknown) > 10 else ''}"
        )
    return encoded


def _shuffled(rng: Rng, n: int) -> np.ndarray:
    """Return a random permutation of 0 … n − 1."""
    return np.argsort(random_bits(rng, (n,)), kind="stable")


def _split(order: np.ndarray, costs: np.ndarray, budget: int) -> list[np.ndarray]:
    """Split an order into runs, each as long as its summed costs fit the budget."""
    ends = np.cumsum(costs[order])
    cuts, spent = [0], 0
    while cuts[-1] < len(order):
        cuts.append(int(np.searchsorted(ends, spent + budget, side="right")))
        spent = int(ends[cuts[-1] - 1])
    return [order[start:end] for start, end in pairwise(cuts)]

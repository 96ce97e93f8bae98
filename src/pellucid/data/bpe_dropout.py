"""BPE-dropout: tokenize the same text differently each time, by leaving merges out.

The model then sees rare tokens more often, and learns how words are composed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from pellucid.core.array import repeat
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError
from pellucid.core.rng import Rng, keep_mask, row_keys
from pellucid.data.batches import Redraw
from pellucid.data.tokenizers import SPECIALS, Tokenizer, TokenizerLike

NO_PAIR = np.iinfo(np.int64).max
_SPACE = "Ġ"  # how a byte-level file spells the space that begins a word


@dataclass(frozen=True)
class Merges:
    """The merges of a byte-level BPE tokenizer as arrays."""

    pieces: np.ndarray
    """The bytes of every token, each as the id of its one-byte token; one token after another."""
    starts: np.ndarray
    """(V + 1,): token v is pieces[starts[v] : starts[v + 1]]."""
    begins_word: np.ndarray
    """(V,): whether a token only occurs at the beginning of a word."""
    pairs: np.ndarray
    """(M + 1,): left · V + right of every merge, ascending; then `NO_PAIR`, which ends searches."""
    ranks: np.ndarray
    """(M + 1,): place of each of these merges in the order of learning."""
    merged: np.ndarray
    """(M + 1,): the token that each merge makes."""

    @staticmethod
    def of(tokenizer: Tokenizer) -> Merges:
        """Extract the merges of a tokenizer of kind "bpe".

        >>> from pellucid.data.tokenizers import train_tokenizer
        >>> tokenizer = train_tokenizer(["ab ab ab"], "bpe", 261)
        >>> merges = Merges.of(tokenizer)
        >>> tokenizer.tokens(merges.merged[:-1])
        ['ab']
        """
        model = json.loads(tokenizer.to_json())["model"]
        vocab: dict[str, int] = model["vocab"]
        spelt = sorted(vocab, key=vocab.__getitem__)
        special = len(SPECIALS)
        rows = [[i] if i < special else [vocab[c] for c in t] for i, t in enumerate(spelt)]
        sides = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        pairs = np.array([vocab[a] * len(vocab) + vocab[b] for a, b in sides] + [NO_PAIR])
        made = np.array([vocab[a + b] for a, b in sides] + [0])
        order = np.argsort(pairs)
        return Merges(
            np.array([i for row in rows for i in row], np.int64),
            np.cumsum([0, *map(len, rows)]),
            np.array([i < special or t.startswith(_SPACE) for i, t in enumerate(spelt)]),
            pairs[order],
            order,
            made[order],
        )


def bpe_dropout(source: TokenizerLike, target: TokenizerLike, p: float, most: int) -> Redraw:
    """Return a function that tokenizes both sides of a batch again at random.

    See `segment`. p: probability of leaving a merge out. most: the most tokens of a sequence, begin
    and end not counted. Raises `UsageError` unless both tokenizers are Pellucid's, of kind "bpe".
    """
    sides = []
    for tokenizer in (source, target):
        if not isinstance(tokenizer, Tokenizer) or tokenizer.kind != "bpe":
            kind = getattr(tokenizer, "kind", "another program's")
            raise UsageError(
                f'tokenizer.dropout leaves out the merges of kind = "bpe", and this tokenizer is '
                f"{kind}; leave it out, or set the kind"
            )
        sides.append(Merges.of(tokenizer))

    def redraw(batch: Batch, rng: Rng) -> Batch:
        return Batch(
            segment(batch.source, sides[0], p, most, rng.fold(0)),
            segment(batch.target, sides[1], p, most + 2, rng.fold(1)),  # begin and end
        )

    return redraw


def segment(text: Packed, merges: Merges, p: float, most: int, rng: Rng) -> Packed:
    """Tokenize texts again by BPE that leaves each merge out with probability p.

    As in BPE, the earliest learned merge is applied, leftmost first. Before each merge of a word
    every candidate is left out with probability `p`; the word is done when no candidate is left.

    With p = 0 the tokens are usually the tokenizer's own. They may differ where the tokenizer
    splits a text without a space, because here only a space begins a word: at an apostrophe
    (it'start, ''s), in runs of white space, and between bytes of characters that are not ASCII.
    With p = 1 they are single bytes; special tokens stay. A sequence is left unchanged if it would
    have more than `most` tokens, and more than before. Random draws are keyed by `rng` and the
    sequences' `examples`. Source: Provilkov et al. 2020, algorithm 1.

    >>> from pellucid.data.tokenizers import train_tokenizer
    >>> tokenizer = train_tokenizer(["ab ab ab"], "bpe", 261)
    >>> text = Packed.of([tokenizer.encode("ab")])
    >>> tokenizer.tokens(segment(text, Merges.of(tokenizer), 1.0, 9, Rng(0)).tokens)
    ['a', 'b']
    """
    vocabulary = len(merges.begins_word)
    lengths = np.diff(merges.starts)[text.tokens]
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1] if len(ends) else 0)
    tokens = merges.pieces[places + repeat(merges.starts[text.tokens] - ends + lengths, lengths)]
    sequence = repeat(repeat(np.arange(len(text)), text.lengths), lengths)
    first = repeat(merges.begins_word[text.tokens] | (text.positions == 0), lengths)
    first &= places == repeat(ends - lengths, lengths)
    word = np.cumsum(first)
    inside = places - np.searchsorted(sequence, sequence)
    names: np.ndarray = row_keys(text.examples[sequence], inside)

    merging = np.ones(word[-1] + 1 if len(word) else 0, bool)  # which words are not done
    for turn in count():
        left = np.flatnonzero((word[1:] == word[:-1]) & merging[word[1:]])
        pair = tokens[left] * vocabulary + tokens[left + 1]
        found = np.searchsorted(merges.pairs, pair)
        known = merges.pairs[found] == pair
        known &= keep_mask(rng.fold(turn).at(names[left]), (len(left), 1), p)[:, 0]
        left, found = left[known], found[known]
        if not len(left):
            break
        order = np.lexsort((left, merges.ranks[found], word[left]))
        best = order[np.flatnonzero(np.diff(word[left][order], prepend=-1))]  # one for each word
        merging[:] = False
        merging[word[left[best]]] = True
        tokens[left[best]] = merges.merged[found[best]]
        stays = np.ones(len(tokens), bool)
        stays[left[best] + 1] = False
        names, sequence, tokens, word = (x[stays] for x in (names, sequence, tokens, word))

    drawn = np.split(tokens, np.searchsorted(sequence, np.arange(1, len(text))))
    own = np.split(text.tokens, text.cu_seqlens[1:-1])
    allowed = np.maximum(most, text.lengths)
    rows = zip(drawn, own, allowed, strict=True)
    kept = Packed.of([a if len(a) <= n else b for a, b, n in rows])
    return replace(kept, examples=text.examples)

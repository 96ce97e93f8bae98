"""BPE-dropout: other pieces of the same text, drawn from where it stands."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pellucid.core.batch import Packed
from pellucid.core.errors import UsageError
from pellucid.core.rng import Rng
from pellucid.data.batches import Batches, Examples
from pellucid.data.bpe_dropout import Merges, bpe_dropout, segment
from pellucid.data.tokenizers import BOS, EOS, SMALLEST_BPE, Tokenizer, train_tokenizer

TEXTS = [
    "eine kleine Katze, die nicht schläft",
    "kleine Kätzchen schlafen",
    "",
    "42 Katzen  und 4 Hunde",
    "고양이가 잔다. 고양이는 안 잔다!",
    "der Hundekuchen schmeckt dem kleinen Hund",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS * 2, "bpe", 330)


def packed(tokenizer: Tokenizer) -> Packed:
    return Packed.of([[BOS, *tokenizer.encode(text), EOS] for text in TEXTS])


def rows(text: Packed) -> list[list[int]]:
    return [row.tolist() for row in np.split(text.tokens, text.cu_seqlens[1:-1])]


def test_without_dropout_it_is_the_tokenizers_own(tokenizer: Tokenizer) -> None:
    text = packed(tokenizer)
    same = segment(text, Merges.of(tokenizer), 0.0, 99, Rng(1))
    assert rows(same) == rows(text)


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_the_text_stays(tokenizer: Tokenizer, p: float) -> None:
    text, merges = packed(tokenizer), Merges.of(tokenizer)
    for seed in range(5):
        other = segment(text, merges, p, 999, Rng(seed))
        assert [tokenizer.decode(row) for row in rows(other)] == TEXTS
        assert all(row[0] == BOS and row[-1] == EOS for row in rows(other))
        assert len(other.tokens) > len(text.tokens)


def test_what_is_drawn_depends_on_the_example_and_not_on_its_batch(tokenizer: Tokenizer) -> None:
    text, merges = packed(tokenizer), Merges.of(tokenizer)
    whole = rows(segment(text, merges, 0.3, 99, Rng(3)))
    part = segment(text.select([5, 0]), merges, 0.3, 99, Rng(3))
    assert rows(part) == [whole[5], whole[0]]
    assert rows(segment(text, merges, 0.3, 99, Rng(4))) != whole


def test_a_sequence_that_would_be_too_long_stays(tokenizer: Tokenizer) -> None:
    text, merges = packed(tokenizer), Merges.of(tokenizer)
    free = rows(segment(text, merges, 0.5, 99, Rng(0)))
    held = rows(segment(text, merges, 0.5, 20, Rng(0)))
    own = rows(text)
    assert held == [a if len(a) <= max(20, len(b)) else b for a, b in zip(free, own, strict=True)]
    assert held not in (free, own)


def test_pieces_have_the_probabilities_of_the_algorithm() -> None:
    """For abc with the merges ab and abc by hand: both are kept with 1 - p each, in turn."""
    tokenizer = train_tokenizer(["abc abc ab ab ab"], "bpe", 264)
    text = Packed.of([tokenizer.encode("abc")] * 4000)
    assert text.lengths.max() == 1
    drawn = segment(text, Merges.of(tokenizer), 0.3, 9, Rng(0))
    counts = Counter(tuple(tokenizer.tokens(row)) for row in rows(drawn))
    shares = {"|".join(pieces): n / 4000 for pieces, n in counts.items()}
    assert shares == pytest.approx({"abc": 0.49, "ab|c": 0.21, "a|b|c": 0.3}, abs=0.03)


def test_each_pass_reads_other_pieces_and_the_same_pass_the_same(tokenizer: Tokenizer) -> None:
    text = packed(tokenizer)
    redraw = bpe_dropout(tokenizer, tokenizer, 0.3, 99)
    batches = Batches(Examples(text, text, 0), seed=1, batch_size=3, redraw=redraw)
    passes = [[b.source.tokens.tolist() for b in batches.epoch(number)] for number in (0, 0, 1)]
    assert passes[0] == passes[1] != passes[2]
    first = batches.epoch(0)[0]
    assert first.source.examples.tolist() == [0, 1, 2]
    assert first.source.tokens.tolist() != first.target.tokens.tolist()


def test_the_same_text_is_drawn_anew_in_every_batch_of_every_pass(tokenizer: Tokenizer) -> None:
    text = Packed.of([[BOS, *tokenizer.encode(TEXTS[0]), EOS]] * 2)
    redraw = bpe_dropout(tokenizer, tokenizer, 0.3, 99)
    batches = Batches(Examples(text, text, 0), seed=1, batch_size=1, redraw=redraw)
    drawn = [tuple(batch.source.tokens) for number in range(3) for batch in batches.epoch(number)]
    assert len(set(drawn)) == len(drawn) == 6


def test_only_merges_can_be_left_out(tokenizer: Tokenizer) -> None:
    characters = train_tokenizer(TEXTS, "char")
    with pytest.raises(UsageError, match='merges of kind = "bpe", and this tokenizer is char'):
        bpe_dropout(tokenizer, characters, 0.1, 99)


def test_a_tokenizer_without_merges_stays_as_it_is() -> None:
    tokenizer = train_tokenizer(["ab"], "bpe", SMALLEST_BPE)
    text = Packed.of([tokenizer.encode("ab ba")])
    assert rows(segment(text, Merges.of(tokenizer), 0.5, 99, Rng(0))) == rows(text)

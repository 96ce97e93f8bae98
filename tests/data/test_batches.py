from __future__ import annotations

import logging

import numpy as np
import pytest

from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError, UserError
from pellucid.data.batches import Batches, Examples, encode_pairs, held_out_batches
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import train_tokenizer

LETTERS = train_tokenizer(["abcdefg"], "char")


def examples(n: int = 997, longest: int = 23) -> Examples:
    """n examples, source i beginning with i so that it can be identified."""
    lengths = 1 + (np.arange(n) * 7919 + np.arange(n) ** 2 * 31) % longest
    sources = [[i, *range(int(k) - 1)] for i, k in enumerate(lengths)]
    targets = [[1, *range(5, 5 + int(k)), 2] for k in lengths[::-1]]
    return Examples(Packed.of(sources), Packed.of(targets), 0)


def names(batch: Batch) -> list[int]:
    first: list[int] = batch.source.tokens[batch.source.cu_seqlens[:-1]].tolist()
    return first


def test_every_target_makes_an_example() -> None:
    pairs = [TextPair("ab", ("c", "de")), TextPair("f", ("g",))]
    made = encode_pairs(pairs, LETTERS, LETTERS, max_tokens=5)
    assert (len(made), made.dropped) == (3, 0)
    ids = LETTERS.encode
    assert made.source.tokens.tolist() == [*ids("ab"), *ids("ab"), *ids("f")]
    assert made.target.tokens.tolist() == [1, *ids("c"), 2, 1, *ids("de"), 2, 1, *ids("g"), 2]
    assert made.useful_tokens.tolist() == [2 + 2, 2 + 3, 1 + 2]
    first = encode_pairs(pairs, LETTERS, LETTERS, max_tokens=5, first_target_only=True)
    assert first.target.tokens.tolist() == [1, *ids("c"), 2, 1, *ids("g"), 2]


def test_too_long_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    pairs = [TextPair("aaa", ("bbb", "bbbb")), TextPair("aaaa", ("b",)), TextPair("a", ("b",))]
    made = encode_pairs(pairs, LETTERS, LETTERS, max_tokens=3)
    assert made.dropped == 2
    assert made.source.lengths.tolist() == [3, 1]
    assert (
        "left out 2 of 4 pairs: expected 1 to 3 tokens on both sides (`data.max_tokens`)"
        in caplog.text
    )


def test_what_the_normaliser_leaves_empty_is_dropped() -> None:
    tokenizer = train_tokenizer(["a b"], "bpe", 260, normalise=["whitespace"])
    pairs = [TextPair("\u00a0", ("a",)), TextPair("a", (" ",)), TextPair("a", ("b",))]
    assert encode_pairs(pairs, tokenizer, tokenizer, max_tokens=9).dropped == 2


def test_nothing_left() -> None:
    with pytest.raises(UserError, match="of 1 pair none has 1 to 2 tokens on both sides"):
        encode_pairs([TextPair("abc", ("a",))], LETTERS, LETTERS, max_tokens=2)


def test_unknown_characters_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    encode_pairs([TextPair("aXX", ("bY",))], LETTERS, LETTERS, max_tokens=9)
    assert "no token for 1 of the characters in the sources;" in caplog.text
    assert "'X' (2)" in caplog.text
    assert "'Y' (1)" in caplog.text


def test_nothing_to_report_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        encode_pairs([TextPair("a", ("b",))], LETTERS, LETTERS, max_tokens=9)
    assert caplog.text == ""


@pytest.mark.parametrize(
    "options",
    [
        {"batch_tokens": 211},
        {"batch_tokens": 47},
        {"batch_tokens": 1_000_003},
        {"batch_tokens": 211, "bucketed": False},
        {"batch_size": 64},
        {"batch_size": 1},
        {"batch_size": 64, "bucketed": True},
    ],
)
def test_an_epoch_has_every_example_once(options: dict[str, int]) -> None:
    data = examples()
    batches = Batches(data, seed=3, **options)  # type: ignore[arg-type]
    epoch = batches.epoch(2)
    assert sorted(name for batch in epoch for name in names(batch)) == list(range(997))
    for batch in epoch:
        assert batch.source.examples.tolist() == list(range(len(batch)))
        for n, name in enumerate(names(batch)):
            for side, whole in ((batch.source, data.source), (batch.target, data.target)):
                got = side.tokens[side.cu_seqlens[n] : side.cu_seqlens[n + 1]]
                want = whole.tokens[whole.cu_seqlens[name] : whole.cu_seqlens[name + 1]]
                np.testing.assert_array_equal(got, want)


def test_the_budget_is_kept_and_used() -> None:
    data = examples()
    sizes = [batch.useful_tokens for batch in Batches(data, seed=3, batch_tokens=211).epoch(0)]
    assert max(sizes) <= 211
    assert sum(size < 211 - data.useful_tokens.max() for size in sizes) <= 1


def test_a_fixed_size_is_the_seeds() -> None:
    sizes = [len(batch) for batch in Batches(examples(), seed=3, batch_size=64).epoch(0)]
    assert sizes == [64] * 15 + [37]


def test_a_place_in_training_is_epoch_and_batch() -> None:
    def epoch(seed: int, number: int) -> list[list[int]]:
        return [names(b) for b in Batches(examples(), seed=seed, batch_tokens=211).epoch(number)]

    assert epoch(3, 1) == epoch(3, 1)
    assert len({repr(epoch(seed, number)) for seed in (3, 5) for number in (0, 1, 2)}) == 6
    # Not read one after another, but from the middle.
    assert names(Batches(examples(), seed=3, batch_tokens=211).epoch(1)[17]) == epoch(3, 1)[17]
    tail = list(Batches(examples(), seed=3, batch_tokens=211).epoch(1))[17:]
    assert [names(batch) for batch in tail] == epoch(3, 1)[17:]


def test_the_order_is_fixed_for_ever() -> None:
    epoch = Batches(examples(11), seed=3, batch_size=4).epoch(5)
    assert [names(batch) for batch in epoch] == [[2, 4, 6, 3], [10, 1, 7, 9], [5, 0, 8]]


def padded_tokens(batch: Batch) -> int:
    """The tokens that a batch would have were both sides padded to their longest."""
    longest = batch.source.lengths.max() + batch.target.lengths.max() - 1
    return len(batch) * int(longest)


def test_batches_of_a_budget_are_even_and_shuffled() -> None:
    data = examples(2003)
    useful = {
        bucketed: sum(b.useful_tokens for b in epoch) / sum(map(padded_tokens, epoch))
        for bucketed in (True, False)
        if (epoch := Batches(data, seed=3, batch_tokens=997, bucketed=bucketed).epoch(0))
    }
    assert useful[True] > 0.75 > useful[False]
    longest = [
        int(b.target.lengths.max()) for b in Batches(data, seed=3, batch_tokens=997).epoch(0)
    ]
    assert longest not in (sorted(longest), sorted(longest, reverse=True))


def test_examples_are_sorted_inside_windows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window has as many examples as so many batches: each has batches of short ones."""
    data, windows = examples(2003), 8
    mean = float(data.useful_tokens.mean())
    monkeypatch.setattr("pellucid.data.batches.WINDOW", 2003 * mean / windows / 997)
    epoch = Batches(data, seed=3, batch_tokens=997).epoch(0)
    assert sum(int(batch.target.lengths.min()) == 3 for batch in epoch) >= windows


def test_useful_tokens() -> None:
    batch = Batch(Packed.of([[4, 5, 6], [7]]), Packed.of([[1, 4, 2], [1, 4, 5, 6, 2]]))
    assert batch.useful_tokens == 3 + 1 + 2 + 4


def test_held_out_batches_are_all_and_never_shuffled() -> None:
    data = examples()
    batches = held_out_batches(data, 211)
    assert sorted(name for batch in batches for name in names(batch)) == list(range(997))
    lengths = [n for batch in batches for n in batch.target.lengths.tolist()]
    assert lengths == sorted(lengths)
    assert len(held_out_batches(data, 1)) > 1  # a budget below the longest still holds it


def test_the_digest_is_of_the_data() -> None:
    data = examples(13)
    assert data.digest == examples(13).digest
    one_token = data.source.tokens.copy()
    one_token[-1] += 1
    cut = data.source.cu_seqlens.copy()
    cut[1:-1] += 1
    for source in (
        Packed(one_token, data.source.cu_seqlens, data.source.examples),
        Packed(data.source.tokens, cut, data.source.examples),
    ):
        assert Examples(source, data.target, 0).digest != data.digest


def test_settings_that_make_no_batches() -> None:
    data = examples()
    with pytest.raises(UsageError, match="give one of batch_tokens and batch_size"):
        Batches(data, seed=0)
    with pytest.raises(UsageError, match="give one of batch_tokens and batch_size"):
        Batches(data, seed=0, batch_tokens=64, batch_size=64)
    with pytest.raises(UsageError, match="at least 1, got 0"):
        Batches(data, seed=0, batch_size=0)
    with pytest.raises(UsageError, match="batch_tokens = 29 does not hold the longest pair"):
        Batches(data, seed=0, batch_tokens=29)


def test_a_held_out_example_keeps_its_number_whatever_the_batch() -> None:
    """By it a masked language model's masks are drawn, and its score must not depend on a batch."""
    data = examples()
    for budget in (1, 211):
        for batch, index in zip(
            found := held_out_batches(data, budget), found.indices, strict=True
        ):
            np.testing.assert_array_equal(batch.source.examples, index)
            np.testing.assert_array_equal(batch.target.examples, index)


def test_a_long_text_is_cut_in_blocks_that_predict_every_token_once() -> None:
    texts = ["abcdefgabcdefgabc", "ab", "abcde", "abcdef"]
    pairs = [TextPair("", (text,)) for text in texts]
    found = encode_pairs(pairs, None, LETTERS, max_tokens=5, blocks=True)
    rows = [row.tolist() for row in np.split(found.target.tokens, found.target.cu_seqlens[1:-1])]
    assert (found.dropped, len(found)) == (0, 7)
    assert max(map(len, rows)) <= 5 + 2
    assert min(map(len, rows)) >= 2
    assert rows[3] == [1, *LETTERS.encode("ab"), 2]
    whole = [row for text in texts for row in [1, *LETTERS.encode(text), 2]]
    joined: list[int] = []
    for row in rows:
        joined += row if row[0] == 1 else row[1:]
        assert row[0] == 1 or row[0] == joined[-len(row)]
    assert joined == whole
    with pytest.raises(UserError, match="of 1 text none has"):
        encode_pairs(pairs[:1], None, LETTERS, max_tokens=5)

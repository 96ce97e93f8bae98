from __future__ import annotations

import pytest

from pellucid.core.errors import UsageError
from pellucid.data.pairs import (
    Splits,
    TextPair,
    as_texts,
    hash_fraction,
    report_shared,
    split_by_hash,
)

PAIRS = [TextPair(f"word{n % 1009}", (f"answer{n}",)) for n in range(3001)]


def test_the_split_keeps_a_source_on_one_side() -> None:
    split = split_by_hash(PAIRS, valid=0.1, test=0.2)
    sides = [{pair.source for pair in side} for side in (split.train, split.valid, split.test)]
    assert sum(map(len, sides)) == 1009
    assert len(split.train) + len(split.valid) + len(split.test) == 3001
    assert [round(len(side) / 1009, 1) for side in sides] == [0.7, 0.1, 0.2]


def test_adding_pairs_moves_no_other() -> None:
    small, large = (split_by_hash(PAIRS[:n], valid=0.1, test=0.2) for n in (1501, 3001))
    assert set(small.test) < set(large.test)
    assert not set(small.valid) & (set(large.train) | set(large.test))


def test_a_larger_share_keeps_the_smaller_ones_test_set() -> None:
    assert set(split_by_hash(PAIRS, valid=0.1, test=0.2).test) == set(
        split_by_hash(PAIRS, valid=0.3, test=0.2).test
    )


def test_the_key_is_the_callers() -> None:
    pairs = [TextPair(f"q{n}", (f"a{n % 101}",)) for n in range(997)]
    split = split_by_hash(pairs, valid=0.3, key=lambda pair: pair.target)
    assert split.valid
    assert not {p.target for p in split.valid} & {p.target for p in split.train}


def test_keys_that_are_one_text_are_on_one_side_and_no_other_moves() -> None:
    spelt = [TextPair(word, ("x",)) for n in range(499) for word in (f"Word {n}", f"word {n}")]
    alone = [TextPair(f"ALONE {n}", ("x",)) for n in range(499)]
    split = split_by_hash(spelt + alone, valid=0.1, test=0.2, same=str.lower)
    sides = [{p.source.lower() for p in s} for s in (split.train, split.valid, split.test)]
    assert all(sides)
    assert sum(map(len, sides)) == 2 * 499
    plain = split_by_hash(alone + spelt[::2], valid=0.1, test=0.2)
    for side in ("train", "valid", "test"):
        assert set(getattr(plain, side)) <= set(getattr(split, side))
    back = split_by_hash((alone + spelt)[::-1], valid=0.1, test=0.2, same=str.lower)
    assert set(back.test) == set(split.test)


def test_held_out_pairs_that_are_training_pairs_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train = (TextPair("A", ("x",)), TextPair("b", ("x", "y")))
    valid = (TextPair("a", ("x",)), TextPair("a", ("other",)), TextPair("b", ("z", "y")))
    report_shared(Splits(train, valid[1:2], (TextPair("a", ("x",)), TextPair("c", ("x",)))))
    assert caplog.messages == []
    report_shared(Splits(train, valid, (valid[1], TextPair("c", ("x",)))), str.lower)
    first, second = caplog.messages
    assert first.startswith("2 of 3 validation pairs are in the training data")
    assert second.startswith("1 of 2 test pairs are in the training or validation data")


def test_the_order_is_kept_and_nothing_held_out_is_allowed() -> None:
    assert split_by_hash(PAIRS, valid=0) == Splits(tuple(PAIRS))


@pytest.mark.parametrize("valid, test", [(-0.1, 0), (0.5, 0.5), (1, 0), (float("nan"), 0)])
def test_shares_out_of_range(valid: float, test: float) -> None:
    with pytest.raises(UsageError, match="together below 1"):
        split_by_hash(PAIRS, valid=valid, test=test)


def test_the_hash_is_fixed_for_ever() -> None:
    assert [round(hash_fraction(t), 9) for t in ("", "마음", "a")] == [
        0.889415995,
        0.666454264,
        0.791374271,
    ]


def test_texts_of_a_file_keep_how_often_they_come() -> None:
    lines = ["emma", "ava", "emma", "emma"]
    pairs = Splits(tuple(TextPair(line, ()) for line in lines), (TextPair("mia", ()),) * 2)
    assert [pair.target for pair in as_texts(pairs, repeated=True).train] == lines
    assert len(as_texts(pairs, repeated=True).valid) == 2
    assert [pair.target for pair in as_texts(pairs).train] == ["emma", "ava"]
    held = Splits(pairs.train, (TextPair("ava", ()), TextPair("mia", ())))
    assert [pair.target for pair in as_texts(held, repeated=True).valid] == ["mia"]

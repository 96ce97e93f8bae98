"""Texts for a model of one text: out of pairs, out of files, into tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from pellucid.core.errors import UsageError, UserError
from pellucid.data.batches import encode_pairs
from pellucid.data.files import is_text_file, read_split
from pellucid.data.pairs import Splits, TextPair, as_texts
from pellucid.data.tokenizers import train_tokenizer


def read_texts(
    train: Path,
    valid: Sequence[Path] = (),
    test: Sequence[Path] = (),
    *,
    held_out: float,
    same: Callable[[str], str] = str,
) -> Splits:
    return as_texts(
        read_split([train], valid, test, held_out=held_out, same=same, texts=True), same
    )


def texts(side: tuple[TextPair, ...]) -> list[str]:
    assert all(pair.source == "" for pair in side)
    return [pair.target for pair in side]


def test_both_sides_of_pairs_are_texts_each_once_and_never_on_two_sides() -> None:
    pairs = Splits(
        (TextPair("a", ("b", "c")), TextPair("b", ("a",))),
        (TextPair("a", ("d",)), TextPair("e", ("c",))),
        (TextPair("d", ("f", "f")),),
    )
    found = as_texts(pairs)
    assert texts(found.train) == ["a", "b", "c"]
    assert texts(found.valid) == ["d", "e"]
    assert texts(found.test) == ["f"]


def test_a_text_file_is_split_by_hash(tmp_path: Path) -> None:
    lines = [f"text {i}" for i in range(200)]
    file = tmp_path / "texts.txt"
    file.write_text("\n".join([*lines, "", "text 7", " "]) + "\n", encoding="utf-8")
    assert is_text_file([file])
    assert not is_text_file([file, file])
    assert not is_text_file([tmp_path / "pairs.tsv"])
    found = read_texts(file, held_out=0.1)
    assert sorted(texts(found.train) + texts(found.valid)) == sorted(lines)
    assert 5 < len(found.valid) < 40
    again = read_texts(file, [file], held_out=0.1)
    assert texts(again.train) == lines
    assert again.valid == ()  # every one of them was trained on


def test_texts_that_are_one_once_normalised_are_never_on_two_sides(tmp_path: Path) -> None:
    pairs = Splits(
        (TextPair("A", ("b",)),), (TextPair("a", ("C", "c")),), (TextPair("c", ("B", "d")),)
    )
    found = as_texts(pairs, same=str.lower)
    assert [texts(side) for side in (found.train, found.valid, found.test)] == [
        ["A", "b"],
        ["C", "c"],
        ["d"],
    ]
    file = tmp_path / "texts.txt"
    lines = [f"{word} {n}" for n in range(101) for word in ("Ab", "aB", "ab")]
    file.write_text("\n".join(lines), encoding="utf-8")
    split = read_texts(file, held_out=0.2, same=str.lower)
    sides = [{text.lower() for text in texts(side)} for side in (split.train, split.valid)]
    assert all(sides)
    assert sum(map(len, sides)) == 101
    assert len(split.train) + len(split.valid) == 303


def test_held_out_texts_that_are_training_texts_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    splits = Splits(
        (TextPair("a", ("b",)),), (TextPair("b", ("c", "a")),), (TextPair("c", ("d", "b")),)
    )
    as_texts(splits)
    first, second = caplog.messages
    assert first.startswith("left out 2 of 3 validation texts: the training data has them too")
    assert second.startswith("left out 2 of 3 test texts: the training or validation data has")
    caplog.clear()
    file = tmp_path / "texts.txt"
    file.write_text("one\ntwo\nthree\n", encoding="utf-8")
    assert read_texts(file, [file], held_out=0.0).valid == ()
    assert "left out 3 of 3 validation texts" in caplog.text


def test_test_texts_that_are_all_training_texts_are_refused(tmp_path: Path) -> None:
    """Else the score would be that of the validation texts."""
    file, other = tmp_path / "texts.txt", tmp_path / "other.txt"
    file.write_text("one\ntwo\nthree\n", encoding="utf-8")
    other.write_text("four\nfive\n", encoding="utf-8")
    for test in (file, other):
        with pytest.raises(UserError, match=r"no test text is left.*give other"):
            read_texts(file, [other], [test], held_out=0.0)


def test_a_file_of_pairs_is_no_text_file(tmp_path: Path) -> None:
    texts, pairs = tmp_path / "t.txt", tmp_path / "p.tsv"
    texts.write_text("one\ntwo\n", encoding="utf-8")
    pairs.write_text("a\tx\n", encoding="utf-8")
    for valid, test in (([pairs], []), ([texts], [pairs])):
        with pytest.raises(UsageError, match=r"p.tsv: is a file of pairs.*\.txt"):
            read_texts(texts, valid, test, held_out=0.0)


def test_too_few_texts_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("one\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"too few texts \(\d+\) to hold out"):
        read_texts(file, held_out=0.05)
    file.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="is empty"):
        read_texts(file, held_out=0.05)


def test_texts_become_tokens_between_begin_and_end(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = train_tokenizer(["abc"], "char")
    with caplog.at_level(logging.WARNING):
        pairs = [TextPair("", (text,)) for text in ("ab", "abcab", "", "cz")]
        examples = encode_pairs(pairs, None, tokenizer, begin=[9], end=8, max_tokens=4)
    np.testing.assert_array_equal(examples.target.tokens, [9, 4, 5, 8, 9, 6, 3, 8])
    np.testing.assert_array_equal(examples.source.cu_seqlens, [0, 0, 0])
    assert examples.dropped == 2
    assert "left out 2 of 4 texts" in caplog.text
    assert "no token for 1 of the characters in the texts;" in caplog.text
    with pytest.raises(UserError, match="of 1 text none has 1 to 2 tokens"):
        encode_pairs([TextPair("", ("abc",))], None, tokenizer, max_tokens=2)

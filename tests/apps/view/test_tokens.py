from __future__ import annotations

import pytest
from tests.apps.view.samples import bpe

from pellucid.apps.view.tokens import Label, Vocabulary, legible, visible
from pellucid.data.tokenizers import Tokenizer, train_tokenizer


def labels(tokenizer: Tokenizer, ids: list[int], text: str = "") -> list[Label]:
    return Vocabulary("it", tokenizer, tokenizer.vocab_size, len(ids), {}).labels(ids, text)


def texts(text: str) -> list[str]:
    tokenizer = bpe()
    return [label.text for label in labels(tokenizer, tokenizer.encode(text))]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", ["a", "␣", "b"]),
        ("한", ["한₁", "한₂", "한₃"]),
        ("😀", ["😀₁", "😀₂", "😀₃", "😀₄"]),
        ("é", ["é₁", "é₂"]),
        ("\t\n", ["⇥", "↵"]),
        ("\u200d", ["U+200D₁", "U+200D₂", "U+200D₃"]),
    ],
)
def test_pieces_of_a_character_show_the_character_and_their_part(
    text: str, shown: list[str]
) -> None:
    assert texts(text) == shown


def test_a_learnt_piece_shows_its_text() -> None:
    tokenizer = train_tokenizer(["한국 한국 한국"] * 3, kind="bpe", vocab_size=290)
    assert [label.text for label in labels(tokenizer, tokenizer.encode("한국 한국"))] == [
        "한국",
        "␣한국",
    ]


def test_bytes_of_no_character_show_their_value() -> None:
    tokenizer = bpe()
    first, second, third = tokenizer.encode("한")
    assert labels(tokenizer, [first, second]) == [Label("‹ED›"), Label("‹95›")]
    # A special token in between keeps the bytes from being one character.
    found = labels(tokenizer, [first, 1, second, third, 3])
    assert found[1] == Label("<s>", "special")
    assert found[4] == Label("<unk>", "unknown")
    assert found[2].text == "‹95›"


def test_loose_bytes_of_one_piece_are_shown_together() -> None:
    tokenizer = train_tokenizer(["한하학"] * 9, kind="bpe", vocab_size=262)
    (shared, *_) = tokenizer.encode("한")
    assert labels(tokenizer, [shared])[0].text == "‹ED95›"


def test_characters() -> None:
    tokenizer = train_tokenizer(["ab 가\u0301"], kind="char")
    text = "a 가\u0301ж"
    assert labels(tokenizer, tokenizer.encode(text), text) == [
        Label("a"),
        Label("␣"),
        Label("가"),
        Label("◌\u0301"),
        Label("ж", "unknown"),
    ]
    assert labels(tokenizer, [1, 2, 3]) == [
        Label("<s>", "special"),
        Label("</s>", "special"),
        Label("<unk>", "unknown"),
    ]


def test_an_unknown_character_is_found_in_the_text_as_it_was_tokenized() -> None:
    tokenizer = train_tokenizer(["ab 가"], "char", normalise=["nfc", "lowercase", "whitespace"])
    text = "  가 Ж"
    found = labels(tokenizer, tokenizer.encode(text), text)
    assert found == [Label("가"), Label("␣"), Label("ж", "unknown")]
    # as many signs as tokens, and yet another text
    text = "가  ЖE\u0301"
    found = labels(tokenizer, tokenizer.encode(text), text)
    assert [label.text for label in found] == ["가", "␣", "ж", "é"]


def test_an_emoji_of_several_signs_keeps_them_joined() -> None:
    family = "👨\u200d👩\u200d👧"
    assert visible(family) == family


def test_what_steers_a_terminal_shows_its_number() -> None:
    assert visible("\x1b[31m\u200d a") == "U+001B[31m\u200d␣a"
    assert legible("a\x06\tb\n\ufffe\u200d") == "aU+0006\tb\nU+FFFE\u200d"


def test_without_a_tokenizer_ids_show() -> None:
    side = Vocabulary("it", None, 9, 19, {1: "<s>"})
    assert side.labels([1, 7]) == [Label("<s>", "special"), Label("7")]


def test_the_last_label_knows_what_came_before() -> None:
    tokenizer = bpe()
    side = Vocabulary("it", tokenizer, 260, 19, {})
    ids = tokenizer.encode("x한")
    assert side.last(ids).text == "한₃"
    assert side.last(ids[:-1]).text == "‹95›"

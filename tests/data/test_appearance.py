"""What keyboards, editors and web pages add to a text is read as the training texts have it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.appearance import appearance, reading_of
from pellucid.data.tokenizers import Tokenizer, train_tokenizer

WORDS = ["attention", "nasa", "it's", "fjord", "zip"]
KOREAN = ["안녕, 반가워!", "뭐해? ㅋㅋ", "TV 봐."]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("NASA", "nasa"),
        ("ＮＡＳＡ", "nasa"),
        ("\ufeffzip\r", "zip"),
        ("zip \t\u00a0\u3000", "zip"),
        ("at\u00adten\u200btion\u200e", "attention"),
        ("it\u2019s", "it's"),
        ("it\u00b4s", "it's"),
        ("z\ufe0fip", "zip"),
        ("ﬁt", "fit"),
        ("3 ж", "3 ж"),
    ],
)
@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_a_typed_word_is_read_as_the_training_words_are_written(
    typed: str, read: str, kind: str
) -> None:
    trained = train_tokenizer(WORDS, kind, 300, reading=reading_of(WORDS, True))
    loaded = Tokenizer.of_json(trained.to_json())
    assert loaded.encode(typed) == trained.encode(typed) == trained.encode(read)
    assert loaded.encode_all([typed]) == [trained.encode(read)]
    ids, starts, ends = zip(*loaded.spans(typed), strict=True)
    assert list(ids) == trained.encode(read)
    assert list(starts) == sorted(starts)
    assert max(ends) <= len(typed)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_texts_of_either_form_are_read_in_that_of_the_training_texts(form: str) -> None:
    texts = [unicodedata.normalize(form, text) for text in KOREAN]  # type: ignore[arg-type]
    reading = reading_of(texts, True)
    assert reading.form == form
    for text in KOREAN:
        for typed in ("NFC", "NFD"):
            assert reading(unicodedata.normalize(typed, text)) == unicodedata.normalize(form, text)  # type: ignore[arg-type]


def test_what_the_training_texts_have_is_never_changed() -> None:
    texts = ["a\u200db", "Ａ A a", ' “x” "y"', "ﬁ ² …", "e\u0301 é"]
    reading = reading_of(texts, True)
    assert [reading(text) for text in texts] == texts
    assert reading("\u200bＢ") == "b"


def test_a_capital_alone_or_another_script_s_full_stop_finds_its_like() -> None:
    reading = reading_of(["TV 봐。", "응！"], True)
    assert reading("tv 봐. 응!") == "TV 봐。 응！"


def test_white_space_at_the_end_of_a_text_that_goes_on_is_kept() -> None:
    assert reading_of(WORDS, False)("zip ") == "zip "


@given(st.lists(st.text(max_size=11), min_size=1, max_size=5))
def test_a_reading_changes_none_of_its_own_texts(texts: list[str]) -> None:
    reading = reading_of(texts, True)
    assert [reading(text) for text in texts] == texts


@pytest.mark.parametrize(
    "twin", ["word ", "\u200bword", "Word", "ｗｏｒｄ", "wo\u00adrd", "\ufeffword\n"]
)
def test_twins_look_the_same(twin: str) -> None:
    assert appearance(twin) == appearance("word") != appearance("words")

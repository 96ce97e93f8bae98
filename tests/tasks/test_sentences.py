"""Long texts are cut where sentences end, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.tasks.seq2seq import split_at_sentences


@pytest.mark.parametrize(
    "text, longest, pieces",
    [
        ("One two. Three.", 15, ["One two. Three."]),
        ("One two. Three.", 14, ["One two.", "Three."]),
        ('He said "no." Then, yes!  So.', 14, ['He said "no."', "Then, yes!", "So."]),
        ("今日は。明日は。", 5, ["今日は。", "明日は。"]),
        ("A. B. C. D.", 5, ["A. B.", "C. D."]),
        (" " * 11 + "A. B.", 5, ["A. B."]),
        ("今日は。  明。日。", 5, ["今日は。", "明。日。"]),
        ("no end in sight", 5, None),
        ("3.14 and 2.71. Yes.", 14, ["3.14 and 2.71.", "Yes."]),
    ],
)
def test_whole_sentences(text: str, longest: int, pieces: list[str] | None) -> None:
    assert split_at_sentences(text, len, longest) == pieces


def test_white_space_alone_is_one_empty_piece() -> None:
    assert split_at_sentences(" \n" * 7, len, 5) == [""]


@given(st.text("ab.!? ", max_size=29), st.integers(1, 13))
def test_nothing_is_lost_and_nothing_is_too_long(text: str, longest: int) -> None:
    pieces = split_at_sentences(text, len, longest)
    if pieces is not None and len(text) > longest:
        assert all(len(piece) <= longest for piece in pieces)
        assert "".join("".join(pieces).split()) == "".join(text.split())

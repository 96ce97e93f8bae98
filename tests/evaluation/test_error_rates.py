from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.evaluation.error_rates import edit_distance, error_rates

words = st.text("abc", max_size=7)


@given(words, words, words)
def test_edit_distance_is_a_distance(a: str, b: str, c: str) -> None:
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))


@given(words, st.integers(0, 7), st.sampled_from("xyz"))
def test_one_letter_more_is_one_edit(a: str, place: int, letter: str) -> None:
    assert edit_distance(a, a[:place] + letter + a[place:]) == 1


def test_a_set_is_scored_against_the_nearest_reference() -> None:
    rates = error_rates(["", "abcde"], [["ab", "abc"], ["abcde", "x"]])
    assert rates.per == 2 / 7
    assert rates.wer == 1 / 2


def test_a_missing_reference_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 outputs and 0 lists"):
        error_rates(["a"], [])


def test_the_interval_holds_the_rate_and_narrows_with_more_words() -> None:
    few = error_rates(["ab", "ax", "ab"] * 5, [["ab"]] * 15)
    many = error_rates(["ab", "ax", "ab"] * 500, [["ab"]] * 1500)
    widths = []
    for rates in (few, many):
        low, high = rates.wer_interval
        assert low < rates.wer < high
        assert rates.per_interval[0] < rates.per < rates.per_interval[1]
        widths.append(high - low)
    assert widths[1] < widths[0] / 5

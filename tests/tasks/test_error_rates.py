from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.tasks.error_rates import error_rates
from pellucid.tasks.metrics import METRICS


def edit_distance(a: str, b: str) -> int:
    """Wagner & Fischer 1974, row by row."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


@settings(deadline=None)  # the first call imports a library
@given(st.text("abʌ가😀\u0301", max_size=9), st.text("abʌ가😀\u0301", min_size=1, max_size=9))
def test_error_rates_count_the_fewest_edits_of_code_points(output: str, right: str) -> None:
    rates = error_rates([output], [[right]])
    assert rates.per == edit_distance(output, right) / len(right)
    assert rates.wer == (output != right)


def test_a_set_is_scored_against_the_nearest_reference() -> None:
    rates = error_rates(["", "abcde"], [["ab", "abc"], ["abcde", "x"]])
    assert rates.per == 2 / 7
    assert rates.wer == 1 / 2


def test_a_missing_reference_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 outputs and 0 lists"):
        error_rates(["a"], [])
    with pytest.raises(ValueError, match="output 1 has none"):
        error_rates(["a", "b"], [["a"], []])


def test_the_interval_holds_the_rate_and_narrows_with_more_words() -> None:
    few = error_rates(["ab", "ax", "ab"] * 5, [["ab"]] * 15)
    many = error_rates(["ab", "ax", "ab"] * 500, [["ab"]] * 1500)
    widths = []
    for rates in (few, many):
        assert rates.wer_interval is not None
        assert rates.per_interval is not None
        low, high = rates.wer_interval
        assert low < rates.wer < high
        assert rates.per_interval[0] < rates.per < rates.per_interval[1]
        widths.append(high - low)
    assert widths[1] < widths[0] / 5


@pytest.mark.parametrize(
    ("metric", "rate"), [("error_rates", "per"), ("letter_error_rates", "cer")]
)
def test_a_validation_draws_no_intervals_and_the_metric_names_the_rate(
    metric: str, rate: str
) -> None:
    outputs, references = ["ab", "ax"], [["ab"], ["ab"]]
    compute = METRICS[metric].compute
    whole, plain = (compute(outputs, references, drawn) for drawn in (True, False))
    assert plain.values == whole.values == {rate: 0.25, "wer": 0.5}
    assert plain.rows == {rate.upper(): "25.00%", "WER": "50.00%"}
    assert {*whole.record} == {rate, "wer", "words", f"{rate}_interval", "wer_interval"}
    assert all("95 %" in row for row in whole.rows.values())

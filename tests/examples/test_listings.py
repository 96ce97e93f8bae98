"""The articles' own listings, run next to ours."""

from __future__ import annotations

import io
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import lesson

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compared() -> dict[str, str]:
    """What examples/listings.py prints, by language."""
    texts = {}
    for language in ("en", "ko"):
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
            patch.setenv("PELLUCID_LANG", language)
            patch.chdir(ROOT)
            runpy.run_path(str(ROOT / "examples" / "listings.py"), run_name="__main__")
        texts[language] = out.getvalue()
    return texts


def test_listings_agree_but_for_the_places_on_the_corrections_page(
    compared: dict[str, str],
) -> None:
    found = re.findall(r"^Article (\d+): (\d+) of (\d+) agree", compared["en"], re.MULTILINE)
    assert found == [
        ("000", "6", "9"),
        ("001", "1", "2"),
        ("002", "16", "16"),
        ("003", "32", "35"),
        ("004", "6", "8"),
    ]


def test_corrected_listings_agree(compared: dict[str, str]) -> None:
    corrected = re.findall(r"^(yes|NO) +  (with .*?)  ", compared["en"], re.MULTILINE)
    failing = [about for agrees, about in corrected if agrees == "NO"]
    assert len(corrected) == 5
    assert failing == ["with its indentation restored", "with np.tile"]


def test_the_class_of_article_004_equals_ours_with_our_weights(compared: dict[str, str]) -> None:
    apart = re.findall(r"the class with our weights, bias=\w+ +(\S+)", compared["en"])
    assert len(apart) == 2
    assert all(float(one) < 1e-14 for one in apart)


def test_both_languages_print_the_same_comparisons(compared: dict[str, str]) -> None:
    agrees = {
        language: re.findall(rf"^({yes}|{no}) ", compared[language], re.MULTILINE)
        for language, yes, no in (("en", "yes", "NO"), ("ko", "일치", "다름"))
    }
    assert [word == "yes" for word in agrees["en"]] == [word == "일치" for word in agrees["ko"]]


def test_heads_find_the_place_that_a_task_asks_for() -> None:
    right, scores, equal = lesson.known_answers("copy", 150)
    assert right > 0.95
    assert equal == pytest.approx(0.14, abs=0.02)
    assert min(scores) > 2 * equal


def test_brackets_are_matched_by_the_order_that_is_asked_for() -> None:
    draws = lesson.np.random.default_rng(0)
    for _ in range(50):
        source, order = lesson.brackets(draws)
        opened: list[int] = []
        closed = [opened.pop() if t == 19 else opened.append(i) for i, t in enumerate(source)]
        assert [i for i in closed if i is not None] == list(order)
        assert not opened


def test_a_prediction_interval_is_wider_than_the_range() -> None:
    values = lesson.np.array([1.0, 2.0, 3.0])
    low, high = lesson.prediction_interval(values)
    assert (low, high) == pytest.approx((2 - 4.303 * (4 / 3) ** 0.5, 2 + 4.303 * (4 / 3) ** 0.5))

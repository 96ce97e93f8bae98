"""BLEU compared with a count by hand, with its signature, its interval, and its extra missing."""

from __future__ import annotations

import math
import sys

import pytest

from pellucid.core.errors import UserError
from pellucid.tasks.bleu import bleu
from pellucid.tasks.metrics import METRICS

OUTPUTS = ["A man rides a red bike .", "two dogs play in the snow", "Ein Hund"]
REFERENCES = [["A man rides a blue bike."], ["Two dogs play in snow", "dogs"], ["Ein Hund"]]


def test_bleu_is_what_a_count_by_hand_gives() -> None:
    cased, lower, _ = bleu(["the cat sat on a mat"], [["the cat sat on the mat"]], intervals=False)
    by_hand = 100 * math.prod([5 / 6, 3 / 5, 2 / 4, 1 / 3]) ** 0.25
    assert cased.value == pytest.approx(by_hand)
    assert lower.value == pytest.approx(by_hand)
    assert cased.interval is None


@pytest.mark.parametrize(
    ("outputs", "references", "tokenizer"),
    [
        (
            ["昨天我们看了电影。", "她买了三本新书。"],
            ["昨天我们看了电视。", "她买了三本旧书。"],
            "zh",
        ),
        (
            ["明日は学校に行きます。", "猫が寝ている。"],
            ["明日は学校へ行きます。", "犬が寝ている。"],
            "char",
        ),
        (["ฉันไปโรงเรียน", "เขากินข้าว"], ["ฉันไปโรงพยาบาล", "เขากินข้าวผัด"], "char"),
    ],
)
def test_words_without_blanks_between_them_count(
    outputs: list[str], references: list[str], tokenizer: str
) -> None:
    """A sentence was one word, so that good answers had a score of 0."""
    cased, *_ = bleu(outputs, [[text] for text in references], intervals=False)
    assert cased.value > 20
    assert f"tok:{tokenizer}" in cased.signature
    plain, *_ = bleu(outputs, [[text] for text in references], False, "13a")
    assert "tok:13a" in plain.signature
    assert plain.value < 1


def test_a_metric_may_name_the_tokenizer() -> None:
    outputs, references = ["我今天去学校。", "他来。"], [["我今天去学校上课。"], ["他来。"]]
    found = {
        name: METRICS[name].compute(outputs, references, False)
        for name in ("bleu", "bleu-zh", "bleu-13a", "bleu-char", "bleu-intl")
    }
    for name, measured in found.items():
        tokenizer = name.partition("-")[2] or "zh"
        assert f"|tok:{tokenizer}|" in measured.rows["BLEU"]
    assert found["bleu"].values == found["bleu-zh"].values
    assert found["bleu"].values["bleu"] > 2 * found["bleu-13a"].values["bleu"]


def test_a_few_signs_of_another_script_change_no_score() -> None:
    for text in ("The sign 水 means water.", "오늘 學校에 갔습니다.", "Это хорошо.", "123 !"):
        assert "tok:13a" in bleu([text], [[text]], intervals=False)[0].signature


def test_case_counts_in_one_and_not_in_the_other() -> None:
    cased, lower, chrf = bleu(OUTPUTS, REFERENCES)
    assert cased.value < lower.value
    assert "case:mixed" in cased.signature
    assert "case:lc" in lower.signature
    assert "tok:13a" in lower.signature
    for figure in (cased, lower, chrf):
        assert figure.interval is not None
        low, high = figure.interval
        assert low < high
        assert figure.signature in figure.written()


def test_an_interval_stays_among_what_a_score_can_be() -> None:
    few = bleu(["a b c d e f"] * 2 + ["f a x"], [["a b c d e f"]] * 2 + [["f a c d e"]])
    for figure in few:
        assert figure.interval is not None
        low, high = figure.interval
        assert 0 <= low <= figure.value <= high <= 100


def test_so_few_words_in_common_that_some_resamples_have_none_give_a_score_alone() -> None:
    """sacreBLEU cannot average resamples of the second output alone."""
    _, _, chrf = bleu(["a b c d e", "x y z"], [["a b c d e"], ["q r s"]])
    assert chrf.value > 0
    assert chrf.interval is None
    assert chrf.written() == f"{chrf.value:.2f}, {chrf.signature}"


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r"pip install 'sacrebleu>="):
        bleu(["a"], [["a"]])


def test_a_missing_reference_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 outputs and 0 lists"):
        bleu(["a"], [])
    with pytest.raises(ValueError, match="output 1 has none"):
        bleu(["a", "b"], [["a"], []])

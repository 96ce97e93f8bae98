"""Every topic in both languages: the same facts, code that exists, checks that hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pellucid.apps.teach.topics
from pellucid import ops
from pellucid.apps.teach.topic import Code, Topic, gradients_of
from pellucid.apps.teach.topics import TOPICS
from pellucid.check.op_cases import normal
from pellucid.core.language import Text

every_topic = pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS)
HANGUL = re.compile("[가-힣]")


def texts(topic: Topic) -> Iterator[Text]:
    yield from (topic.title, topic.summary)
    for part in (*topic.forward, *topic.backward, *topic.edges, *topic.checks):
        yield part.text


def test_every_topic_file_is_in_the_table() -> None:
    folder = Path(pellucid.apps.teach.topics.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(TOPICS)


@every_topic
def test_both_languages_state_the_same_numbers(topic: Topic) -> None:
    for text in texts(topic):
        numbers = [sorted(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", t)) for t in text]
        assert numbers[0] == numbers[1], text


@every_topic
def test_korean_is_korean_and_english_is_not(topic: Topic) -> None:
    for text in texts(topic):
        assert not HANGUL.search(text.en), text.en
    assert HANGUL.search(topic.summary.ko)
    assert all(HANGUL.search(step.text.ko) for step in (*topic.forward, *topic.backward))


@every_topic
def test_formulas_hold_no_words_of_a_language(topic: Topic) -> None:
    formulas = [*topic.equations, *(step.formula for step in (*topic.forward, *topic.backward))]
    words = re.compile(r"\b(?:where|else|over|with|and|or|of|the|for|if|is)\b")
    for formula in formulas:
        assert not words.search(formula), formula
        assert not HANGUL.search(formula), formula


@every_topic
def test_code_references_exist_and_show_the_source(topic: Topic) -> None:
    codes = [step.code for step in (*topic.forward, *topic.backward) if step.code]
    assert codes
    for code in codes:
        assert code.lines(), code.names
        for line in code.lines():
            path = Path(pellucid.__file__).parent / line.file
            source = path.read_text(encoding="utf-8").splitlines()[line.number - 1]
            assert source.strip() == line.text.strip()


@every_topic
def test_checks_hold_and_edges_evaluate(topic: Topic) -> None:
    assert topic.checks
    assert topic.edges
    for check in topic.checks:
        assert check.error() <= check.limit, check.text.en
    for edge in topic.edges:
        edge.value()


@every_topic
def test_related_topics_exist(topic: Topic) -> None:
    assert set(topic.related) <= set(TOPICS)


def test_a_missing_variable_is_an_error_that_names_it() -> None:
    with pytest.raises(
        LookupError, match=r"softmax_backward in ops/softmax\.py assigns no jacobian"
    ):
        Code(ops.softmax_backward, "jacobian").lines()


def test_a_wrong_backward_fails_its_check() -> None:
    def article_000(dp: np.ndarray, saved: tuple[np.ndarray]) -> np.ndarray:
        (p,) = saved
        return dp * p * (1 - p)

    check = gradients_of(ops.softmax, article_000, [normal(3, 7)])
    assert check.error() > 1000 * check.limit

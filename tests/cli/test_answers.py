"""How answers are written on a line."""

from __future__ import annotations

from pellucid.cli.answers import written
from pellucid.pipelines import Answer


def test_an_answer_is_one_field_whatever_stands_in_it() -> None:
    answers = [Answer("a\tb\nc", -1.5, True), Answer("d", -2.0, True)]
    assert written(answers, scores=True) == "-1.500\ta b c\t-2.000\td"
    assert written(answers, scores=False) == "a b c\td"

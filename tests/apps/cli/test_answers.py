"""Answers to texts: how they are written, and that a model is prepared for decoding once."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.apps.view.samples import bert, gpt, speaking

from pellucid.apps.cli import generate
from pellucid.apps.cli.answers import converse, described, written
from pellucid.apps.cli.generate import _fill_at_prompt
from pellucid.generation import SampleConfig
from pellucid.tasks import Answer, GenerationTask, MaskedLMTask, generation

TEXTS = ["가나", "a b", "사랑이"]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every model that is compiled for decoding."""
    models: list[Any] = []
    plain = generation.compile_model

    def counted(model: Any, *arithmetic: Any) -> Any:
        models.append(model)
        return plain(model, *arithmetic)

    monkeypatch.setattr(generation, "compile_model", counted)
    return models


def type_in(monkeypatch: pytest.MonkeyPatch, texts: Sequence[str | UnicodeError]) -> None:
    waiting = [*texts]

    def ask(_: str) -> str:
        if not waiting:
            raise EOFError
        typed = waiting.pop(0)
        if isinstance(typed, UnicodeError):
            raise typed
        return typed

    monkeypatch.setattr("builtins.input", ask)


@pytest.mark.parametrize(
    "trained",
    [
        speaking(),
        replace(speaking(), sampling=SampleConfig(seed=3, max_length=7)),
        speaking(beam=1),
        gpt(),
    ],
    ids=["beam", "drawn", "greedy", "GPT"],
)
def test_a_conversation_makes_the_model_ready_once(
    trained: GenerationTask,
    compiled: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = [trained.generate_answers([text], [i])[0][0].text for i, text in enumerate(TEXTS)]
    compiled.clear()
    type_in(monkeypatch, TEXTS)
    assert converse(trained) == 0
    assert len(compiled) == 1
    assert capsys.readouterr().out.splitlines()[1:-1] == expected


def test_a_long_text_is_answered_in_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = speaking()
    long = "가. " * trained.max_source_length
    assert len(trained.passage(long).pieces) > 1
    type_in(monkeypatch, [long.strip(), "가"])
    assert converse(trained) == 0
    assert capsys.readouterr().out.splitlines()[1:-1] == trained.generate([long.strip(), "가"])


def test_a_conversation_prints_all_samples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = speaking().configured(samples=2, seed=1)
    type_in(monkeypatch, ["가"])
    assert converse(trained) == 0
    _, printed, _ = capsys.readouterr().out.splitlines()
    assert printed.split("\t") == [answer.text for answer in trained.generate_answers(["가"])[0]]


def test_a_conversation_without_a_question_makes_nothing_ready(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, [""])
    converse(speaking())
    assert not compiled


@pytest.mark.parametrize(
    "typed",
    [UnicodeDecodeError("utf-8", b"\xb0\xa1", 0, 1, "invalid start byte"), "\udcb0\udca1"],
    ids=["strict", "surrogates"],
)
@pytest.mark.parametrize("half", [gpt, bert])
def test_text_that_is_not_utf8_is_reported_and_the_prompt_stays(
    half: Callable[[], Any],
    typed: str | UnicodeError,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trained = half()
    type_in(monkeypatch, [typed, "가[MASK]"])
    fills = isinstance(trained, MaskedLMTask)
    assert (_fill_at_prompt(trained, best=1) if fills else converse(trained)) == 0
    _, refused, *answered = capsys.readouterr().out.splitlines()
    assert refused == "That is not UTF-8; type it again."
    assert len(answered) == 2  # an answer, and the end


def test_lines_that_come_one_by_one_compile_the_model_once(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "WINDOW", 1)
    trained = speaking()
    stream = io.BytesIO("\n".join(TEXTS).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
    assert generate._generate(trained)() == 0
    assert len(compiled) == 1
    reported = capsys.readouterr().out.splitlines()
    assert reported == trained.generate(TEXTS)


@pytest.mark.parametrize("window", [1, 2, 512])
def test_strict_ends_at_the_first_line_that_cannot_be_answered(
    window: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "WINDOW", window)
    first, second = TEXTS[:2]
    given = [first.encode(), b"\xff", second.encode(), b"\xff"]
    expected = speaking().generate([first, second])
    for strict, answered in (
        (False, [expected[0], "", expected[1], ""]),
        (True, [expected[0], ""]),
    ):
        stream = io.BytesIO(b"\n".join(given))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        assert generate._generate(speaking())(reading=generate.Reading(strict=strict)) == 1
        assert capsys.readouterr().out.splitlines() == answered


def test_an_answer_with_tabs_or_line_breaks_is_one_field() -> None:
    answers = [Answer("a\tb\nc", -1.5, True), Answer("d", -2.0, True)]
    assert written(answers, scores=True) == "-1.500\ta b c\t-2.000\td"
    assert written(answers, scores=False) == "a b c\td"


def test_texts_are_described_together_as_alone() -> None:
    trained = speaking()
    texts = ["가나", "", "a b"]
    answers = trained.generate_answers(texts, best=2)
    found = described(trained, texts, answers)
    assert found[1]["source_tokens"] == []
    assert [(a["text"], a["token_log_p"], a["alignment"]) for a in found[1]["answers"]] == [
        ("", [], [])
    ]
    for text, some, record in zip(texts, answers, found, strict=True):
        (alone,) = described(trained, [text], [some])
        assert [a["alignment"] for a in alone["answers"]] == [
            a["alignment"] for a in record["answers"]
        ]
        for answer, each in zip(some, record["answers"], strict=True):
            assert each["text"] == answer.text
            assert sum(each["token_log_p"]) == pytest.approx(answer.log_p, abs=1e-3)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_conversation_tells_of_an_answer_that_does_not_end(
    beam: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trained = speaking(beam=beam)
    trained.model.output.bias.data[2] -= 999
    type_in(monkeypatch, ["가"])
    assert converse(trained) == 0
    (message,) = caplog.messages
    assert message.startswith("answers cut at the longest length, before their end: 1;")


def test_a_run_tells_once_of_answers_that_do_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trained = speaking()
    trained.model.output.bias.data[2] -= 999
    monkeypatch.setattr(generate, "WINDOW", 2)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("가\n나\n다\n라\n마".encode())))
    assert generate._generate(trained)() == 0
    (message,) = caplog.messages
    assert message.startswith("answers cut at the longest length, before their end: 5;")

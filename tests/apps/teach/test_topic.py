"""Every topic in both languages: the same facts, code that exists, checks that hold."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

import pellucid
from pellucid.apps.teach import course_file, topic
from pellucid.apps.teach.checks import CHECKS
from pellucid.apps.teach.pictures import PICTURES
from pellucid.apps.teach.topic import TOPIC_LINK, TOPICS, Block, measured, quoted, read, value
from pellucid.check import OpCase, op_cases

every_topic = pytest.mark.parametrize("name", TOPICS)
HANGUL = re.compile("[가-힣]")
PROSE = ("title", "section", "text", "check", "gradients")


def blocks(name: str, *kinds: str) -> list[Block]:
    return [block for block in read(name, "en") if block.kind in kinds]


def test_every_topic_has_a_file_for_each_language() -> None:
    names = {path.name for path in (files("pellucid.apps.teach") / "topics").iterdir()}
    assert names == {f"{name}{end}" for name in TOPICS for end in (".md", ".ko.md")}


@every_topic
def test_both_languages_have_the_same_blocks_formulas_code_and_numbers(name: str) -> None:
    for english, korean in zip(read(name, "en"), read(name, "ko"), strict=True):
        assert english._replace(text="") == korean._replace(text="")
        if english.kind in PROSE:
            numbers, theirs = (
                sorted(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", each.text))
                for each in (english, korean)
            )
            assert numbers == theirs, korean.text
        else:
            assert english.text == korean.text


@every_topic
def test_korean_is_korean_and_english_is_not(name: str) -> None:
    assert not any(HANGUL.search(block.text) for block in read(name, "en"))
    for block in read(name, "ko"):
        if block.kind in ("section", "text") and TOPIC_LINK.sub("", block.text).strip(", "):
            assert HANGUL.search(block.text), block.text


@every_topic
def test_a_topic_begins_with_its_title_and_what_it_is_about(name: str) -> None:
    assert [block.kind for block in read(name, "en")[:2]] == ["title", "text"]
    assert len(blocks(name, "title")) == 1


@every_topic
def test_formulas_hold_no_words_of_a_language(name: str) -> None:
    words = re.compile(r"\b(?:where|else|over|with|and|or|of|the|for|if|is)\b")
    for block in blocks(name, "formula", "step"):
        assert not words.search(block.text), block.text


@every_topic
def test_quoted_code_exists_and_is_the_source(name: str) -> None:
    assert blocks(name, "code")
    for block in blocks(name, "code"):
        assert quoted(block.of), block.of
        for line in quoted(block.of):
            plain = line.file == "transformer.py"
            path = course_file(line.file) if plain else Path(pellucid.__file__).parent / line.file
            source = path.read_text(encoding="utf-8").splitlines()[line.number - 1]
            assert source.strip() == line.text.strip()


def test_the_plain_lines_of_transformer_py_come_before_those_of_the_library() -> None:
    lacking = []
    for name in TOPICS:
        files = [line.file for block in blocks(name, "code") for line in quoted(block.of)]
        plain = [file == "transformer.py" for file in files]
        assert plain == sorted(plain, reverse=True), name
        lacking += [] if plain[0] else [name]
    assert lacking == ["relu", "dropout"]  # which that file does not have


def test_a_plain_function_is_quoted_as_it_is() -> None:
    lines = [line.text for line in quoted("transformer.attention")]
    assert lines[0].startswith("def attention(q, k, v, masked):")
    assert "    w, softmax_backward = softmax(" in "\n".join(lines)
    assert lines[-1] == "    return z, backward"
    with pytest.raises(ValueError, match="not enough values"):
        quoted("transformer.nothing")


def test_the_step_that_splits_into_heads_quotes_the_reshape() -> None:
    code = {block.step: block.of for block in blocks("multi_head", "code")[:3]}
    projection, split = ([line.text for line in quoted(code[step])] for step in (1, 2))
    assert [text for text in projection if "ops.linear" in text] == projection
    assert [text for text in split if ".reshape(" in text] == split


@every_topic
def test_checks_hold_and_examples_evaluate(name: str) -> None:
    assert blocks(name, "check", "gradients")
    assert blocks(name, "example")
    for block in blocks(name, "check", "gradients"):
        error, limit = measured(block.kind, block.of)
        assert error <= limit, block.text
    for block in blocks(name, "example"):
        value(block.text)


@every_topic
def test_links_and_pictures_exist(name: str) -> None:
    linked = {link[2] for block in read(name, "en") for link in TOPIC_LINK.finditer(block.text)}
    assert linked <= set(TOPICS)
    assert {block.of for block in blocks(name, "picture")} <= set(PICTURES)


def test_every_check_is_used_once() -> None:
    used = [block.of for name in TOPICS for block in blocks(name, "check")]
    assert sorted(used) == sorted(CHECKS)


def test_steps_are_numbered_within_their_section() -> None:
    numbered = [(block.kind, block.step) for block in read("softmax", "en") if block.step]
    second = [("step", 2), ("text", 2), ("code", 2)]
    forward = [("step", 1), ("text", 1), ("code", 1), *second]
    backward = [("step", 1), ("text", 1), *second]
    assert numbered == forward + backward


@pytest.mark.parametrize(
    "chunk",
    [
        "- a list", "{cheque: x} y", "### words", "```python\nx\n```", "text\n{code: ops.gelu y}",
        "{check: a} text\n{check: b} text", "    >>> x\n    y", "## Section\ntext",
    ],
)  # fmt: skip
def test_a_block_of_another_shape_is_an_error_that_shows_it(
    chunk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "new.md").write_text(f"# New\n\nText.\n\n{chunk}\n", encoding="utf-8")
    monkeypatch.setattr(topic, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match=r"topics/new\.md: .* is none of title, section, step"):
        read("new", "en")


def test_a_missing_variable_is_an_error_that_names_it() -> None:
    with pytest.raises(
        LookupError, match=r"softmax_backward in ops/softmax\.py assigns no jacobian"
    ):
        quoted("ops.softmax_backward jacobian")


def test_a_missing_row_of_check_is_an_error_that_names_it() -> None:
    with pytest.raises(LookupError, match="pellucid check has no row softmix"):
        measured("gradients", "softmax softmix")


def test_a_wrong_backward_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    class Article000(OpCase):
        def forward(self, *inputs):  # type: ignore[no-untyped-def]
            p, _ = super().forward(*inputs)
            return p, lambda dp: dp * p * (1 - p)

    (row,) = [case for case in op_cases() if case.name == "softmax"]
    wrong = Article000(row.op, row.note, row.arrays, row.fixed)
    monkeypatch.setattr(topic, "cases", lambda: [wrong])
    error, limit = measured.__wrapped__("gradients", "softmax")
    assert error > 1000 * limit

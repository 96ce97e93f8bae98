"""The Korean examples are the English ones: the same code, with Korean comments and texts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.test_korean_docs import lost_and_more

EXAMPLES = Path(__file__).parents[2] / "examples"
LESSONS = sorted(EXAMPLES.glob("article_*.ko.py"))
KOREAN = [*LESSONS, EXAMPLES / "ladder.ko.py", EXAMPLES / "transformer.ko.py"]
HANGUL = re.compile("[가-힣]")


def twin(path: Path) -> Path:
    return path.with_name(path.name.replace(".ko.py", ".py"))


def otherwise(english: ast.AST, korean: ast.AST) -> str:
    """Return the first thing that the Korean code does otherwise, or nothing.

    A text may be another if it has Hangul in it, and f-strings may have their values in another
    order.
    """
    told = f"{ast.unparse(english)}  is  {ast.unparse(korean)}"
    if type(english) is not type(korean):
        return told
    if isinstance(english, ast.JoinedStr):
        ours, theirs = (
            sorted(
                ast.dump(part) for part in ast.walk(tree) if isinstance(part, ast.FormattedValue)
            )
            for tree in (korean, english)
        )
        return "" if ours == theirs else told
    if isinstance(english, ast.Constant):
        assert isinstance(korean, ast.Constant)
        same = english.value == korean.value or (english.value, korean.value) == ("en", "ko")
        ours = set(re.findall(r"\{.*?\}", str(korean.value)))
        translated = isinstance(korean.value, str) and HANGUL.search(korean.value)
        places = ours == set(re.findall(r"\{.*?\}", str(english.value)))
        return "" if same or (translated and places) else told
    for ours, theirs in zip(
        ast.iter_child_nodes(korean), ast.iter_child_nodes(english), strict=False
    ):
        if found := otherwise(theirs, ours):
            return found
    own, their = (len(list(ast.iter_child_nodes(node))) for node in (korean, english))
    fields = {
        name: value
        for name, value in ast.iter_fields(english)
        if isinstance(value, str | int | float | bool | None)
    }
    changed = [name for name, value in fields.items() if getattr(korean, name) != value]
    return told if own != their or changed else ""


def code_of(path: Path) -> ast.Module:
    """Return a script's code; what the Korean one says to Lesson of its language is left out."""
    return ast.parse(path.read_text(encoding="utf-8").replace('(__doc__, "ko")', "(__doc__)"))


def cells(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^# %% \[markdown\]\n((?:#.*\n?)+)", text, re.MULTILINE)


@pytest.mark.parametrize("path", KOREAN, ids=lambda path: path.stem)
def test_the_code_is_the_same(path: Path) -> None:
    assert otherwise(code_of(twin(path)), code_of(path)) == ""
    assert path not in LESSONS or 'Lesson(__doc__, "ko")' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_texts_have_the_same_headings_code_and_numbers(path: Path) -> None:
    english, ours = cells(twin(path)), cells(path)
    assert len(english) == len(ours)
    for theirs, text in zip(english, ours, strict=True):
        assert re.findall(r"^# #+ ", theirs, re.MULTILINE) == re.findall(
            r"^# #+ ", text, re.MULTILINE
        )
        code = [re.findall("`([^`]+)`", each.replace("\n# ", " ")) for each in (theirs, text)]
        assert [c for c in code[0] if c not in code[1]] == []
        assert lost_and_more(theirs, text) == ([], [])
        assert HANGUL.search(text)


@pytest.mark.parametrize(
    ("english", "korean", "same"),
    [
        ("print('a b', x)", "print('가 나', x)", True),
        ("print('a b', x)", "print('가 나', y)", False),
        ("print('a b')", "print('c d')", False),
        ("print(f'{a:.2f} of {b}')", "print(f'{b} 중 {a:.2f}')", True),
        ("print(f'{a:.2f} of {b}')", "print(f'{b} 중 {a:.1f}')", False),
        ("'{x} is'.format(x=1)", "'값은'.format(x=1)", False),
        ("x = 1 + 2", "x = 1 - 2", False),
        ("f(1)", "f(1, 2)", False),
    ],
)
def test_other_code_is_seen(english: str, korean: str, same: bool) -> None:
    assert (otherwise(ast.parse(english), ast.parse(korean)) == "") is same

"""The user's language, from `--lang`, PELLUCID_LANG or the locale, and translation.

Texts are written in English where they are used; `korean.toml` has the Korean of each.
"""

import functools
import re
import sys
import textwrap
from collections.abc import Mapping
from contextvars import ContextVar
from itertools import takewhile
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

from pellucid.core.errors import UsageError
from pellucid.system.files import read_toml
from pellucid.system.language import Language, chosen_language

LANGUAGES: tuple[Language, ...] = ("en", "ko")
FILLER = "\x01"
"""Inserted after a character that is two columns wide while text is wrapped by characters."""

SETTING, OPTIONS = re.compile(r"`([a-z_.]+)`"), {"start": "from"}
"""SETTING: a setting in a message of the library. OPTIONS: settings whose option has another
name."""
PLACE: ContextVar[str] = ContextVar("PLACE", default="")
"""The text that warnings are about, as they begin with it: "line 3: "."""
HOLE, NEAREST = re.escape("{}"), r"((?: \(did you mean .*?\?\))?)"
"""Regular expressions of a placeholder in an error's template, and of a "did you mean" hint."""


def take(arguments: list[str], option: str) -> str | None:
    """Remove an option that all commands have.

    Return its value, or "" without a value. Returns None if it is not given. Everything after a
    bare -- is text.

    >>> typed = ["train", "--lang=ko", "--", "--lang"]
    >>> take(typed, "--lang"), take(typed, "--lang"), typed
    ('ko', None, ['train', '--', '--lang'])
    """
    for i, word in enumerate(takewhile("--".__ne__, arguments)):
        name, joined, value = word.partition("=")
        if name == option:
            after = i + 1 if joined else i + 2
            value = value if joined else "".join(arguments[i + 1 : after])
            del arguments[i:after]
            return value
    return None


def take_language(arguments: list[str]) -> Language | None:
    """Remove --lang and return its value; for `view`, which has its own --lang, None.

    Raises `UsageError` for another language than those in `LANGUAGES`.

    >>> take_language(["train", "--lang", "ko"]), take_language(["view", "--lang", "ko"])
    ('ko', None)
    """
    value = None if arguments[:1] == ["view"] else take(arguments, "--lang")
    if value is None or value in LANGUAGES:
        return value
    raise UsageError(f"--lang needs a language: {' or '.join(LANGUAGES)}; got {value!r}")


def tr(english: str) -> str:
    """Translate a text into the user's language.

    English if the output cannot encode Hangul.
    """
    return english if printed_language() == "en" else korean().get(english, english)


def printed_language() -> Language:
    """Return the chosen language, or English if the output cannot encode Hangul."""
    return chosen_language() if encodable("한글", sys.stdout.encoding or "utf-8", "") else "en"


def encodable(text: str, encoding: str, plain: str) -> str:
    """Return the text, or `plain` if the encoding lacks one of its characters.

    An encoding error would end training.
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return plain
    return text


def translated(error: str) -> str:
    """Translate an error's message for the command line, into the user's language.

    A setting in backticks becomes an option.
    """
    error = SETTING.sub(lambda found: as_option(found[1]), error)
    return error if printed_language() == "en" else in_korean(error)


def in_korean(error: str) -> str:
    """Translate an error's message into Korean; without translation it stays English.

    Values that the program filled in are translated too, and clause by clause; names in front of a
    colon are not, because a folder may be called `words`.
    """
    where, colon, rest = error.partition(": ")
    for pattern, text in _errors():
        for before, message in (("", error), (where + colon, rest)):
            if found := pattern.fullmatch(message):
                name = where if " " not in where else None
                parts = (part if part == name else in_korean(part) for part in found.groups())
                near = (part.replace("did you mean ", "") for part in parts)
                return _line(before) + text.format(*near)
    for between in ("; ", ": ", "] "):
        first, between, rest = error.partition(between)
        if rest and (translation := in_korean(rest)) != rest:
            return f"{in_korean(first)}{between}{translation}"
    return _line(error)


def as_option(setting: str) -> str:
    """Return the option of a setting.

    >>> as_option("data.held_out"), as_option("start")
    ('--data.held-out', '--from')
    """
    return f"--{OPTIONS.get(setting, setting).replace('_', '-')}"


def _line(where: str) -> str:
    """Translate ", line 3" after a place."""
    return re.sub(r", line (\d+)(?=: |$)", r", \1행", where)


def warn(message: str) -> None:
    """Print a message on standard error in the user's language."""
    print(f"pellucid: {translated(PLACE.get() + message)}", file=sys.stderr)


@functools.cache
def korean() -> Mapping[str, str]:
    """Return the Korean of all texts but errors, by the English text."""
    return {english: text for english, text in _catalogue().items() if isinstance(text, str)}


@functools.cache
def _errors() -> list[tuple[re.Pattern[str], str]]:
    """Return (regular expression of an English error, its Korean), longest text first.

    {} matches any text; two in a row match a text and a "did you mean" hint, or nothing.
    """
    templates: Mapping[str, str] = _catalogue()["errors"]
    found = []
    for english in sorted(templates, key=lambda template: -len(template.replace("{}", ""))):
        pattern = re.escape(english).replace(HOLE + HOLE, HOLE + NEAREST).replace(HOLE, "(.*?)")
        found.append((re.compile(pattern, re.DOTALL), templates[english]))
    return found


def _catalogue() -> dict[str, Any]:
    """Read korean.toml."""
    return read_toml(Path(__file__).with_name("korean.toml"))


def wrapped(text: str, width: int, first: str = "", later: str = "") -> str:
    """Wrap a paragraph between words at a width in columns; newlines become spaces.

    first, later: indents of the first line and of later lines, of narrow characters. A Hangul
    syllable is two columns wide. A word longer than a line is cut, and if it is Hangul its line may
    be one column too wide.

    >>> print(wrapped("멀티 헤드 어텐션", 10, later="  "))
    멀티 헤드
      어텐션
    """
    filled = "".join(c + FILLER if east_asian_width(c) in "WF" else c for c in text)
    lines = textwrap.fill(
        filled, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )
    return lines.replace(FILLER, "")

"""The user's language, from `--lang`, PELLUCID_LANG or the locale, and translation into it.

Texts are written in English where they are used; `korean.toml` has the Korean of each.
"""

import functools
import re
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from itertools import takewhile
from typing import Any
from unicodedata import east_asian_width

from pellucid.core.errors import UsageError
from pellucid.system.language import Language, chosen_language

LANGUAGES: tuple[Language, ...] = ("en", "ko")
FILLER = "\x01"
"""Follows a character of two columns while a text is wrapped by its number of characters."""

SETTING, OPTIONS = re.compile(r"`([a-z_.]+)`"), {"start": "from"}
"""A setting as the library names it in a message, and options that have another name."""
HOLE, NEAREST = re.escape("{}"), r"((?: \(did you mean .*?\?\))?)"
"""In an error's template: a placeholder, and the place of a "did you mean" hint."""


def take(arguments: list[str], option: str) -> str | None:
    """Remove an option of every command; return its value, "" where it has none.

    After a bare -- it is text.

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
    """Remove --lang; return its value. Behind `view` it is the page's language.

    >>> take_language(["train", "--lang", "ko"]), take_language(["view", "--lang", "ko"])
    ('ko', None)
    """
    value = None if arguments[:1] == ["view"] else take(arguments, "--lang")
    for known in LANGUAGES:
        if value == known:
            return known
    if value is None:
        return None
    raise UsageError(f"--lang needs a language: {' or '.join(LANGUAGES)}; got {value!r}")


def tr(english: str) -> str:
    """Return a text in the user's language; in English where the output cannot write Hangul."""
    return english if printed_language() == "en" else korean().get(english, english)


def printed_language() -> Language:
    """Return the language asked for, or English where the output cannot write Hangul."""
    return chosen_language() if encodable("한글", sys.stdout.encoding or "utf-8", "") else "en"


def encodable(text: str, encoding: str, plain: str) -> str:
    """Return the text, or the plain one if the encoding lacks it: an error would end training."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return plain
    return text


def translated(error: str) -> str:
    """Return an error's message as the command line prints it, in the user's language.

    A setting between backticks becomes the option. A message without Korean stays English.

    What the program put in is translated likewise, clause by clause, and what follows a name, but
    not that name: a folder may be called `words`.
    """
    error = SETTING.sub(lambda found: as_option(found[1]), error)
    if printed_language() == "en":
        return error
    where, colon, rest = error.partition(": ")
    for pattern, text in _errors():
        for before, message in (("", error), (where + colon, rest)):
            if found := pattern.fullmatch(message):
                name = where if " " not in where else None
                parts = (part if part == name else translated(part) for part in found.groups())
                near = (part.replace("did you mean ", "") for part in parts)
                return _line(before) + text.format(*near)
    for between in ("; ", ": ", "] "):
        first, between, rest = error.partition(between)
        if rest and (in_korean := translated(rest)) != rest:
            return f"{translated(first)}{between}{in_korean}"
    return _line(error)


def as_option(setting: str) -> str:
    """Return how a setting is typed.

    >>> as_option("data.held_out"), as_option("start")
    ('--data.held-out', '--from')
    """
    return f"--{OPTIONS.get(setting, setting).replace('_', '-')}"


def _line(where: str) -> str:
    return re.sub(r", line (\d+)(: )?$", r", \1행\2", where)


def warn(message: str) -> None:
    """Print a message on standard error, in the user's language."""
    print(f"pellucid: {translated(message)}", file=sys.stderr)


@functools.cache
def korean() -> Mapping[str, str]:
    """Return the Korean of every text but the errors'."""
    return {english: text for english, text in _catalogue().items() if isinstance(text, str)}


@functools.cache
def _errors() -> list[tuple[re.Pattern[str], str]]:
    """Return the Korean of errors, by what matches the English; those with most text first.

    Each {} is some text; one right after another is the nearest name, or nothing.
    """
    templates: Mapping[str, str] = _catalogue()["errors"]
    found = []
    for english in sorted(templates, key=lambda template: -len(template.replace("{}", ""))):
        pattern = re.escape(english).replace(HOLE + HOLE, HOLE + NEAREST).replace(HOLE, "(.*?)")
        found.append((re.compile(pattern, re.DOTALL), templates[english]))
    return found


def _catalogue() -> dict[str, Any]:
    text = files("pellucid.apps.cli").joinpath("korean.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def wrapped(text: str, width: int, first: str = "", later: str = "") -> str:
    """Wrap a text between words at a width in columns; indent the first line and the later ones.

    >>> print(wrapped("멀티 헤드 어텐션", 10, later="  "))
    멀티 헤드
      어텐션
    """
    filled = "".join(c + FILLER if east_asian_width(c) in "WF" else c for c in text)
    lines = textwrap.fill(
        filled, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )
    return lines.replace(FILLER, "")

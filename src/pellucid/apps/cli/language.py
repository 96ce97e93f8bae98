"""What the command line prints in the user's language: `--lang`, PELLUCID_LANG or the locale.

Texts are written in English where they are used; `korean.toml` has the Korean of each.
"""

from __future__ import annotations

import functools
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.resources import files
from unicodedata import east_asian_width

from pellucid.core.errors import UsageError
from pellucid.core.language import Language, language_of

LANGUAGES: tuple[Language, ...] = ("en", "ko")
FILLER = "\x01"
"""Follows a character of two columns while a text is wrapped by its number of characters."""

_asked: ContextVar[Language | None] = ContextVar("asked", default=None)


def chosen_language() -> Language:
    """Return the language asked for: by `pellucid --lang`, else by the environment."""
    return _asked.get() or language_of()


@contextmanager
def speaking(asked: Language | None) -> Iterator[None]:
    """Speak a language, whatever the environment says; None: what it says."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def take_language(arguments: list[str]) -> Language | None:
    """Remove --lang in front of the command; return its value.

    >>> typed = ["--lang", "ko", "train", "--lang=en"]
    >>> take_language(typed), typed
    ('ko', ['train', '--lang=en'])
    """
    name, joined, value = arguments[0].partition("=") if arguments else ("", "", "")
    if name != "--lang":
        return None
    if not joined:
        value = "".join(arguments[1:2])
    for known in LANGUAGES:
        if value == known:
            del arguments[: 1 if joined else 2]
            return known
    raise UsageError(f"--lang needs a language: {' or '.join(LANGUAGES)}; got {value!r}")


def tr(english: str) -> str:
    """Return a text in the user's language; in English where the output cannot write Hangul."""
    return english if printed_language() == "en" else korean().get(english, english)


def printed_language() -> Language:
    """Return the language asked for, or English where the output cannot write Hangul."""
    if chosen_language() == "ko":
        try:
            "한글".encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:
            return "en"
    return chosen_language()


@functools.cache
def korean() -> Mapping[str, str]:
    """Return the Korean of every text."""
    text = files("pellucid.apps.cli").joinpath("korean.toml").read_text(encoding="utf-8")
    catalogue: dict[str, str] = tomllib.loads(text)
    return catalogue


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

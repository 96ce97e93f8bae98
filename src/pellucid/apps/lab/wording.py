"""The language of a report: texts are written in English where they are used.

`templates/korean.toml` has the Korean of each.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import Any

from pellucid.core.language import Language

_language: ContextVar[Language] = ContextVar("language", default="en")


@contextmanager
def written_in(language: Language) -> Iterator[None]:
    """Write reports in a language."""
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)


def language() -> Language:
    """Return the language that reports are written in."""
    return _language.get()


def tr(english: str, /, **values: Any) -> str:
    """Return a text in the report's language, with values filled in.

    >>> with written_in("ko"):
    ...     tr("{n} of {all} seeds", n=6, all=7), tr("no such text")
    ('시드 7개 중 6개', 'no such text')
    """
    text = korean().get(english, english) if language() == "ko" else english
    return text.format(**values) if values else text


@cache
def _texts(name: str) -> Mapping[str, Any]:
    return tomllib.loads((files(__package__) / "templates" / name).read_text("utf-8"))


def korean() -> Mapping[str, Any]:
    """Return the Korean of every text, by the English."""
    return _texts("korean.toml")


def captions() -> Mapping[str, str]:
    """Return the prose of the report's pictures and tables, by name."""
    return korean()["captions"] if language() == "ko" else _texts("captions.toml")

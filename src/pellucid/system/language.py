"""The languages of Pellucid's output, English and Korean, and which of them to use."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

Language = Literal["en", "ko"]

_asked: ContextVar[Language | None] = ContextVar("asked", default=None)


class Text(NamedTuple):
    """A text in both languages."""

    en: str
    ko: str

    def to(self, language: Language) -> str:
        """Return the text in one language."""
        return self.ko if language == "ko" else self.en


def plural(number: float, noun: str) -> str:
    """Return a noun as it follows a number: with an s at its end unless the number is 1.

    >>> plural(1, "step"), plural(0, "step")
    ('step', 'steps')
    """
    return noun if number == 1 else f"{noun}s"


def language_of(environment: Mapping[str, str] = os.environ) -> Language:
    """Return the language set by PELLUCID_LANG, or else by the locale: Korean or English.

    The locale is the first of LC_ALL, LC_MESSAGES and LANG that is set and not empty. Any other
    language than Korean, and no setting, means English.

    >>> language_of({"LANG": "ko_KR.UTF-8"}), language_of({"LC_ALL": "C", "LANG": "ko_KR.UTF-8"})
    ('ko', 'en')
    >>> language_of({"PELLUCID_LANG": "en", "LC_ALL": "ko_KR.UTF-8"})
    'en'
    """
    for name in ("PELLUCID_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if environment.get(name):
            return "ko" if environment[name].lower().startswith("ko") else "en"
    return "en"


def chosen_language() -> Language:
    """Return the language to use: that of `speaking`, or else of the environment."""
    return _asked.get() or language_of()


@contextmanager
def speaking(asked: Language | None) -> Iterator[None]:
    """Use a language inside this block; None: the language of the environment."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)

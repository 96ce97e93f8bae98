"""Normalise texts that differ only in how they were typed or saved to one text.

Keyboards, editors, phones and web pages add invisible characters, and write one sign in many ways:
zero-width characters, soft hyphens, byte order marks, full width, typographic quotes, decomposed
letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, Literal
from unicodedata import is_normalized

INVISIBLE = (
    "\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that are not visible, as a regular expression's character class: controls, joiners,
directions, fillers, variation selectors, and the stroke that lengthens an Arabic word."""
WHITE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's white space, as a regular expression's character class. Python's `str.isspace` has four
more control characters."""
ALIKE = (
    " \t\n\v\f\r\x85\u2028\u2029\u1680",
    "'\u2018\u2019\u201a\u201b\u2032\u02bc\u02b9\u0060\u00b4",
    '"\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb',
    "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
    ".\u3002\u06d4",
    ",\u3001\u060c",
    "?\u061f",
    ";\u061b",
    "/\u2044\u2215",
    "~\u301c\u223c",
    "\u00b7\u30fb\u2022\u2027\u2219",
)
"""Groups of characters with the same use; all become the first of their group."""
FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
"""Unicode normalisation forms that a text may have."""
LONGEST = 18
"""The most characters that NFKC makes of one, as for the ligature U+FDFA."""
LAST = 0x20000
"""Characters from here on are not looked at: ideographs, tags and private ones."""

_SHOWN = str.maketrans({other: signs[0] for signs in ALIKE for other in signs[1:]})
_UNSEEN = re.compile(f"[{INVISIBLE}]")
_WORDS = re.compile(f"[^{WHITE}]+")
_ENDS = re.compile(f"^[{WHITE}]+|[{WHITE}]+$")


def appearance(text: str) -> str:
    """Normalise a text, so that usual ways to type the same text give the same result.

    Invisible characters are removed, letters composed and case-folded; width, digits and the signs
    of `ALIKE`, such as quotes and dashes, are unified. Runs of white space become one space, with
    none at the edges. Letters of different scripts stay different, even if they look the same.

    >>> appearance("\\ufeff Caf\\u0065\\u0301\\u00a0 \u201cＮＡＳＡ\u201d ")
    'café "nasa"'
    """
    return " ".join(_plain(_UNSEEN.sub("", text)).split())


def one_spaced(text: str) -> str:
    """Replace each run of white space by one space; remove it at the edges."""
    return " ".join(_WORDS.findall(text))


def _stripped(text: str) -> str:
    """Remove white space at the edges of a text."""
    return _ENDS.sub("", text)


def _plain(text: str) -> str:
    """Return the plain form of a text: case-folded; width, signs and digits unified."""
    if text.isascii():  # has one form, one width and one kind of digit
        return text.translate(_SHOWN).lower()
    plain = unicodedata.normalize("NFKC", text.translate(_SHOWN))
    plain = unicodedata.normalize("NFKC", plain.casefold())
    digits = re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), plain)
    return digits.translate(_SHOWN)


@cache
def _plain_characters() -> dict[str, str]:
    """Return the plain form of each character that differs from it, up to `LAST`."""
    every = (chr(i) for i in range(0x21, LAST) if not 0xD800 <= i < 0xE000)
    return {c: _plain(c) for c in every if _plain(c) != c and not _UNSEEN.match(c)}


@dataclass(frozen=True)
class Reading:
    """Rewriting of typed text into the characters of the training texts.

    A model knows only those characters, so others that stand for the same, in another case, width
    or style, are replaced before tokenizing.
    """

    kept: str
    """Invisible characters of the training texts; all others are removed."""
    form: Literal["NFC", "NFD", ""]
    """Normalisation form of all training texts; "" if they have none in common."""
    replaced: dict[str, str]
    """Characters that the training texts lack, and what each becomes: one or several of theirs."""
    edges: Literal["whitespace", "strip", ""]
    """"strip": no training text has white space at its ends; "whitespace": nor any inside but
    single spaces; "": neither, or white space at the edges has a meaning."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a replacement that could make a text many times as long."""
        if any(len(new) > LONGEST for new in self.replaced.values()):
            raise ValueError("a character becomes a text")

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def unseen(self) -> str:
        """Regular expression of the characters to remove."""
        return f"(?![{re.escape(self.kept)}])[{INVISIBLE}]" if self.kept else f"[{INVISIBLE}]"

    def __call__(self, text: str) -> str:
        """Rewrite a text: drop invisible characters, normalise, replace, and trim white space."""
        text = self._unseen.sub("", text)
        text = unicodedata.normalize(self.form, text) if self.form else text
        text = text.translate(self._table)
        if self.edges == "whitespace":
            return one_spaced(text)
        return _stripped(text) if self.edges else text

    def beside(self, texts: Iterable[str]) -> Reading:
        """Return a reading that also leaves these texts unchanged, except for white space."""
        texts = set(texts)
        known = set().union(*texts)
        return replace(
            self,
            kept="".join(sorted({*self.kept, *(c for c in known if _UNSEEN.match(c))})),
            form=self.form if all(is_normalized(self.form, t) for t in texts if self.form) else "",
            replaced={c: new for c, new in self.replaced.items() if c not in known},
        )

    @cached_property
    def _unseen(self) -> re.Pattern[str]:
        return re.compile(self.unseen)

    @cached_property
    def _table(self) -> dict[int, str]:
        return str.maketrans(self.replaced)


def reading_of(texts: Iterable[str], whole: bool) -> Reading:
    """Make the reading that turns typed text into text like these, which it leaves unchanged.

    A character that these texts lack is removed if it is invisible. Otherwise it becomes the one or
    several of theirs with the same plain form (case, width, kind of quote, …; see `appearance`), or
    stays if there are none. If all texts are in NFC, or all in NFD, so is the result. whole: texts
    are read alone, so that white space that they never have, at the edges or doubled, is removed;
    otherwise white space is kept, because something follows.

    >>> reading = reading_of(["nasa", "it's"], True)
    >>> reading("\ufeffＮＡＳＡ "), reading("It\u2019s"), reading("3")
    ('nasa', "it's", '3')
    """
    texts = set(texts)
    known = set().union(*texts)
    shown: dict[str, str] = {}
    for character in sorted(known, key=lambda c: (_plain(c) != c, c)):
        shown.setdefault(_plain(character), character)
    found: dict[str, str] = {}
    typed = _plain_characters() | {plain: plain for plain in shown if len(plain) == 1}
    for character in sorted(typed.keys() - known):
        new, plain = unicodedata.normalize("NFKC", character), typed[character]
        if not known.issuperset(new):
            new = shown.get(plain) or "".join(shown.get(one, "\0") for one in plain)
        if "\0" not in new:
            found[character] = new
    return Reading(
        "".join(sorted(c for c in known if _UNSEEN.match(c))),
        next((form for form in FORMS if all(is_normalized(form, text) for text in texts)), ""),
        found,
        _edges(texts) if whole else "",
    )


def _edges(texts: Iterable[str]) -> Literal["whitespace", "strip", ""]:
    """Return `Reading.edges` for texts: which white space none of them has."""
    if all(one_spaced(text) == text for text in texts):
        return "whitespace"
    return "strip" if all(_stripped(text) == text for text in texts) else ""

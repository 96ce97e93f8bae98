"""Texts that people see as one: what is typed, pasted and saved in several ways.

Keyboards, editors, phones and web pages add what nobody sees, and write one sign in many ways: zero
width, soft hyphens, byte order marks, full width, typographic quotes, decomposed letters.
"""

from __future__ import annotations

import re
import unicodedata

INVISIBLE = (
    "\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters without a mark of their own, as a class of a regular expression: controls, joiners,
directions, fillers, variation selectors, and the stroke that lengthens an Arabic word."""
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
"""Signs that stand for each other in text; the first is what all become."""

_SHOWN = str.maketrans({other: signs[0] for signs in ALIKE for other in signs[1:]})
_UNSEEN = re.compile(f"[{INVISIBLE}]")


def appearance(text: str) -> str:
    """Return a text as people see it: texts that look the same give the same.

    Nothing invisible, composed, without case, width and kinds of quotes, dashes and digits; runs of
    white space are one space, with none at the edges.

    >>> appearance("\\ufeff Caf\\u0065\\u0301\\u00a0 \u201cＮＡＳＡ\u201d ")
    'café "nasa"'
    """
    return " ".join(_plain(_UNSEEN.sub("", text)).split())


def _plain(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text.translate(_SHOWN))
    plain = unicodedata.normalize("NFKC", plain.casefold())
    digits = re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), plain)
    return digits.translate(_SHOWN)

"""Fonts for a figure: installed ones that together have every character, or a warning."""

import logging
import unicodedata
from functools import cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

FIRST = "DejaVu Sans"
"""matplotlib's own font, which is always there."""
PREFERRED = (
    "Noto Sans CJK KR",
    "Noto Sans CJK JP",
    "Noto Sans KR",
    "NanumGothic",
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "AppleGothic",
    "Noto Emoji",
    "Segoe UI Emoji",
)
HANGUL = ". For Hangul install Noto Sans CJK (Debian, Ubuntu: apt install fonts-noto-cjk)"
USELESS = ("color emoji", "colour emoji", "last resort")
"""Fonts that matplotlib cannot draw, and fonts with the same box for every character."""

_log = logging.getLogger(__name__)


def families_for(text: str) -> list[str]:
    """Return font families that together have every character, matplotlib's own first.

    Warns by name about characters that no installed font has.
    """
    missing = {ord(c) for c in text if c not in " \n"} - _characters(font_manager.findfont(FIRST))
    families = [FIRST]
    for name, path in _candidates():
        if not missing:
            break
        found = missing & _characters(path)
        if found:
            families.append(name)
            missing -= found
    if missing:
        hangul = any("HANGUL" in unicodedata.name(chr(c), "") for c in missing)
        _log.warning(
            "no installed font has %s; they are drawn as boxes%s",
            " ".join(map(_named, sorted(missing))),
            HANGUL if hangul else "",
        )
    return families


def _named(code: int) -> str:
    """Return a character and its number; only the number of a control character."""
    number = f"U+{code:04X}"
    return number if unicodedata.category(chr(code))[0] == "C" else f"{chr(code)} ({number})"


def _candidates() -> list[tuple[str, str]]:
    """Return (family, file) of every usable font: preferred ones in their order, then the rest."""
    files = {
        entry.name: entry.fname
        for entry in font_manager.fontManager.ttflist
        if (entry.style, entry.weight) == ("normal", 400)
        and not any(word in entry.name.lower() for word in USELESS)
    }
    order = [name for name in PREFERRED if name in files]
    order += sorted(name for name in files if name not in order)
    return [(name, files[name]) for name in order]


@cache
def _characters(path: str) -> frozenset[int]:
    """Return the code points of a font that draw something; none if it is missing or damaged."""
    try:
        codes = FT2Font(path).get_charmap()
        return frozenset(c for c in codes if unicodedata.category(chr(c)) != "Cc")
    except (OSError, RuntimeError):  # gone; damaged
        return frozenset()

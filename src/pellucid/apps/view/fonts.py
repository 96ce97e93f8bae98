"""Choose installed fonts that together have every character of a figure, or warn."""

import logging
import unicodedata
from contextlib import suppress
from functools import cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from pellucid.system.language import Language

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
    """Return font families that together have every character of a text, as far as installed.

    The first is matplotlib's default font. Logs a warning that names the characters that no
    installed font has.
    """
    families, missing = _families(text)
    if missing:
        hangul = any("HANGUL" in unicodedata.name(chr(c), "") for c in missing)
        named, hint = " ".join(map(_named, sorted(missing))), HANGUL if hangul else ""
        _log.warning(f"no installed font has {named}; they are drawn as boxes{hint}")
    return families


def labels_in(language: Language) -> Language:
    """Return `language`, or English with a warning if no installed font has Hangul."""
    if language == "en" or not _families("한글")[1]:
        return language
    _log.warning("no installed font has Hangul; labels are in English%s", HANGUL)
    return "en"


def _families(text: str) -> tuple[list[str], set[int]]:
    """Return font families for a text, and the code points that no installed font has."""
    missing = {ord(c) for c in text if c not in " \n"} - _characters(font_manager.findfont(FIRST))
    families = [FIRST]
    for name, path in _candidates() if missing else ():
        found = missing & _characters(path)
        if found:
            families.append(name)
            missing -= found
    return families, missing


def _named(code: int) -> str:
    """Format a character and its code point; a control character by code point only."""
    number = f"U+{code:04X}"
    return number if unicodedata.category(chr(code))[0] == "C" else f"{chr(code)} ({number})"


def _candidates() -> list[tuple[str, str]]:
    """Return (family, file) of every usable font: `PREFERRED` ones first, then by name.

    matplotlib caches its list of fonts in a file, so fonts that were installed later are added.
    """
    fonts = font_manager.fontManager
    for path in {*font_manager.findSystemFonts()} - {entry.fname for entry in fonts.ttflist}:
        with suppress(Exception):  # a damaged or a bitmap font raises one of several
            fonts.addfont(path)
    files = {
        entry.name: entry.fname
        for entry in fonts.ttflist
        if (entry.style, entry.weight) == ("normal", 400)
        and not any(word in entry.name.lower() for word in USELESS)
    }
    order = [name for name in PREFERRED if name in files]
    order += sorted(name for name in files if name not in order)
    return [(name, files[name]) for name in order]


@cache
def _characters(path: str) -> frozenset[int]:
    """Return a font's printable code points; none if the file is missing or damaged."""
    try:
        codes = FT2Font(path).get_charmap()
        return frozenset(c for c in codes if unicodedata.category(chr(c)) != "Cc")
    except (OSError, RuntimeError):  # gone; damaged
        return frozenset()

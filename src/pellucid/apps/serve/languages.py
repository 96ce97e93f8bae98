"""Languages: their codes, the pair in a model's name, and which one a text is written in."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple


class Language(NamedTuple):
    """A language by its ISO 639-1 code, and what gives it away in a text."""

    code: str
    name: str
    script: str
    """A character class of letters that it alone has here."""
    common: str = ""
    """Frequent words, for languages that share the Latin script."""


LANGUAGES = {
    language.code: language
    for language in (
        Language("ar", "Arabic", "\u0600-\u06ff"),
        Language(
            "de", "German", "äöüßÄÖÜ", "der die das und ist ein eine nicht ich zu mit den auf"
        ),
        Language("el", "Greek", "\u0370-\u03ff"),
        Language("en", "English", "", "the a an and is are of to in on with not you it his her"),
        Language("es", "Spanish", "ñ¿¡", "el la los las y es un una que de en con no por"),
        Language("fr", "French", "çœêè", "le la les et est un une que de dans avec ne pas pour"),
        Language("he", "Hebrew", "\u0590-\u05ff"),
        Language("it", "Italian", "ìò", "il lo la gli e è un una che di in con non per"),
        Language("ja", "Japanese", "\u3040-\u30ff"),
        Language("ko", "Korean", "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"),
        Language("nl", "Dutch", "", "de het een en is niet ik van met op dat zijn"),
        Language("pt", "Portuguese", "ãõ", "o a os as e é um uma que de em com não por"),
        Language("ru", "Russian", "\u0400-\u04ff"),
        Language("zh", "Chinese", "\u4e00-\u9fff"),
    )
}


def language_pair(name: str) -> tuple[str, str] | None:
    """Return (from, into) if a model's name has a pair of known codes among its parts, else None.

    >>> language_pair("multi30k-de-en-small")
    ('de', 'en')
    """
    codes = re.split(r"[^a-z0-9]+", name.lower())
    for source, target in pairwise(codes):
        if source in LANGUAGES and target in LANGUAGES:
            return source, target
    return None


def detect(text: str, among: Collection[str]) -> list[tuple[str, float]]:
    """Return the codes of languages that fit a text, best first, each with its percentage.

    A language's letters and frequent words count; this is no model, and short texts mislead it. A
    text without any of them fits all.

    >>> detect("Ein Mann ist auf der Straße", {"de", "en"})
    [('de', 100.0)]
    """
    words = re.findall(r"\w+", text.lower())
    points = {}
    for code in sorted(among):
        language = LANGUAGES[code]
        letters = len(re.findall(f"[{language.script}]", text)) if language.script else 0
        common = set(language.common.split())
        points[code] = letters + 2.0 * sum(word in common for word in words)
    total = sum(points.values())
    if not total:
        return [(code, round(100 / len(points), 1)) for code in points]
    ranked = sorted(points, key=lambda code: -points[code])
    return [(code, round(100 * points[code] / total, 1)) for code in ranked if points[code]]

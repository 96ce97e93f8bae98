"""Languages: their codes, the pair in a model's name, and detection in a text."""

import re
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.system.files import read_toml


class Language(NamedTuple):
    """A language; `languages.toml` explains the fields."""

    name: str
    script: str = ""
    common: str = ""
    sentence: str = ""
    hole: str = ""


LANGUAGES = {
    code: Language(**fields)
    for code, fields in read_toml(Path(__file__).with_name("languages.toml")).items()
}
"""All languages, by code."""


def language_pair(name: str) -> tuple[str, str] | None:
    """Return the first two adjacent language codes in a model's name, (from, into), or None.

    >>> language_pair("multi30k-de-en-small")
    ('de', 'en')
    """
    codes = re.split(r"[^a-z0-9]+", name.lower())
    for source, target in pairwise(codes):
        if source in LANGUAGES and target in LANGUAGES:
            return source, target
    return None


def detect(text: str, among: Collection[str]) -> list[dict[str, Any]]:
    """Guess the language of a text: fitting codes with percentages, best first.

    among: the codes to choose from, keys of `LANGUAGES`. It counts the letters and the frequent
    words of each language, without a model, so short texts may mislead it. If nothing is found, all
    languages fit equally.

    >>> detect("Ein Mann ist auf der Straße", {"de", "en"})
    [{'confidence': 100.0, 'language': 'de'}]
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
        points, total = dict.fromkeys(points, 1.0), len(points)
    ranked = sorted(points, key=lambda code: -points[code])
    return [
        {"confidence": round(100 * points[code] / total, 1), "language": code}
        for code in ranked
        if points[code]
    ]

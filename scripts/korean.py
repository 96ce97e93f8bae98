"""Translate generated Markdown into Korean; its numbers are kept.

`korean.toml`, next to this file, has the Korean of every text, with a place for each number.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container
from functools import cache
from pathlib import Path

NUMBER = re.compile(
    r"(?<![\w^.])[+−-]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e-?\d+)?|(?:(?<=\^)|(?<=_to_))\d[\d.]*"
)


@cache
def catalogue() -> dict[str, str]:
    """Return the Korean of all texts by their English."""
    path = Path(__file__).with_suffix(".toml")
    texts: dict[str, str] = tomllib.loads(path.read_text(encoding="utf-8"))
    return texts


def key_of(text: str) -> str:
    """Replace the numbers in a text by numbered places.

    >>> key_of("lower by 0.05 (interval −0.11 to 1,000)")
    'lower by {0} (interval {1} to {2})'
    """
    places = iter(range(100))
    return NUMBER.sub(lambda number: f"{{{next(places)}}}", text)


def korean(text: str, names: Container[str] = ()) -> str:
    """Translate a text: as a whole if the catalogue has it, else clause by clause.

    `names` are not translated, also in a contrast like "gelu − relu, bleu". Raises `LookupError`
    for a text without an entry.
    """
    if all(part in names for part in re.split(" − |, ", text)):
        return text
    found = catalogue().get(key_of(text))
    if found is not None:
        return found.format(*NUMBER.findall(text))
    if not re.search("[A-Za-z]{2}", NUMBER.sub("", text)):
        return text
    if "; " in text:
        return "; ".join(korean(clause, names) for clause in text.split("; "))
    raise LookupError(f"no Korean in scripts/korean.toml for: {key_of(text)}")


def korean_block(block: str, names: Container[str] = ()) -> str:
    """Translate a block of headings, list items, paragraphs and tables."""

    def cell(padded: str) -> str:
        text = padded.strip()
        return padded.replace(text, korean(text, names)) if text else padded

    lines = []
    for line in block.splitlines():
        if line.startswith("|"):
            cells = line.strip("|").split("|")
            lines.append(f"|{'|'.join(map(cell, cells))}|")
        else:
            mark = re.match(r"(?:#+ |- )?", line)
            assert mark
            lines.append(mark[0] + korean(line[mark.end() :], names))
    return "\n".join(lines)

"""Write the badges of the READMEs, docs/badges/*.svg, without asking any service.

    python scripts/badges.py            write them
    python scripts/badges.py --check    exit with 1 if one is out of date

There is no badge for passing tests: only the service that runs them could say so.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from generated import write

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "badges"
LETTER = 6.6
"""Width of a letter at 11 px, in px; wide enough for any system's sans-serif font."""


def released() -> str:
    """Return the version of the newest release, which the changelog names first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+) - ", text, re.MULTILINE)
    assert newest is not None
    return newest[1]


def facts() -> dict[str, tuple[str, str]]:
    """Return (label, text) of each badge, by the name of its file."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    about = project["project"]
    python = [
        found.group(1)
        for line in about["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    ]
    badges = {
        "version": ("version", released()),
        "python": ("python", " | ".join(python)),
        "licence": ("licence", about["license"]),
    }
    if project["tool"]["mypy"]["strict"]:
        badges["types"] = ("types", "mypy strict")
    return badges


def badge(label: str, text: str) -> str:
    """Draw a badge as SVG."""
    left, right = (round(len(part) * LETTER + 14) for part in (label, text))
    label, text = escape(label), escape(text)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" \
aria-label="{label}: {text}">
<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><path fill="#3f4a50" d="M0 0h{left}v20H0z"/>
<path fill="#12616e" d="M{left} 0h{right}v20H{left}z"/></g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{left / 2:g}" y="14">{label}</text><text x="{left + right / 2:g}" y="14">{text}</text></g>
</svg>
"""


def main(arguments: Sequence[str]) -> int:
    """Write the badges, or check them; return the exit code."""
    images = {FOLDER / f"{name}.svg": badge(*words) for name, words in facts().items()}
    return write(images, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Translate the texts of a report.

They are written in English where they are used. `templates/korean.toml` has the Korean of each.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pellucid.system.files import read_toml
from pellucid.system.language import chosen_language


def tr(english: str, /, **values: Any) -> str:
    """Translate a text into the chosen language, with values filled in.

    >>> from pellucid.system.language import speaking
    >>> with speaking("ko"):
    ...     tr("{n} of {all} seeds", n=6, all=7), tr("no such text")
    ('시드 7개 중 6개', 'no such text')
    """
    text = korean().get(english, english) if chosen_language() == "ko" else english
    return text.format(**values) if values else text


@cache
def _texts(name: str) -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("templates") / name)


def korean() -> Mapping[str, Any]:
    """Return the Korean texts by English text, and under "captions" those of `captions`."""
    return _texts("korean.toml")


def captions() -> Mapping[str, str]:
    """Return the captions of pictures and tables in the chosen language, by name."""
    return korean()["captions"] if chosen_language() == "ko" else _texts("captions.toml")

"""The badges of the READMEs state what the project's files state."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]


def badges() -> ModuleType:
    spec = importlib.util.spec_from_file_location("badges", ROOT / "scripts" / "badges.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_badges_are_up_to_date() -> None:
    assert badges().main(["--check"]) == 0, "run: python scripts/badges.py"


def test_both_readmes_show_every_badge() -> None:
    for readme in ("README.md", "README.ko.md"):
        text = (ROOT / readme).read_text(encoding="utf-8")
        for name in badges().facts():
            assert f"(docs/badges/{name}.svg)" in text


def test_a_badge_is_an_image_with_its_words() -> None:
    image = ElementTree.fromstring(badges().badge("python", "3.11 | 3.12 <"))
    assert image.get("aria-label") == "python: 3.11 | 3.12 <"
    assert "3.11 | 3.12 <" in "".join(image.itertext())

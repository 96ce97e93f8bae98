"""The picture of a Transformer in the READMEs is drawn by a script, in both languages."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import boxes

ROOT = Path(__file__).parents[1]


def test_both_pictures_are_up_to_date_and_shown() -> None:
    assert boxes.main(["--check"]) == 0, "run: python scripts/boxes.py"
    for readme, name in (("README.md", "transformer.svg"), ("README.ko.md", "transformer.ko.svg")):
        assert f"(docs/assets/{name})" in (ROOT / readme).read_text(encoding="utf-8")


def test_every_box_has_its_words_in_both_languages() -> None:
    for which, language in enumerate(boxes.FILES):
        image = ElementTree.fromstring(boxes.drawing(language))
        shown = {text.text for text in image.iter("{http://www.w3.org/2000/svg}text")}
        assert {box[which] for stack in boxes.STACKS.values() for box in stack} <= shown

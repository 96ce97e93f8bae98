"""The picture of a Transformer in the READMEs is drawn by a script, in both languages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import boxes
from pellucid.apps.teach.topic import read

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


def test_a_box_names_the_articles_that_explain_it() -> None:
    named = {box[0]: box[2].split() for stack in boxes.STACKS.values() for box in stack}
    articles = tomllib.loads((ROOT / "docs/articles/map.toml").read_text("utf-8"))["article"]

    def on(code: str) -> list[str]:
        """Return the articles with a row of the map about a part of the code."""
        rows = {one["number"]: str([row["code"] for row in one["row"]]) for one in articles}
        return [number for number, codes in rows.items() if code in codes]

    def of(*topics: str) -> list[str]:
        """Return the articles that the sources of topics name."""
        text = " ".join(block.text for name in topics for block in read(name, "en"))
        return sorted(set(re.findall(r"article (\d{3})", text)))

    assert named["Self-attention"] == of("attention", "multi_head")
    assert named["Add, LayerNorm"] == of("layer_norm", "residual")
    assert named["Feed-forward network"] == of("feed_forward")
    assert named["Self-attention, no looking ahead"] == on("generate_square_subsequent_mask")
    assert named["Cross-attention to the source"] == on("TransformerDecoderLayer")

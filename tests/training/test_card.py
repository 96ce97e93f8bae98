from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pellucid.data.pairs import TextPair
from pellucid.training.card import about_and_examples, examples_of, note_quantized, with_scores
from pellucid.training.card import card as run_card
from pellucid.training.config import DataConfig, RunConfig, TrainingConfig, load_recipe


def card(scores: dict[str, str]) -> str:
    own = DataConfig(train=(Path("there/words.tsv"),))
    config = RunConfig("Spells sounds.", data=own, training=TrainingConfig(monitor="a|b"))
    written: Any = SimpleNamespace(written=lambda: scores)
    return run_card(Path("runs/my g2p"), config, written if scores else None)


def test_a_card_says_what_it_was_given() -> None:
    found = card({"PER": "12.0 %"}).splitlines()
    for line in (
        "# my g2p",
        "- Files of the user's own: words.tsv.",
        "| PER | 12.0 % |",
        "| training.monitor | a\\|b |",
        "| seed | 0 |",
        "pellucid generate 'runs/my g2p'",
    ):
        assert line in found
    assert any(line.endswith("Spells sounds.") for line in found)


def test_a_recipes_words_are_not_about_a_users_data() -> None:
    recipe = load_recipe("chatbot-ko")
    files = replace(recipe.data, corpus="", train=(Path("inflection.tsv"),))
    own = replace(recipe, data=files)
    described = replace(own, description="Forms of words.")
    for config, text in (
        (recipe, f" {recipe.description}"),
        (own, ""),
        (described, " Forms of words."),
    ):
        about, _ = about_and_examples(run_card(Path("a"), config, None))
        assert about == f"An encoder-decoder Transformer.{text}"


def test_new_scores_take_the_place_of_those_of_their_names_and_of_no_others() -> None:
    old = card({"pairs": "7", "PER": "12 %"})
    found = with_scores(old, {"pairs": "11", "BLEU": "40, a|b"})
    assert found == card({"pairs": "11", "PER": "12 %", "BLEU": "40, a|b"})
    assert with_scores(found, {"pairs": "11"}) == found
    assert with_scores(card({}), {"pairs": "7"}) == card({"pairs": "7"})


def test_examples_are_of_no_users_texts_and_of_no_corpus_that_forbids_copies() -> None:
    pairs = [TextPair("ein Hund", ("a dog",))]

    def kept(**data: Any) -> list[str]:
        return examples_of("answer", DataConfig(max_tokens=11, **data), pairs)

    assert kept(corpus="chatbot-ko") == ["ein Hund"]
    assert kept(train=(Path("my.tsv"),)) == []
    assert kept(corpus="multi30k-de-en") == kept(corpus="multi30k-en-de") == []


@pytest.mark.parametrize(("kind", "example"), [("continue", "ein Hund"), ("fill", "ein [MASK]")])
def test_examples_of_a_model_of_one_text_are_its_targets(kind: str, example: str) -> None:
    pairs = [TextPair("", ("ein Hund kam an" if kind == "continue" else "ein Hund",))]
    assert examples_of(kind, DataConfig(corpus="chatbot-ko"), pairs) == [example]


def test_a_cards_paragraph_of_two_lines_is_read_as_one() -> None:
    assert (
        about_and_examples("# m\n\nIt reads\nand writes.\n\n## Data\n")[0] == "It reads and writes."
    )


def test_a_users_own_words_in_a_card_survive() -> None:
    old = card({"pairs": "7"}).replace("# my g2p", "# Ours\n\n| pairs | x |")
    old = old.replace("| pairs | 7 |", "| pairs  |  7 |\n| mine | 5 |\n\nMeasured at home.")
    found = with_scores(old, {"pairs": "11", "loss": "2"})
    assert found == old.replace("| pairs  |  7 |", "| pairs | 11 |").replace(
        "| mine | 5 |\n", "| mine | 5 |\n| loss | 2 |\n"
    )


@pytest.mark.parametrize("text", ["", "Mine.\n", "Mine.", "## Scores on held-out data\n"])
def test_a_card_without_the_table_gets_one(text: str) -> None:
    found = with_scores(text, {"loss": "2"})
    assert found.startswith(text)
    assert found.count("## Scores on held-out data\n") == 1
    assert found.endswith("\n\n| score | value |\n|---|---|\n| loss | 2 |\n")
    assert with_scores(found, {"loss": "2"}) == found


def test_scores_of_other_weights_than_those_stored_are_marked() -> None:
    scored = card({"loss": "0.5"})
    assert note_quantized(scored, "float32") == scored
    reported = note_quantized(scored, "int8")
    assert (
        "| loss | 0.5 |\n\nTraining scored the weights before they were stored as int8" in reported
    )
    assert note_quantized(reported, "int8") == reported
    assert reported.split("\n")[-17:] == scored.split("\n")[-17:]
    more = with_scores(reported, {"per": "3 %"})
    assert "| loss | 0.5 |\n| per | 3 % |\n\nTraining" in more  # the loss is from before
    assert with_scores(more, {"loss": "0.7", "per": "4 %"}) == with_scores(
        scored, {"loss": "0.7", "per": "4 %"}
    )


@pytest.mark.parametrize(
    "without", ["", "# A\n", "## Scores on held-out data\n\nNone were taken.\n"]
)
def test_a_card_without_scores_says_nothing_of_how_it_is_stored(without: str) -> None:
    assert note_quantized(without, "int8") == without

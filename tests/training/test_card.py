from __future__ import annotations

import pytest

from pellucid.training.card import model_card, note_quantized, with_scores


def test_a_card_says_what_it_was_given() -> None:
    card = model_card(
        "g2p",
        about="Spells sounds.",
        data=["Words (Apache-2.0)"],
        scores={"PER": "12.0 %"},
        settings={"model": {"d_model": 64, "kind": "a|b"}, "seed": 0},
        usage=["pellucid generate model word"],
        limits="English only.",
    )
    for line in (
        "# g2p",
        "- Words (Apache-2.0)",
        "| PER | 12.0 % |",
        "| model.kind | a\\|b |",
        "| seed | 0 |",
        "pellucid generate model word",
        "English only.",
    ):
        assert line in card.splitlines()


def card(scores: dict[str, str]) -> str:
    return model_card(
        "g2p", about="", data=[], scores=scores, settings={"seed": 0}, usage=[], limits=""
    )


def test_new_scores_take_the_place_of_those_of_their_names_and_of_no_others() -> None:
    old = card({"pairs": "7", "PER": "12 %"})
    found = with_scores(old, {"pairs": "11", "BLEU": "40, a|b"})
    assert found == card({"pairs": "11", "PER": "12 %", "BLEU": "40, a|b"})
    assert with_scores(found, {"pairs": "11"}) == found
    assert with_scores(card({}), {"pairs": "7"}) == card({"pairs": "7"})


def test_a_users_own_words_in_a_card_survive() -> None:
    old = card({"pairs": "7"}).replace("# g2p", "# Ours\n\n| pairs | x |")
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
    assert "| loss | 0.7 |\n| per | 3 % |\n\nTraining" in with_scores(
        reported, {"loss": "0.7", "per": "3 %"}
    )


@pytest.mark.parametrize(
    "without", ["", "# A\n", "## Scores on held-out data\n\nNone were taken.\n"]
)
def test_a_card_without_scores_says_nothing_of_how_it_is_stored(without: str) -> None:
    assert note_quantized(without, "int8") == without

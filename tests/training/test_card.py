from __future__ import annotations

from pellucid.training.card import model_card


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

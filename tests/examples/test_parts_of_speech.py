"""Parts of speech in an encoder: the probe finds what is there, and the conclusion is pinned."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import parts_of_speech
import pellucid
from parts_of_speech import PARTS, WORDS, asked, by_layer, probe

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> dict[str, list[float]]:
    return probe(pellucid.load("chat-ko"))


def test_every_word_has_one_of_the_parts() -> None:
    assert {part for sentence in WORDS for _, part in sentence} == {*PARTS}
    assert len(WORDS) == 85
    assert all(word for sentence in WORDS for word, _ in sentence)


def test_a_vector_is_that_of_the_last_piece_of_its_word() -> None:
    task = pellucid.load("chat-ko")
    vectors = by_layer(task, task.model)[0]
    table = task.model.stacks()["encoder"].embed.tokens.weight.data
    for i, word in enumerate(["나는", "아주", "매운", "음식을", "못", "먹어요"]):
        before = " ".join(["나는", "아주", "매운", "음식을", "못", "먹어요"][: i + 1])
        np.testing.assert_array_equal(vectors[i], table[task.source.encode(before)[-1]], word)


def test_the_layers_have_less_than_the_token_vectors_and_no_more_than_random_ones(
    found: dict[str, list[float]],
) -> None:
    mean = {name: float(np.mean(shares)) for name, shares in found.items()}
    trained = max(mean["layer 1"], mean["layer 2"])
    assert trained < mean["embedding"] - 0.02
    for seed in range(parts_of_speech.RANDOM):  # each random initialisation by itself
        cuts = slice(parts_of_speech.CUTS * seed, parts_of_speech.CUTS * (seed + 1))
        random = max(np.mean(found[f"random, layer {i}"][cuts]) for i in (1, 2))
        assert trained < random + 0.05
        assert mean["embedding"] > np.mean(found["random, embedding"][cuts]) + 0.05
    assert mean["embedding"] > mean["ending"] + 0.02
    assert mean["shuffled"] < mean["most frequent"]


def test_the_probe_finds_parts_that_are_there_and_none_that_are_not() -> None:
    random = np.random.default_rng(0)
    parts = np.tile(np.arange(len(PARTS)), 50)
    groups = np.arange(len(parts)) // 5
    there = np.eye(len(PARTS))[parts] + 0.1 * random.standard_normal((len(parts), len(PARTS)))
    assert asked(there, parts, groups, np.random.default_rng(1)) > 0.95
    noise = random.standard_normal(there.shape)
    assert asked(noise, parts, groups, np.random.default_rng(1)) < 0.4


def test_the_pages_and_the_file_have_these_shares(found: dict[str, list[float]]) -> None:
    stored = json.loads((ROOT / "results" / "parts_of_speech.json").read_text(encoding="utf-8"))
    assert stored.keys() == found.keys()
    for name, shares in stored.items():
        assert np.mean(shares) == pytest.approx(np.mean(found[name]), abs=0.01)
        cell = f"| {np.mean(shares):.1%} ({min(shares):.1%}–{max(shares):.1%}) |"
        cell = cell.replace("%–", "–").replace("%)", ")").replace("%", " %")
        for page in ("articles.md", "articles.ko.md"):
            assert cell in (ROOT / "docs" / page).read_text(encoding="utf-8"), name

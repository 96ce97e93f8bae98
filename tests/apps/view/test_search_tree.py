"""The tree of a search: recording changes nothing, and every answer is a path in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.apps.view.samples import CONFIG, shaken

from pellucid.apps.view.record import Node
from pellucid.apps.view.search_tree import search_tree
from pellucid.apps.view.tokens import Label, Vocabulary
from pellucid.core.batch import Packed
from pellucid.generation import Constraints, SearchConfig, search

SOURCE = [5, 6, 7, 5, 9]
VOCABULARY = Vocabulary("it", None, CONFIG.target_vocab_size, 18, {1: "<s>", 2: "</s>"})
BEGIN = Label("<s>", "special")
CONFIGS = {
    "greedy": SearchConfig(max_length=5),
    "beam": SearchConfig(beam=3, best=3, max_length=5),
    "short": SearchConfig(beam=5, best=5, max_length=2),
    "constrained": SearchConfig(
        beam=3,
        best=3,
        max_length=7,
        constraints=Constraints(no_repeat_ngram=1),
    ),
}


def path(tree: tuple[Node, ...], at: int) -> list[Node]:
    nodes = []
    while at >= 0:
        nodes.append(tree[at])
        at = tree[at].parent
    return nodes[::-1]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_answer_is_a_path_with_its_probability(name: str) -> None:
    model, config = shaken(), CONFIGS[name]
    answers, tree = search_tree(model, SOURCE, config, VOCABULARY, (1, BEGIN))
    alone = search(model, Packed.of([SOURCE]), config)[0]
    assert [a.tokens for a in answers] == [a.tokens for a in alone]
    ranked = {node.rank: at for at, node in enumerate(tree) if node.rank}
    assert sorted(ranked) == list(range(1, len(answers) + 1))
    for rank, answer in enumerate(answers, 1):
        nodes = path(tree, ranked[rank])
        generated = [str(i) for i in answer.tokens] + (["</s>"] if answer.finished else [])
        assert [node.label.text for node in nodes] == ["<s>", *generated]
        if answer.finished and not config.constraints.active:
            assert nodes[-1].log_p == pytest.approx(answer.log_p, abs=1e-5)
        assert nodes[-1].state == ("end" if answer.finished else "kept")


def test_probabilities_follow_from_the_parents() -> None:
    _, tree = search_tree(shaken(), SOURCE, CONFIGS["beam"], VOCABULARY, (1, BEGIN))
    assert (tree[0].parent, tree[0].log_p) == (-1, 0.0)
    for at, node in enumerate(tree[1:], 1):
        assert node.parent < at
        total = tree[node.parent].log_p + np.log(node.probability)
        assert node.log_p == pytest.approx(total, abs=1e-6)
    children: dict[int, float] = {}
    for node in tree[1:]:
        children[node.parent] = children.get(node.parent, 0.0) + node.probability
    assert max(children.values()) <= 1 + 1e-6


def test_dropped_tokens_are_as_many_as_the_beam_at_each_length() -> None:
    _, tree = search_tree(shaken(), SOURCE, CONFIGS["beam"], VOCABULARY, (1, BEGIN))
    lengths: dict[int, int] = {}
    for at, node in enumerate(tree):
        if node.state == "dropped":
            length = len(path(tree, at))
            lengths[length] = lengths.get(length, 0) + 1
    assert lengths
    assert max(lengths.values()) == 3


def test_a_token_that_is_never_generated_is_no_node() -> None:
    model = shaken(replace(CONFIG, suppress_tokens=(0, 1, 3, 4), end_token_ids=(7,)))
    config = SearchConfig(beam=8, max_length=4)
    answers, tree = search_tree(model, SOURCE, config, VOCABULARY, (1, BEGIN))
    assert answers
    assert np.isfinite([node.log_p for node in tree]).all()
    assert not {node.label.text for node in tree[1:]} & {"0", "1", "3", "4", "7"}

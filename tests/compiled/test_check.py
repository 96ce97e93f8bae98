"""The table of compiled generation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pellucid.compiled import check as table
from pellucid.compiled.check import MODELS, SEARCHES, check_engine
from pellucid.core import dispatch
from pellucid.models.decoding import Constraints

POST_NORM = list(MODELS)[:1]


def test_compiled_generation_gives_the_layers_answers() -> None:
    results = list(check_engine(POST_NORM))
    kinds = ("greedy", "beam 4", "shorter first", "constrained", "int8")
    assert [r.name for r in results] == [f"seq2seq, post-norm: {kind}" for kind in kinds]
    assert all(r.passed and r.arrays and not r.reason for r in results)
    assert [r.name for r in check_engine(POST_NORM, steps=False)] == [r.name for r in results[:-1]]


def test_without_kernels_nothing_is_compared() -> None:
    with dispatch.reference():
        (result,) = check_engine(POST_NORM)
    assert result.reason == "the layers themselves generate"


@pytest.mark.parametrize("change", ["score", "tokens"])
def test_other_scores_or_tokens_are_wrong(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    search = table.search

    def changed(model: Any, source: Any, config: Any) -> Any:
        found = search(model, source, config)
        if dispatch.enabled():
            first = found[3][0]
            other = {"score": first.score * 1.00001, "tokens": (5,)}[change]
            found[3][0] = first._replace(**{change: other})
        return found

    monkeypatch.setattr(table, "search", changed)
    *searches, int8 = check_engine(POST_NORM)
    assert not any(each.passed for each in searches)
    assert int8.passed


@pytest.mark.parametrize(
    "change",
    [
        lambda config: replace(config, length_penalty=config.length_penalty + 1e-4),
        lambda config: replace(config, constraints=Constraints(1.3, 2, 19, 4)),
        lambda config: replace(config, max_length=18),
    ],
    ids=["length penalty", "shortest", "longest"],
)
def test_a_search_by_other_rules_is_wrong(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    search = table.search

    def changed(model: Any, source: Any, config: Any) -> Any:
        return search(model, source, change(config) if dispatch.enabled() else config)

    monkeypatch.setattr(table, "search", changed)
    *searches, _ = check_engine(POST_NORM)
    assert not any(each.passed for each in searches if "constrained" in each.name)


def test_answers_of_every_length_are_compared() -> None:
    """An answer that ends has its score from other lines than one that is cut off."""
    found: dict[str, set[bool]] = {}
    search = table.search

    def kept(model: Any, source: Any, config: Any) -> Any:
        answers = search(model, source, config)
        found.setdefault(str(config), set()).update(a.finished for one in answers for a in one)
        return answers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "search", kept)
        list(check_engine(POST_NORM))
    assert list(found.values()) == [{True, False}] * len(SEARCHES)

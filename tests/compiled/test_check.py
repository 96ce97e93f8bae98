"""The table of compiled generation."""

from __future__ import annotations

from typing import Any

import pytest

from pellucid.compiled import check as table
from pellucid.compiled.check import MODELS, check_engine
from pellucid.core import dispatch

POST_NORM = list(MODELS)[:1]


def test_compiled_generation_gives_the_layers_answers() -> None:
    results = list(check_engine(POST_NORM))
    kinds = ("greedy", "beam 4", "int8")
    assert [r.name for r in results] == [f"seq2seq, post-norm: {kind}" for kind in kinds]
    assert all(r.passed and r.arrays and not r.reason for r in results)


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
    greedy, beam, int8 = check_engine(POST_NORM)
    assert not greedy.passed
    assert not beam.passed
    assert int8.passed

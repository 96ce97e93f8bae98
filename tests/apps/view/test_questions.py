"""Every tab asks three questions, whose answers are those of the record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view.browsing import settle
from tests.apps.view.reversing import reversing
from tests.apps.view.samples import bert, gpt, labelling

from pellucid import ops
from pellucid.apps import view
from pellucid.apps.view.record import Record

if TYPE_CHECKING:
    from playwright.sync_api import Page

TABS = {
    "whole": "Model",
    "steps": "Step by step",
    "backward": "Backward",
    "generation": "Generation",
}


@pytest.fixture(scope="module")
def picture() -> view.Picture:
    return view.attention(reversing(), "가나다라")


@pytest.fixture
def page(new_page: Callable[..., Page], picture: view.Picture, tmp_path: Path) -> Page:
    page = new_page()
    page.goto(picture.save(tmp_path / "questions.html").as_uri())
    settle(page)
    return page


def answers(page: Page, tab: str) -> list[tuple[str, list[str], str]]:
    """Return each question of a tab, its choices, and what is said to the first of them."""
    page.locator(f"#tab-{tab}").click()
    settle(page)
    panel = page.locator(f"#panel-{tab}")
    found = []
    while (ask := panel.locator(".opening > button")).is_visible():
        ask.click()
        question = panel.locator(".sentence").text_content() or ""
        choices = panel.locator(".guesses button").all_text_contents()
        blurred = panel.locator(":scope > :not(.opening)").last
        assert "blur" in blurred.evaluate("e => getComputedStyle(e).filter")
        panel.locator(".guesses button").first.click()
        settle(page)
        assert blurred.evaluate("e => getComputedStyle(e).filter") == "none"
        found.append((question, choices, panel.locator(".sentence").text_content() or ""))
    return found


def expected(record: Record, state: dict[str, int]) -> dict[str, list[str | None]]:
    """Return the right answers, as the page writes them; None for one that is not checked here."""
    m = record.layers("cross")[state["layer"]]
    row = m.probabilities[state["head"], state["query"]].astype(np.float64)
    q, k = m.q[state["head"]], m.k[state["head"]]
    unscaled, _ = ops.softmax(q.astype(np.float64) @ k.T)
    largest, following = np.sort(row)[::-1][:2]
    unsure = int(np.argmin([step.probability for step in record.steps]))
    step = record.steps[unsure]
    rivals = [c for c in step.candidates if c.label != step.label]
    first = record.steps[0]
    heads, queries, keys = m.probabilities.shape
    return {
        "whole": [None, None, str(heads * queries * keys)],
        "steps": [
            f"{largest / following:.2g}",
            f"{np.exp(-(row * np.log(row)).sum()):.1f}",
            f"{unscaled.max(-1).mean():.2f}",
        ],
        "backward": [
            first.label.text,
            None,
            None,
        ],
        "generation": [step.label.text, rivals[0].label.text, None],
    }


@pytest.mark.parametrize("tab", TABS)
def test_the_right_answers_are_the_records(page: Page, picture: view.Picture, tab: str) -> None:
    state = page.evaluate("pellucid.model.state")
    wanted = expected(picture.record, state)[tab]
    asked = answers(page, tab)
    assert 1 <= len(asked) <= 3
    checked = 0
    for question, choices, said in asked:
        assert question.endswith("?")
        assert len(set(choices)) > 1
        right = choices[0] if said.startswith("Right.") else said.split("No: ")[1].split(". ")[0]
        assert right in choices
        checked += right in wanted
    assert checked >= min(len(asked), len([x for x in wanted if x is not None])) - 1


@pytest.mark.parametrize("make", [gpt, bert, labelling])
def test_a_single_stack_is_asked_too(
    new_page: Callable[..., Page], tmp_path: Path, make: Callable[[], Any]
) -> None:
    page = new_page(locale="ko-KR")
    picture = view.attention(make(), "가나다 bc")
    page.goto(picture.save(tmp_path / "one.html").as_uri())
    settle(page)
    for tab in TABS:
        for question, _, said in answers(page, tab):
            assert "?" in question
            assert said.startswith(("맞습니다", "아닙니다"))

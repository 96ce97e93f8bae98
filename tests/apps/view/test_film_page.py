"""The page of a film in a real browser: the slider, the button, the keys, and what they show."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view.browsing import settle
from tests.apps.view.reversing import reversing
from tests.apps.view.test_browser import heads

from pellucid.apps import view
from pellucid.apps.view.film import Camera, film_page
from pellucid.data.pairs import Splits
from pellucid.tasks import Seq2SeqTask
from pellucid.training.events import Ended, Started, Stepped

if TYPE_CHECKING:
    from playwright.sync_api import Page

TEXT, ANSWER = "바다가자", "자가다바"
STEPS = [0, 1, 2, 4]
Open = Callable[..., "Page"]


def shrunk(task: Seq2SeqTask, by: float) -> None:
    for parameter in task.model.parameters():
        parameter.data = (by * parameter.data).astype(parameter.data.dtype)


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[view.Record]]:
    """A run whose "training" gives a model back its weights, and its record at every step."""
    run = tmp_path_factory.mktemp("run")
    task = deepcopy(reversing())
    shrunk(task, 0.25)
    film = Camera(run / "film", task, Splits(()), TEXT, ANSWER)
    records = []
    film(Started(0, 0.0, 1, 4, None, None))
    for step in range(5):
        if step:
            shrunk(task, 4 ** (1 / 4))
            film(Stepped(step, step / 4, 1.0, step / 4, None))
        if step in STEPS:
            records.append(view.attention(task, TEXT, ANSWER, whole=False).record)
    film(Ended(4, 1.0, "4 steps", 1.0))
    losses = [{"event": "trained", "step": n, "loss": 4.0 - n} for n in (1, 2, 3, 4)]
    held_out = {"event": "validated", "step": 4, "loss": 0.5}
    lines = [json.dumps(one) for one in [*losses, held_out]]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    (run / "film.html").write_text(film_page(run), "utf-8")
    return run, records


@pytest.fixture
def open_page(new_page: Callable[..., Page], filmed: tuple[Path, Any]) -> Open:
    """Open the film's page."""

    def opened(address: str = "", **options: Any) -> Page:
        page = new_page(**options)
        page.goto((filmed[0] / "film.html").as_uri() + address)
        page.wait_for_function("() => pellucid.model.colours !== undefined")
        settle(page)
        return page

    return opened


def frame(page: Page) -> int:
    return int(page.evaluate("pellucid.model.state.frame"))


def test_every_frame_has_the_librarys_weights_and_probabilities(
    open_page: Open, filmed: tuple[Path, list[view.Record]]
) -> None:
    page = open_page()
    slider = page.get_by_label("Step of the training")
    slider.focus()
    assert frame(page) == len(STEPS) - 1
    page.keyboard.press("Home")
    for n, record in enumerate(filmed[1]):
        settle(page)
        assert frame(page) == n
        assert f"Step {STEPS[n]}" in (slider.get_attribute("aria-valuetext") or "")
        for kind in record.kinds:
            shown = heads(page, kind, "Array.from(head.own.values)")
            for m, weights in zip(record.layers(kind), shown, strict=True):
                np.testing.assert_allclose(
                    weights, m.probabilities.reshape(len(weights), -1), atol=2e-3
                )
        told = page.evaluate("pellucid.record.steps.map(step => step.probability)")
        np.testing.assert_allclose(told, [step.probability for step in record.steps], rtol=1e-6)
        page.keyboard.press("ArrowRight")


def test_every_tab_follows_the_slider(open_page: Open) -> None:
    page = open_page("#at=0")
    assert page.get_by_role("tab").all_text_contents() == [
        "Attention", "Step by step", "Backward", "Generation",
    ]  # fmt: skip
    for tab, selector in (
        ("Attention", ".large canvas"),
        ("Attention", ".thumbnail canvas"),
        ("Step by step", ".stage canvas"),
        ("Backward", "[data-step=dA] canvas"),
    ):
        page.get_by_role("tab", name=tab).click()
        page.get_by_label("Step of the training").fill("0")
        settle(page)
        before = page.locator(selector).first.evaluate("canvas => canvas.toDataURL()")
        page.get_by_label("Step of the training").fill("3")
        changed = "([s, before]) => document.querySelector(s).toDataURL() !== before"
        page.wait_for_function(changed, arg=[selector, before])
    page.get_by_role("tab", name="Generation").click()
    texts = []
    for value in ("0", "3"):
        page.get_by_label("Step of the training").fill(value)
        settle(page)
        texts.append(page.locator("#panel-generation").inner_text())
        loss = page.evaluate("pellucid.record.loss.toPrecision(4)")
        assert loss in texts[-1]
    assert texts[0] != texts[1]


def test_it_plays_to_the_end_and_pauses(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("button", name="Play").click()
    settle(page)
    assert frame(page) < len(STEPS) - 1
    page.get_by_role("button", name="Pause").click()
    paused = frame(page)
    page.wait_for_timeout(700)
    assert frame(page) == paused
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => pellucid.model.state.frame === 3")
    page.get_by_role("button", name="Play").wait_for()


def test_less_motion_is_respected(open_page: Open) -> None:
    page = open_page(reduced_motion="reduce")
    page.get_by_role("button", name="Play").click()
    page.wait_for_timeout(900)
    assert frame(page) == 0


def test_keys_and_the_curve_go_to_a_frame_and_the_address_names_it(open_page: Open) -> None:
    page = open_page("#at=2")
    assert frame(page) == 2
    page.keyboard.press(",")
    settle(page)
    assert frame(page) == 1
    assert "at=1" in page.url
    page.keyboard.press(".")
    page.keyboard.press(".")
    settle(page)
    assert frame(page) == 3
    box = page.locator(".film-curve").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 12, box["y"] + 20)
    settle(page)
    assert frame(page) == 0
    page.evaluate("location.hash = '#at=4'")
    settle(page)
    assert frame(page) == 3


def test_it_opens_on_the_search_of_any_frame(open_page: Open) -> None:
    node = "pellucid.model.state.node"
    later = open_page()
    for step in STEPS:
        page = open_page(f"#tab=generation&at={step}")
        later.evaluate(f"location.hash = '#tab=generation&at={step}'")
        settle(later)
        assert page.evaluate(node) == later.evaluate(node)


def test_the_language_changes_and_the_frame_stays(open_page: Open) -> None:
    page = open_page("#at=1", locale="en")
    page.locator("#language").click()
    settle(page)
    assert frame(page) == 1
    assert page.get_by_role("button", name="재생").is_visible()
    assert page.get_by_label("학습 스텝").input_value() == "1"


@pytest.mark.parametrize("width", [1400, 380])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(open_page: Open, axe: str, width: int, scheme: str) -> None:
    page = open_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.evaluate(axe)
    for value in ("0", "3"):
        page.get_by_label("Step of the training").fill(value)
        settle(page)
        found = page.evaluate("axe.run()")["violations"]
        assert not [v["id"] for v in found if v["impact"] in ("serious", "critical")]
    assert page.evaluate("document.documentElement.scrollWidth") <= width

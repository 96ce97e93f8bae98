"""Two heads, two models and two texts in one page, under one cursor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view.browsing import settle
from tests.apps.view.reversing import reversing
from tests.apps.view.samples import speaking

from pellucid.apps import view

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]
TEXT = "가나다라"


@pytest.fixture(scope="module")
def first() -> view.Picture:
    return view.attention(reversing(), TEXT)


@pytest.fixture(scope="module")
def second(first: view.Picture) -> view.Picture:
    return view.attention(speaking(), TEXT, first.record.own)


@pytest.fixture
def opened(new_page: Callable[..., Page], tmp_path: Path) -> Open:
    """Open a picture's page at an address."""

    def open_page(picture: view.Picture, address: str = "", **options: Any) -> Page:
        page = new_page(**options)
        page.goto(picture.save(tmp_path / "compared.html").as_uri() + address)
        settle(page)
        return page

    return open_page


def compared(page: Page) -> np.ndarray:
    """Return the weights of the second map as the page has them."""
    return np.array(page.evaluate("Array.from(pellucid.model.compared.head.own.values)"))


def readout(page: Page) -> str:
    return page.text_content("#readout") or ""


def test_another_head_is_seen_under_the_same_cursor(opened: Open, first: view.Picture) -> None:
    page = opened(first, "#kind=cross&layer=1&head=1&query=2&key=2")
    page.get_by_role("button", name="other head").click()
    page.locator("#layer2").select_option("2")
    page.locator("#head2").select_option("2")
    settle(page)
    m = first.record.layers("cross")[1]
    np.testing.assert_allclose(compared(page), m.probabilities[1].ravel(), atol=1e-5)
    assert f"{m.probabilities[1, 1, 1]:.4g}"[:4] in readout(page).split("Second map")[1]
    state = page.url.partition("#")[2]
    assert state.endswith("beside=head&layer2=2&head2=2")
    again = opened(first, f"#{state}")
    np.testing.assert_allclose(compared(again), m.probabilities[1].ravel(), atol=1e-5)
    pixels = "document.querySelectorAll('.matrix canvas')[1].toDataURL()"
    before = again.evaluate(pixels)
    box = again.locator(".matrix").first.bounding_box()
    assert box
    again.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    settle(again)
    assert again.evaluate(pixels) != before, "the pointer is seen in the map beside too"


def test_two_models_are_compared_by_weights_and_losses(
    opened: Open, first: view.Picture, second: view.Picture
) -> None:
    both = first.beside(second, ("runs/a", "runs/b"))
    page = opened(both)
    assert page.locator("#panel-attention").is_visible(), "two maps are what is compared"
    page = opened(both, "#kind=cross&layer=2&head=1&query=3&key=2")
    assert page.locator(".map h3").all_text_contents() == ["runs/a", "runs/b"]
    page.locator("#layer2").select_option("1")
    settle(page)
    head = page.evaluate("pellucid.model.state.head2")
    weights = second.record.layers("cross")[0].probabilities[head]
    np.testing.assert_allclose(compared(page), weights.ravel(), atol=1e-5)
    legend = page.locator(".map .legend").last.text_content() or ""
    shown = [float(x.replace("−", "-")) for x in re.findall(r"[-−]?\d+\.\d+(?:e[-−]?\d+)?", legend)]
    losses = first.record.loss, second.record.loss
    expected = [*losses, losses[1] - losses[0]]
    np.testing.assert_allclose(shown[-3:], expected, rtol=6e-3)
    p = second.record.steps[2].probability
    assert f"{-np.log(p):.3g}"[:4] in readout(page).split("−log p")[1].split("in the first")[1]
    page.evaluate("pellucid.model.chooseKind('encoder')")
    settle(page)
    other = second.record.layers("encoder")[0].probabilities[head]
    np.testing.assert_allclose(compared(page), other.ravel(), atol=1e-5)
    assert "beside=" not in opened(both).url, "an address that says nothing has no state"


def test_two_texts_have_their_own_tokens_and_the_cursor_stays_inside(
    opened: Open, first: view.Picture
) -> None:
    short = view.attention(reversing(), "나다")
    page = opened(first.beside(short), "#kind=encoder&query=4&key=4")
    tokens = page.evaluate("pellucid.model.compared.record.source.map(([text]) => text)")
    assert tokens == ["나", "다"]
    titles = page.locator(".map h3").all_text_contents()
    assert titles == [first.record.title, short.record.title]
    assert "Second map" not in readout(page), "the second text has no fourth token"


def test_a_model_without_the_kind_in_view_says_so(opened: Open, first: view.Picture) -> None:
    from tests.apps.view.samples import bert

    page = opened(first.beside(view.attention(bert(), TEXT)), "#kind=cross&beside=other")
    legend = page.locator(".map .legend").last
    assert "has no attention of this kind" in (legend.text_content() or "")
    assert not page.locator(".map .matrix").nth(1).is_visible()


def test_the_page_holds_both_records(first: view.Picture) -> None:
    html = first.beside(view.attention(speaking(), "가"), ("one", "two")).html()
    found = re.search(r'<script id="other" type="application/json">(.*?)</script>', html, re.S)
    assert found
    assert json.loads(found[1])["name"] == "two"

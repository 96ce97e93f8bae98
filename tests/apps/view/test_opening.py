"""What the page opens on: one sentence, questions to guess, and a state that an address has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.apps.view.browsing import settle
from tests.apps.view.reversing import reversing
from tests.apps.view.samples import bert, gpt, labelling

from pellucid.apps import view

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]
WIDE = {"width": 1400, "height": 1000}


@pytest.fixture(scope="module")
def picture() -> view.Picture:
    return view.attention(reversing(), "가나다라", run=True)


@pytest.fixture
def opened(new_page: Callable[..., Page], picture: view.Picture, tmp_path: Path) -> Open:
    """Open the page at an address."""
    path = picture.save(tmp_path / "opening.html")

    def open_page(address: str = "", **options: Any) -> Page:
        page = new_page(**{"viewport": WIDE, **options})
        page.goto(path.as_uri() + address)
        settle(page)
        return page

    return open_page


def sentence(page: Page) -> str:
    return page.text_content("#panel-attention .sentence") or ""


def test_the_sentence_names_the_strongest_key_of_the_row_in_view(
    opened: Open, picture: view.Picture
) -> None:
    page = opened()
    assert "#" not in page.url
    record = picture.record
    for kind, layer, head, query in (("cross", 1, 0, 2), ("cross", 0, 1, 4), ("encoder", 1, 1, 1)):
        state = {"tab": "attention", "kind": kind, "layer": layer, "head": head, "query": query}
        page.evaluate("state => pellucid.model.store.set(state)", state)
        settle(page)
        weights = record.layers(kind)[layer].probabilities[head, query]  # type: ignore[arg-type]
        key = record.source[int(weights.argmax())].text
        labels = [*record.target, None]
        written = labels[query + 1]
        when = "To end the answer" if written is None else f"To write “{written.text}”"
        if kind == "encoder":
            when = f"To understand “{record.source[query].text}”"
        p = weights.max()
        shown = "100 %" if p >= 0.9995 else f"{100 * p:.1f} %"
        assert sentence(page) == f"{when}, this head looks at “{key}”: {shown}."


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_the_page_opens_on_the_whole_model_between_its_text_and_its_answer(
    opened: Open, locale: str
) -> None:
    page = opened(viewport={"width": 1400, "height": 900}, locale=locale)
    assert page.locator("#tab-whole").get_attribute("aria-selected") == "true"
    assert page.get_by_role("textbox").first.input_value() == "가나다라"
    tops = [page.locator(each).bounding_box() for each in ("h1", "#ask-text", ".course", ".mouth")]
    readout = page.locator(".river-readout").bounding_box()
    assert readout
    assert readout["y"] + readout["height"] <= 900
    assert all(tops)
    ys = [top["y"] for top in tops if top]
    assert ys == sorted(ys)
    assert tops[-1]
    assert tops[-1]["y"] + tops[-1]["height"] <= readout["y"]
    assert page.locator(".mouth .token").first.text_content() == "라"
    names = page.locator(".station-name")
    assert names.evaluate_all("all => all.every(e => e.scrollHeight <= e.clientHeight)")
    assert opened("#query=2").locator("#panel-attention").is_visible(), "a cell is named"


def test_a_guess_hides_the_map_and_is_answered(opened: Open, picture: view.Picture) -> None:
    page = opened("#tab=attention")
    map_ = page.locator(".large")
    page.get_by_role("button", name="Guess one yourself").click()
    assert "blur" in map_.evaluate("e => getComputedStyle(e).filter")
    assert "which token does this head look at most?" in sentence(page)
    page.locator("#panel-attention .guesses button").first.press("Enter")
    settle(page)
    assert map_.evaluate("e => getComputedStyle(e).filter") == "none"
    state = page.evaluate("pellucid.model.state")
    m = picture.record.layers(state["kind"])[state["layer"]]
    row = m.probabilities[state["head"], state["query"]]
    assert state["key"] == row.argmax()
    assert sentence(page).startswith("Right." if row.argmax() == 0 else "Not ")


def test_the_address_follows_the_state_and_opens_it_again(opened: Open) -> None:
    page = opened()
    page.evaluate(
        "pellucid.model.store.set({kind: 'encoder', layer: 0, head: 1, query: 2, key: 3})"
    )
    settle(page)
    page.get_by_role("tab", name="Step by step").click()
    settle(page)
    address = page.url.partition("#")[2]
    assert address == "tab=steps&kind=encoder&layer=1&head=2&query=3&key=4"
    again = opened(f"#{address}")
    names = ("tab", "kind", "layer", "head", "query", "key")
    state = again.evaluate("pellucid.model.state")
    assert [state[name] for name in names] == ["steps", "encoder", 0, 1, 2, 3]
    again.evaluate("location.hash = '#layer=2&head=1'")
    settle(again)
    state = again.evaluate("pellucid.model.state")
    assert [state[name] for name in names] == ["steps", "encoder", 1, 0, 2, 3]


def test_the_address_follows_back_to_what_the_page_opened_on(opened: Open) -> None:
    page = opened()
    first = page.evaluate("pellucid.model.state.head")
    for head in (1 - first if first < 2 else 0, first):
        page.evaluate(f"pellucid.model.store.set({{head: {head}}})")
        settle(page)
        assert f"head={head + 1}" in page.url


@pytest.mark.parametrize(
    "address",
    ["#layer=99&head=-3&query=x&key=0", "#kind=none&tab=live", "#off=a.b,decoder.99,,&tab=run"],
)
def test_an_address_that_names_nothing_opens_the_page(opened: Open, address: str) -> None:
    page = opened(address)
    state = page.evaluate("pellucid.model.state")
    assert state["layer"] in (0, 1)
    assert state["head"] >= 0
    assert page.evaluate("pellucid.trial?.off.size ?? 0") == 0


def test_the_address_of_a_trial_has_its_text_and_what_is_off(opened: Open) -> None:
    page = opened("#tab=run&text=다나&off=decoder.1.0")
    assert page.get_by_label("Text", exact=True).input_value() == "다나"
    assert page.evaluate("[...pellucid.trial.off]") == ["decoder.1.0"]
    page.get_by_role("switch", name="Token 1", exact=False).first.click()
    assert page.url.endswith("&off=decoder.1.0,source.0")


@pytest.mark.parametrize("task", [gpt, bert, labelling])
def test_a_single_stack_has_a_korean_sentence(
    browser: Browser, tmp_path: Path, task: Callable[[], Any]
) -> None:
    page = browser.new_page(viewport=WIDE, locale="ko-KR")
    path = view.attention(task(), "가나").save(tmp_path / "korean.html")
    page.goto(f"{path.as_uri()}#tab=attention")
    settle(page)
    assert "이 헤드는" in sentence(page)
    page.close()

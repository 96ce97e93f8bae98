"""Type and see: the live page asks its server for records, and a saved page asks nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.apps.view.samples import bert, labelling, speaking

from pellucid.apps import view
from pellucid.apps.view.page import as_json

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

ADDRESS = "http://pellucid.test"
RECORD_URL = "/view/record"
CHAT, FILL = {"id": "chat", "kind": "chat"}, {"id": "fill", "kind": "fill"}
MODELS = [
    CHAT | {"languages": None, "example": "가나", "beam": 3},
    FILL | {"languages": None, "example": "a[MASK]가", "beam": None},
    {"id": "label", "kind": "label", "languages": None, "example": "가나 b", "beam": None},
]
Open = Callable[..., "Page"]


class Stub:
    """A server of two models: it keeps what it was asked for, and may fail."""

    def __init__(self) -> None:
        self.pipelines: dict[str, Any] = {"chat": speaking(), "fill": bert(), "label": labelling()}
        self.asked: list[dict[str, Any]] = []
        self.failure: tuple[int, str] | None = None

    def page(self, **live: Any) -> str:
        html = view.attention(self.pipelines["chat"], "가나").html()
        offer = {"models": MODELS, "record_url": RECORD_URL, **live}
        element = f'<script id="live" type="application/json">{json.dumps(offer)}</script>'
        html = html.replace('<script id="record"', f'{element}<script id="record"', 1)
        return html.replace("default-src 'none';", "default-src 'none'; connect-src 'self';", 1)

    def answer(self, route: Route) -> None:
        if route.request.method != "POST":
            route.fulfill(content_type="text/html", body=self.html)
            return
        body = json.loads(route.request.post_data or "")
        self.asked.append(body)
        if self.failure:
            status, message = self.failure
            route.fulfill(status=status, json={"error": {"message": message}})
            return
        made = view.attention(self.pipelines[body["model"]], body["text"]).record
        route.fulfill(json=as_json(made))

    html = ""


@pytest.fixture(scope="module")
def stub() -> Stub:
    return Stub()


@pytest.fixture
def opened(new_page: Callable[..., Page], stub: Stub) -> Open:
    """Open the live page; the browser writes refused requests to the console."""

    def open_page(live: dict[str, Any] | None = None, **options: Any) -> Page:
        stub.asked, stub.failure = [], None
        opened = {"opened": {"model": "chat", "text": "가나"}}
        stub.html = stub.page(**(opened if live is None else live))
        page = new_page(console=False, **options)
        page.route(f"{ADDRESS}/**", stub.answer)
        page.goto(f"{ADDRESS}/view")
        return page

    return open_page


def submit(page: Page, title: str) -> None:
    """Show the text, and wait for the page of its record."""
    page.get_by_label("Text").press("Enter")
    page.get_by_role("heading", level=1).filter(has_text=re.compile(f"^{title}")).wait_for()


def test_a_typed_text_is_drawn_without_leaving_the_page(opened: Open, stub: Stub) -> None:
    page = opened()
    page.evaluate("window.kept = true")
    page.get_by_role("tab", name="Step by step").click()
    page.get_by_role("button", name="Encoder self-attention").click()
    page.get_by_label("Text").fill("다라마")
    page.get_by_label("beam").fill("2")
    submit(page, "다라마 →")
    assert page.evaluate("window.kept")
    (asked,) = stub.asked
    head = page.evaluate("pellucid.model.state.head") + 1
    assert asked == {
        "model": "chat", "text": "다라마", "beam": 2,
        "kind": "encoder", "layer": asked["layer"], "head": asked["head"],
    }  # fmt: skip
    assert head >= 1
    assert page.get_by_role("tab", name="Step by step").get_attribute("aria-selected") == "true"
    record = view.attention(stub.pipelines["chat"], "다라마").record
    shown = page.evaluate("pellucid.record")
    assert shown == json.loads(json.dumps(as_json(record)))
    assert page.get_by_label("Text").input_value() == "다라마"
    assert page.evaluate("document.activeElement.id") == "live-text"
    assert page.title() == record.title


def test_what_was_typed_stays_in_every_tab_and_language(opened: Open) -> None:
    page = opened()
    page.get_by_label("Text").fill("마바사")
    page.get_by_label("temperature").fill("0.7")
    for tab in ("Model", "Generation"):
        page.get_by_role("tab", name=tab).click()
        assert page.get_by_label("Text").input_value() == "마바사"
    page.get_by_role("button", name="한국어").click()
    assert page.get_by_label("텍스트").input_value() == "마바사"
    assert page.get_by_label("온도").input_value() == "0.7"
    assert page.get_by_role("button", name="보기", exact=True).is_visible()


def test_sampling_draws_another_answer_each_time(opened: Open, stub: Stub) -> None:
    page = opened()
    page.get_by_label("temperature").fill("1.3")
    for text in ("가", "나"):
        page.get_by_label("Text").fill(text)
        submit(page, text)
    assert [(one["temperature"], one["seed"]) for one in stub.asked] == [(1.3, 0), (1.3, 1)]


@pytest.mark.parametrize(
    ("model", "example", "tab"), [("fill", "a[MASK]가", "Guesses"), ("label", "가나 b", "Label")]
)
def test_another_model_has_its_own_example_and_settings(
    opened: Open, stub: Stub, model: str, example: str, tab: str
) -> None:
    page = opened()
    page.get_by_label("model", exact=True).select_option(model)
    assert page.get_by_label("Text").input_value() == example
    assert not page.get_by_label("beam").is_visible()
    submit(page, f"{re.escape(example)} →")
    assert stub.asked == [{"model": model, "text": example}]
    assert page.get_by_role("tab", name=tab).is_visible()
    assert page.get_by_label("model", exact=True).input_value() == model


def test_a_models_own_beam_may_be_wider_than_others(opened: Open, stub: Stub) -> None:
    wide = [MODELS[0] | {"beam": 12}]
    page = opened({"models": wide, "opened": {"model": "chat", "text": "가나"}})
    page.get_by_label("Text").fill("다")
    submit(page, "다 →")
    assert "beam" not in stub.asked[0]


def test_errors_are_shown_and_the_record_stays(opened: Open, stub: Stub) -> None:
    page = opened()
    title = page.locator("h1").text_content()
    said = page.locator("#live-said")
    stub.failure = (400, "text has 99 tokens, more than the 40 that are drawn; shorten it")
    page.get_by_label("Text").fill("긴 글")
    page.get_by_label("Text").press("Enter")
    said.filter(has_text="99 tokens").wait_for()
    page.unroute_all()
    page.route("**/*", lambda route: route.abort())
    page.get_by_role("button", name="Show").click()
    said.filter(has_text="does not answer").wait_for()
    assert page.locator("h1").text_content() == title
    assert page.get_by_label("Text").input_value() == "긴 글"
    assert page.get_by_role("button", name="Show").is_enabled()


def test_it_opens_with_the_servers_error(opened: Open) -> None:
    page = opened({"opened": {"model": "chat", "text": "가나"}, "error": "the text is too long"})
    assert page.locator("#live-said").text_content() == "the text is too long"


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1400, "light")])
def test_the_form_is_accessible(opened: Open, axe: str, width: int, scheme: str) -> None:
    page = opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_saved_page_has_no_form(browser: Browser, stub: Stub, tmp_path: Any) -> None:
    page = browser.new_page(locale="en-US")
    saved = view.attention(stub.pipelines["chat"], "가나").save(tmp_path / "saved.html")
    page.goto(saved.as_uri())
    assert page.locator(".live").count() == 0
    assert "makes no network request" in (page.text_content("footer") or "")
    page.close()

"""The front page in a real browser: every use of a model, in Korean and English."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.apps.serve.servers import PIPELINES, Running, ask, running

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]


def shows(page: Page, part: str, pattern: str) -> None:
    """Wait until a part of the page shows a text."""
    from playwright.sync_api import expect

    expect(page.locator(part)).to_have_text(re.compile(pattern, re.DOTALL))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture
def open_page(new_page: Callable[..., Page], server: Running) -> Open:
    """Open the front page."""

    def opened(locale: str = "ko-KR", **options: Any) -> Page:
        page = new_page(**{"viewport": {"width": 390, "height": 844}, "locale": locale, **options})
        page.goto(server.url)
        page.wait_for_selector("#model option", state="attached")
        return page

    return opened


def send(page: Page, use: str, text: str, model: str | None = None) -> None:
    page.locator(f"#use-{use}").click()
    if model is not None:
        page.locator("#model").select_option(model)
    page.locator("#text").fill(text)
    page.keyboard.press("Enter")


def test_the_page_is_in_the_browsers_language_and_has_a_switch(open_page: Open) -> None:
    for locale, language, word in (("ko-KR", "ko", "보내기"), ("de-DE", "en", "Send")):
        page = open_page(locale)
        assert page.locator("html").get_attribute("lang") == language
        assert page.locator("#send").inner_text() == word
        page.locator("#language").click()
        assert page.locator("html").get_attribute("lang") == {"ko": "en", "en": "ko"}[language]
        page.locator("#model").evaluate("model => model.append(new Option('long-'.repeat(30)))")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_it_opens_on_a_model_of_the_browsers_language_or_the_first(
    open_page: Open, server: Running
) -> None:
    models = [one for one in ask(server, "/v1/models")[2]["data"] if one["use"]]
    for locale, korean in (("ko-KR", True), ("en-GB", False)):
        fits = [
            one["id"]
            for one in models
            if any(re.search("[가-힣]", text) for text in one["examples"]) == korean
        ]
        page = open_page(locale)
        assert page.locator("#model").input_value() == [*fits, models[0]["id"]][0]
        assert page.evaluate("document.activeElement.id") == "text"


def test_errors_are_in_the_language_of_the_page(open_page: Open) -> None:
    page = open_page(console=False)  # the browser reports each
    send(page, "chat", "가" * 500, "chat")
    shows(page, ".failed", r"토큰이 \d+개입니다\. 이 모델은 64개까지 읽습니다")
    send(page, "fill", "a b")
    shows(page, ".failed", r"\[MASK\].*없습니다")
    page.locator("#language").click()
    send(page, "fill", "a c")
    shows(page, ".failed >> nth=1", r"^no \[MASK\] to fill")


def test_the_description_of_a_model_is_marked_as_english(open_page: Open) -> None:
    page = open_page()
    page.locator("#use-chat").click()
    page.locator("#model").select_option("chat")
    assert (page.locator("#about .card").text_content() or "").startswith("모델 카드(영어): ")
    assert page.locator("#about .card span").get_attribute("lang") == "en"


def test_a_chat_is_answered_in_pieces(open_page: Open) -> None:
    page = open_page()
    send(page, "chat", "안녕하세요 <b>", "chat")
    right = PIPELINES["chat"].generate(["안녕하세요 <b>"])[0]
    shows(page, ".answered", re.escape(right))
    shows(page, "#send", "보내기")
    assert page.locator(".asked").inner_text() == "안녕하세요 <b>"
    assert page.locator(".answered").text_content() == right


def test_the_page_says_what_the_model_is_and_its_examples_can_be_pressed(open_page: Open) -> None:
    page = open_page("en-GB")
    page.locator("#use-pronounce").click()
    assert page.locator("#about .what").text_content() == (
        "This model reads a word and writes how it is pronounced."
    )
    assert page.locator("#about .card").inner_text() == PIPELINES["sounds"].about
    assert page.get_by_text("Each message is answered alone").is_visible()
    page.locator(".examples button").first.click()
    shows(page, ".answered", re.escape(PIPELINES["sounds"].generate(["transparent"])[0]))
    assert page.locator(".asked").inner_text() == "transparent"
    field, send = (page.locator(f"#{name}").bounding_box() for name in ("text", "send"))
    assert field
    assert send
    assert abs(field["y"] - send["y"]) < 2, "Send is next to the field"
    assert send["x"] >= field["x"] + field["width"]


def test_an_answer_grows_and_can_be_stopped(open_page: Open) -> None:
    page = open_page()
    send(page, "chat", "hello", "endless")
    shows(page, ".answered", ".{9}")
    page.locator("#send").click()
    shows(page, "#send", "보내기")
    assert len(page.locator(".answered").text_content() or "") > 9


def test_texts_are_translated_continued_and_pronounced(open_page: Open) -> None:
    page = open_page("en-GB")
    right = {
        "translate": ("der Hund", PIPELINES["small-de-en"].generate(["der Hund"])[0]),
        "continue": ("hello", PIPELINES["story"].generate(["hello"])[0]),
        "pronounce": ("hello  transparent",
                      " ".join(PIPELINES["sounds"].generate(["hello", "transparent"]))),
    }  # fmt: skip
    for use, (text, answer) in right.items():
        send(page, use, text)
        shows(page, ".answered", f"^{re.escape(answer)}$")


def test_masks_are_filled_with_the_likeliest_tokens(open_page: Open) -> None:
    page = open_page("en-GB")
    page.locator("#use-fill").click()
    page.locator("#text").fill("a ")
    page.locator("#mask").click()
    assert page.locator("#text").input_value() == "a [MASK]"
    page.keyboard.press("Enter")
    (guesses,) = PIPELINES["bert"].guesses("a [MASK]")
    shows(page, ".answered", re.escape(guesses[0].text))
    cells = page.locator("table td").all_text_contents()
    assert cells[::3] == [guess.token for guess in guesses]
    assert cells[1::3] == [f"{100 * guess.p:.1f} %" for guess in guesses]


def test_an_error_is_shown_in_place_of_the_answer(open_page: Open) -> None:
    page = open_page("en-GB")
    page.locator("#use-fill").click()
    page.evaluate("() => { window.fetch = async () => { throw new TypeError() }; }")
    page.locator("#text").fill("nothing")
    page.keyboard.press("Enter")
    shows(page, ".failed", "The server cannot be reached.")


def test_an_answer_leads_to_the_viewer(open_page: Open) -> None:
    page = open_page()
    send(page, "translate", "der Hund & <hello>")
    page.locator(".inside a").click()
    page.wait_for_function("typeof pellucid === 'object' && pellucid.model.colours !== undefined")
    assert "der Hund & <hello>" in (page.locator("h1").text_content() or "")
    assert page.locator("html").get_attribute("lang") == "ko"


def serious(page: Page) -> list[Any]:
    """Return what axe, which the page has been given, finds serious."""
    found = page.evaluate("axe.run()")["violations"]
    return [
        (one["id"], [node["html"] for node in one["nodes"]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(open_page: Open, axe: str, scheme: str) -> None:
    page = open_page(color_scheme=scheme)
    send(page, "fill", "a [MASK]")
    shows(page, ".inside", ".+")
    page.evaluate(axe)
    assert serious(page) == []


def test_the_api_page_shows_every_path_and_field(open_page: Open, axe: str) -> None:
    page = open_page("en-GB")
    page.get_by_role("link", name="API for programs").click()
    page.wait_for_selector("h2")
    shown = page.locator("h2").all_text_contents()
    document = page.evaluate("fetch('openapi.json').then(response => response.json())")
    assert shown == [
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    ]
    fields = page.locator("section", has_text="POST /v1/completions").locator("td code")
    assert "temperature" in fields.all_text_contents()
    page.evaluate(axe)
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_page_of_the_api_has_commands_that_work(
    new_page: Callable[..., Page], server: Running
) -> None:
    page = new_page()
    page.goto(f"{server.url}/docs")
    page.wait_for_selector("pre.curl")
    commands = page.locator("pre.curl").all_inner_texts()
    for command in commands:
        name, address, *options = shlex.split(command)
        assert name == "curl"
        assert address.startswith(server.url)
        if address.endswith("/models/MODEL"):  # of models that label; none is served here
            continue
        body = json.loads(options[-1]) if "-d" in options else None
        assert ask(server, address.removeprefix(server.url), body)[0] == 200, command
    assert any("-d" in command for command in commands)


def test_a_server_with_keys_shows_where_the_key_goes(new_page: Callable[..., Page]) -> None:
    with running(keys=("secret",)) as server:
        page = new_page()
        page.goto(f"{server.url}/docs")
        page.wait_for_selector("pre.curl")
        commands = page.locator("pre.curl").all_inner_texts()
    for path, asks in (("/v1/models", True), ("/health", False)):
        (command,) = (one for one in commands if one.split()[1] == server.url + path)
        assert ("'Authorization: Bearer KEY'" in command) == asks

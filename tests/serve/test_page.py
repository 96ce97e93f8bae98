"""The page in a real browser: an answer streams in, in Korean and English, and nothing leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.serve.servers import PIPELINES, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def shows(page: Page, part: str, pattern: str) -> None:
    """Wait until a part of the page shows a text."""
    from playwright.sync_api import expect

    expect(page.locator(part)).to_have_text(re.compile(pattern, re.DOTALL))


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open a server's page; at the end the console must be empty, all requests the server's."""
    said: list[str] = []
    asked: list[str] = []
    with running() as server:
        context = browser.new_context(locale="ko-KR", viewport={"width": 390, "height": 844})
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        context.on("request", lambda request: asked.append(request.url))
        page.goto(server.url)
        page.wait_for_selector("#model option", state="attached")
        yield page
        context.close()
        assert said == []
        assert all(url.startswith((f"{server.url}/", "data:")) for url in asked)


def test_a_text_is_answered_in_pieces_and_in_either_language(page: Page) -> None:
    assert page.locator("html").get_attribute("lang") == "ko"
    assert page.locator("#send").inner_text() == "보내기"
    models = page.locator("#model option").all_inner_texts()
    assert models == [name for name in PIPELINES if name != "bert"]
    page.locator("#text").fill("안녕하세요 <b>")
    page.keyboard.press("Enter")
    right = PIPELINES["chat"].best(["안녕하세요 <b>"])[0]
    shows(page, ".answered", re.escape(right))
    shows(page, "#send", "보내기")
    assert page.locator(".asked").inner_text() == "안녕하세요 <b>"
    assert page.locator(".answered").text_content() == right
    page.locator("#language").click()
    assert page.locator("#send").inner_text() == "Send"
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_an_answer_grows_and_can_be_stopped(page: Page) -> None:
    page.locator("#model").select_option("endless")
    page.locator("#text").fill("hello")
    page.locator("#send").click()
    shows(page, ".answered", ".{9}")
    page.locator("#send").click()
    shows(page, "#send", "보내기")
    assert len(page.locator(".answered").text_content() or "") > 9

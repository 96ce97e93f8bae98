"""What leaves the page in a real browser: pictures, the film as a GIF, links, a frame."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view import test_film_page, test_try
from tests.apps.view.browsing import settle

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]
open_page, filmed = test_film_page.open_page, test_film_page.filmed
opened, task = test_try.opened, test_try.task
WRITTEN: dict[str, Any] = {"permissions": ["clipboard-read", "clipboard-write"]}
pytestmark = pytest.mark.oracle("playwright", "chromium", "PIL")


def image(data: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(data))


def saved(page: Page, button: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.locator(button).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.parametrize("tab", ["attention", "whole", "steps", "backward", "generation", "run"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_is_what_is_seen(opened: Open, tab: str, scheme: str) -> None:
    page = opened(color_scheme=scheme)
    page.locator(f"#tab-{tab}").click()
    test_try.settle(page)
    settle(page)
    page.locator("#share").click()
    name, data = saved(page, "#save-picture")
    assert re.fullmatch(r"pellucid-가나-b-.*\.png", name)
    page.keyboard.press("Escape")
    page.add_style_tag(content="select, input, .segmented, label { visibility: hidden !important }")
    index = page.evaluate("""() => {
        const cards = [...document.querySelectorAll('[role=tabpanel]:not([hidden]) .card')];
        const seen = cards.map(card => {
            const {left, top, right, bottom} = card.getBoundingClientRect();
            const w = Math.min(right, innerWidth) - left, h = Math.min(bottom, innerHeight) - top;
            return card.matches('.opening') ? 0 : Math.max(w, 0) * Math.max(h, 0);
        });
        return seen.indexOf(Math.max(...seen));
    }""")
    card = page.locator("[role=tabpanel]:not([hidden]) .card").nth(index)
    expected = np.asarray(image(card.screenshot()).convert("RGB"), float)
    high, wide, _ = expected.shape
    whole = image(data).convert("RGB")
    assert (whole.width, whole.height) == pytest.approx((2 * wide + 56, 2 * high + 108), abs=4)
    inside = whole.crop((28, 28, 28 + 2 * wide, 28 + 2 * high)).resize((wide, high))
    # Letters lie half a pixel elsewhere, so blocks of pixels are compared.
    found, wanted = (blocks(x) for x in (np.asarray(inside, float), expected))
    assert np.abs(found - wanted).mean() < 3.0
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.95


def blocks(x: np.ndarray, size: int = 8) -> np.ndarray:
    high, wide = (n // size * size for n in x.shape[:2])
    return x[:high, :wide].reshape(high // size, size, wide // size, size, 3).mean((1, 3))


def test_a_picture_is_copied_or_saved_where_the_browser_lets_no_page_copy(opened: Open) -> None:
    page = opened(**WRITTEN)
    page.locator("#share").click()
    page.locator("#copy-picture").click()
    page.get_by_text("It is on the clipboard.").wait_for()
    copied = page.evaluate("""async () => {
        const [item] = await navigator.clipboard.read();
        const blob = await item.getType('image/png');
        return [...new Uint8Array(await blob.arrayBuffer())];
    }""")
    assert image(bytes(copied)).format == "PNG"
    page.evaluate("() => { navigator.clipboard.write = () => Promise.reject(new Error()); }")
    name, data = saved(page, "#copy-picture")
    assert image(data).format == "PNG"
    page.get_by_text(f"no picture on the clipboard; saved as {name}.").wait_for()


def test_the_film_is_a_gif_of_all_its_frames(open_page: Open) -> None:
    page = open_page()
    page.locator("#share").click()
    name, data = saved(page, "#save-gif")
    assert name.endswith(".gif")
    film = image(data)
    assert (film.format, film.n_frames) == ("GIF", len(test_film_page.STEPS))
    assert film.info["loop"] == 0
    frames, pauses = [], []
    for n in range(film.n_frames):
        film.seek(n)
        frames.append(np.asarray(film.convert("RGB"), float))
        pauses.append(film.info["duration"])
    assert pauses == [320, 320, 320, 2000]
    # Each frame is the picture of its step, but for the colours that 255 cannot hold.
    for n, frame in enumerate(frames):
        page.get_by_label("Step of the training").fill(str(n))
        settle(page)
        name, one = saved(page, "#save-picture")
        picture = image(one).convert("RGB")
        picture = picture.resize((picture.width // 2, picture.height // 2))
        high, wide = picture.height, picture.width
        assert high <= frame.shape[0] <= high + 60
        assert wide <= frame.shape[1] <= wide + 1
        found = blocks(frame[: high - 40, :wide])  # without the line of words below
        assert np.abs(blocks(np.asarray(picture, float)[: high - 40]) - found).mean() < 3.0
    assert all(np.abs(a - b).max() > 50 for a, b in pairwise(frames))
    assert page.evaluate("pellucid.model.state.frame") == 3


def test_a_frame_in_another_page_has_one_picture(opened: Open, tmp_path: Path) -> None:
    page = opened(**WRITTEN)
    page.locator("#tab-attention").click()
    page.locator("#share").click()
    assert page.get_by_text("put it on a web site first").is_visible()
    page.locator("#copy-embed").click()
    page.get_by_text("It is on the clipboard.").wait_for()
    snippet = page.evaluate("navigator.clipboard.readText()")
    assert snippet == page.input_value("#share-snippet")
    assert snippet.startswith('<iframe src="try.html#embed&amp;tab=attention')
    own = page.url.split("#")[0].rsplit("/", 1)[0]
    other = tmp_path / "other.html"
    framed = snippet.replace('src="', f'src="{own}/')
    other.write_text(f"<!doctype html>{framed}", encoding="utf-8")
    page.goto(other.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator(".large canvas").first.wait_for()
    for hidden in ("nav", "aside", ".tools", "footer", ".opening"):
        assert inside.locator(hidden).first.is_hidden()
    inside.get_by_label("Your own text").fill("마바사")
    inside.locator("h1", has_text="마바사").wait_for()
    assert inside.locator(".large").is_visible()
    link = inside.get_by_role("link", name="Open the whole page")
    link.hover()
    href = link.get_attribute("href") or ""
    assert "embed" not in href
    assert "text=" in href
    assert page.frames[1].evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_link_is_copied(opened: Open) -> None:
    page = opened(**WRITTEN)
    page.locator("#share").click()
    page.locator("#copy-link").click()
    page.get_by_text("It is on the clipboard.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }")
    page.locator("#copy-link").click()
    page.get_by_text("select the text below and copy it").wait_for()
    assert page.input_value("#share-snippet") == page.url


def test_axe_finds_nothing_in_the_dialog(opened: Open, axe: str) -> None:
    page = opened(locale="ko-KR", viewport=test_try.NARROW)
    page.get_by_role("button", name="공유").click()
    page.evaluate(axe)
    found = page.evaluate("axe.run('dialog[open]')")["violations"]
    assert not [(one["id"], one["nodes"][0]["html"]) for one in found]

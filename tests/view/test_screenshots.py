"""A model that reverses its input: the picture says so, and the documentation's are taken of it.

PELLUCID_SCREENSHOTS=docs/view takes them anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.view.reversing import reversing

from pellucid import view

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SAID = "바다가자하마나🌊"
SCREENS = {
    "attention": ("light", 1280, 900, "Attention"),
    "lines-dark": ("dark", 1280, 900, "Attention"),
    "steps": ("light", 1280, 960, "Step by step"),
    "generation-dark": ("dark", 1280, 1020, "Generation"),
    "narrow": ("light", 390, 844, "Attention"),
}


@pytest.fixture(scope="module")
def picture() -> view.Picture:
    return view.attention(reversing(), SAID)


def test_attention_runs_backwards_through_the_source(picture: view.Picture) -> None:
    assert picture.record.title == f"{SAID} → {SAID[::-1]}"
    looked_at = picture.record.layers("cross")[-1].probabilities.mean(axis=0).argmax(axis=1)
    backwards = np.arange(len(SAID))[::-1]
    assert (np.abs(looked_at[: len(SAID)] - backwards) <= 1).all()


@pytest.mark.parametrize("name", SCREENS)
def test_a_screenshot_is_taken(
    browser: Browser, picture: view.Picture, tmp_path: Path, name: str
) -> None:
    scheme, width, height, tab = SCREENS[name]
    folder = Path(os.environ.get("PELLUCID_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    file = picture.save(tmp_path / "attention.html")
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page.goto(file.as_uri())
    page.get_by_role("tab", name=tab).click()
    page.evaluate("pellucid.model.store.set({query: 2, key: 5, step: 2})")
    if name.startswith("lines"):
        page.get_by_role("button", name="Lines").click()
        page.get_by_role("button", name="∂L/∂A").click()
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)
    path = folder / f"{name}.png"
    page.screenshot(path=path)
    page.close()
    assert path.stat().st_size > 20_000

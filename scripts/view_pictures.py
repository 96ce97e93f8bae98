"""Take the pictures of docs/view.md: the page of a model that reverses its input.

    python -m scripts.view_pictures [--folder docs/view] [--browser /usr/bin/chromium]

Trains the model in a few seconds (`tests/view/reversing.py`); needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright
from tests.view.reversing import reversing

from pellucid import view

TEXT = "바다가자하마나🌊"


class Shot(NamedTuple):
    """One picture of the page."""

    tab: str
    scheme: str
    width: int
    height: int
    language: str = "en"
    state: str = "{}"
    """What else the page is set to, as JavaScript."""


SHOTS = {
    "attention": Shot("attention", "light", 1280, 900),
    "lines-dark": Shot(
        "attention", "dark", 1280, 900, state="{form: 'lines', beside: 'scores', query: 2, key: 5}"
    ),
    "steps": Shot("steps", "light", 1280, 960),
    "backward": Shot("backward", "light", 1280, 1400, state="{query: 4, key: 4}"),
    "generation-dark": Shot("generation", "dark", 1280, 1020, state="{step: 2}"),
    "tour-korean": Shot("attention", "light", 1280, 900, "ko", "{form: 'lines', tour: 1}"),
    "narrow": Shot("attention", "light", 390, 844),
}


def take(browser: Browser, file: Path, shot: Shot, path: Path) -> None:
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.scheme == "dark" else "light",
        reduced_motion="reduce",
        locale=shot.language,
    )
    page.goto(file.as_uri())
    page.locator(f"#tab-{shot.tab}").click()
    page.evaluate(f"pellucid.model.store.set({shot.state})")
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)
    page.screenshot(path=path)
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/view"))
    parser.add_argument(
        "--browser", default=os.environ.get("PELLUCID_CHROMIUM") or shutil.which("chromium")
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = view.attention(reversing(), TEXT).save(Path(folder) / "attention.html")
        browser = driver.chromium.launch(
            executable_path=options.browser, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, shot in SHOTS.items():
            take(browser, file, shot, options.folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()

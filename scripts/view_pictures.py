"""Take the pictures of docs/view.md and of the READMEs: the page, still and at work.

    python -m scripts.view_pictures [--folder docs/view] [--browser /usr/bin/chromium]
        [--film runs/g2p]

The still pictures are of a model that reverses its input, trained in a few seconds
(`tests/apps/view/reversing.py`); try.png and the moving ones, tour.webp and tour-dark.webp, are of
g2p-demo; film.png, taken with --film only, is of
`pellucid train g2p-demo --film transformer --training.steps 1200 --run runs/g2p`. Needs playwright,
Chromium and Pillow.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from tests.apps.view.reversing import reversing

import pellucid
from pellucid.apps import view
from pellucid.apps.view.film import film_page
from pellucid.generation import SearchConfig

TEXT = "바다가🌊자하마나"


class Shot(NamedTuple):
    """One picture of the page."""

    tab: str
    scheme: str
    width: int
    height: int
    language: str = "en"
    state: str = "{}"
    """Further state of the page, as JavaScript."""
    after: str = "0"
    """JavaScript to run before the picture is taken."""


SHOTS = {
    "whole": Shot(
        "whole", "light", 1280, 1900,
        after="""pellucid.model.choosePart(
            pellucid.model.parts.findIndex(p => p.role === 'softmax'))""",
    ),
    "feed-forward": Shot(
        "backward", "light", 1280, 1180,
        state="{through: pellucid.record.derivations.findIndex(d => d.role === 'feed_forward')}",
    ),
    "attention": Shot("attention", "light", 1280, 900),
    "lines-dark": Shot(
        "attention", "dark", 1280, 900, state="{form: 'lines', beside: 'scores', query: 2, key: 5}"
    ),
    "steps": Shot("steps", "light", 1280, 960),
    "backward": Shot(
        "backward", "light", 1280, 1400, state="{query: 4, key: 4}",
        after="scrollTo(0, document.querySelector('[data-step=dlogits]').offsetTop - 12)",
    ),
    "generation-dark": Shot("generation", "dark", 1280, 1020, state="{step: 2}"),
    "tour-korean": Shot("attention", "light", 1280, 900, "ko", "{form: 'lines', tour: 1}"),
    "narrow": Shot("attention", "light", 390, 844),
}  # fmt: skip
MEASURED = """new Promise(done => {
    const look = () => pellucid.trial.measured ? done() : setTimeout(look, 50);
    look();
})"""
"""JavaScript that ends when every part has been switched off in turn."""
OFF = f"{MEASURED}.then(() => pellucid.trial.toggle(['decoder.5', 'decoder.4.1']))"
TRY = Shot("run", "light", 1280, 1180, after=OFF)
"""Picture of the pronunciation model, which runs in its page."""

FILM = Shot("attention", "light", 1280, 900, after="location.hash = '#at=203'")
"""Picture of a run's film while the diagonal forms."""

# The pictures that move

SIZE = {"width": 1200, "height": 750}
SHRUNK = 0.8
"""Pixels of the picture per pixel of the page."""
QUALITY = 62
LARGEST = 1_500_000
SLIDES = 16


class Scene(NamedTuple):
    """One picture of the moving picture."""

    script: str
    """JavaScript to run on the page."""
    milliseconds: int
    top: str = "nav"
    """Selector of the element at the top of the picture."""


def scenes() -> Iterator[Scene]:
    """Yield all scenes: the whole model, heads, the slider, backward, search, parts off."""
    yield Scene("model.store.set({tab: 'attention', form: 'matrix'})", 1200, "header.page")
    yield Scene("model.store.set({tab: 'whole', query: 1, key: 1})", 1400, ".course")
    for role in ("queries", "softmax", "projection", "residual", "feed_forward"):
        cross = "p.layer === 0 && p.block > 0 && p.stack === 'decoder'"
        part = f"model.parts.findIndex(p => {cross} && p.role === '{role}')"
        yield Scene(f"model.choosePart({part})", 480, ".unfolded")
    yield Scene("model.store.set({tab: 'attention', form: 'lines', scale: null})", 700)
    for head in range(4):
        yield Scene(f"model.chooseHead(model.state.layer, {head})", 320)
    yield Scene("model.store.set({form: 'matrix', beside: 'head'})", 900)
    yield Scene("model.store.set({beside: 'weights'})", 300)
    ends = [-0.5 + 2 * step / SLIDES for step in range(SLIDES + 1)]
    for power in (*ends, 0.5):
        yield Scene(f"model.store.set({{scale: model.head.q.width ** -({power})}})", 70)
    yield Scene("model.store.set({scale: null})", 400)
    yield Scene("model.store.set({tab: 'backward', through: null})", 500)
    yield Scene("", 1000, "[data-step=dA]")
    number = "pellucid.record.derivations.findIndex(d => d.role === 'feed_forward')"
    yield Scene(f"model.store.set({{through: {number}}})", 1100, ".backward-steps:visible")
    yield Scene("model.store.set({tab: 'generation', step: 5})", 1000)
    yield Scene(f"model.store.set({{tab: 'run'}}); return {MEASURED}", 1000)
    yield Scene(f"return {OFF}", 2200)


def film(browser: Browser, file: Path, scheme: str, path: Path) -> None:
    """Write the scenes as an animated WebP that loops."""
    context = browser.new_context(
        viewport=SIZE,
        device_scale_factor=SHRUNK,
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        locale="en",
    )
    page = context.new_page()
    page.goto(file.as_uri())
    page.add_style_tag(content="#app { padding-bottom: 100vh } ::-webkit-scrollbar { width: 0 }")
    frames = [_frame(page, scene) for scene in scenes()]
    context.close()
    frames[0].save(
        path,
        save_all=True,
        append_images=frames[1:],
        duration=[scene.milliseconds for scene in scenes()],
        loop=0,
        quality=QUALITY,
        method=4,
    )
    size = path.stat().st_size
    seconds = sum(scene.milliseconds for scene in scenes()) / 1000
    print(f"{path}: {size / 1e6:.2f} MB, {len(frames)} pictures, {seconds:.1f} s")
    if size > LARGEST:
        raise SystemExit(f"{path} is larger than {LARGEST / 1e6} MB; lower QUALITY")


def _frame(page: Page, scene: Scene) -> Image.Image:
    """Run a scene's script and take its picture."""
    page.evaluate(f"(async () => {{ const {{ model }} = pellucid; {scene.script} }})()")
    page.wait_for_timeout(250)
    page.locator(scene.top).first.evaluate(
        "part => scrollTo(0, part.getBoundingClientRect().top + scrollY - 12)"
    )
    page.wait_for_timeout(60)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


# The pictures that do not


def take(browser: Browser, file: Path, shot: Shot, path: Path) -> None:
    """Take one picture of the page."""
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.scheme == "dark" else "light",
        reduced_motion="reduce",
        locale=shot.language,
    )
    page.goto(file.as_uri())
    page.locator(f"#tab-{shot.tab}").click()
    page.evaluate(f"pellucid.model.store.set({shot.state})")
    page.evaluate(shot.after)
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)
    # 256 colours are enough for a page, and a third of the bytes.
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    page.close()


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/view"))
    parser.add_argument(
        "--browser", default=os.environ.get("PELLUCID_CHROMIUM") or shutil.which("chromium")
    )
    parser.add_argument("--film", type=Path, help="a run with a film, for its picture")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        model = reversing()
        file = view.attention(model, TEXT, run=True).save(Path(folder) / "attention.html")
        browser = driver.chromium.launch(
            executable_path=options.browser, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, shot in SHOTS.items():
            take(browser, file, shot, options.folder / f"{name}.png")
        search = SearchConfig(beam=3, max_length=40)
        drawn = view.attention(pellucid.load("g2p-demo"), "attention", search=search, run=True)
        trying = drawn.save(Path(folder) / "try.html")
        take(browser, trying, TRY, options.folder / "try.png")
        if options.film is not None:
            filmed = Path(folder) / "film.html"
            filmed.write_text(film_page(options.film), encoding="utf-8")
            take(browser, filmed, FILM, options.folder / "film.png")
        film(browser, trying, "light", options.folder / "tour.webp")
        film(browser, trying, "dark", options.folder / "tour-dark.webp")
        browser.close()


if __name__ == "__main__":
    main()

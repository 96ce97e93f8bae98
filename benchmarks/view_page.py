"""How large and how smooth the page of `pellucid view` is at 200 × 200 tokens, 6 layers × 8 heads.

    python -m benchmarks.view_page [--tokens 200] [--rounds 5] [--browser /usr/bin/chromium]

An untrained encoder-decoder (width 256: heads of 32 numbers) reads and says 200 tokens. Chromium,
headless and without a GPU, opens the file. First picture: from the start of the navigation to the
first contentful paint, and until the page has drawn its maps. Slider: its value changes once a
picture for 120 pictures; the rate is pictures a second, the worst the longest gap between two.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import machine
from playwright.sync_api import Browser, sync_playwright

from pellucid.apps import view
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig

PAINTED = """() => new Promise(done => requestAnimationFrame(() => setTimeout(() => done([
    performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now(),
]))))"""

SLIDE = """kind => new Promise(done => {
    pellucid.model.chooseKind(kind);
    const slider = document.getElementById('scale-slider');
    const [low, high, times] = [Number(slider.min), Number(slider.max), []];
    const move = now => {
        times.push(now);
        if (times.length > 120) return done(times);
        slider.value = String(low + (high - low) * (times.length / 120));
        slider.dispatchEvent(new Event('input', { bubbles: true }));
        requestAnimationFrame(move);
    };
    setTimeout(() => requestAnimationFrame(move), 500);
})"""


def write_page(path: Path, tokens: int) -> None:
    """Write the page of an untrained model."""
    config = Seq2SeqConfig(
        1000,
        1000,
        d_model=256,
        num_attention_heads=8,
        encoder_layers=6,
        decoder_layers=6,
        ffn_dim=512,
        max_position_embeddings=256,
    )
    draw = np.random.default_rng(0)
    source, target = draw.integers(4, 1000, (2, tokens)).tolist()
    picture = view.attention(
        Seq2Seq(config), source, target[:-1], search=SearchConfig(beam=4, max_length=32)
    )
    picture.save(path)


def measure(browser: Browser, file: Path) -> dict[str, Any]:
    """Measure the page in a browser."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(file.as_uri())
    page.wait_for_function("globalThis.pellucid?.model.colours !== undefined")
    first, drawn = page.evaluate(PAINTED)
    found: dict[str, Any] = {"first": first, "drawn": drawn}
    for tab in ("Attention", "Step by step"):
        page.get_by_role("tab", name=tab).click()
        for kind in ("encoder", "decoder", "cross"):
            gaps = np.diff(page.evaluate(SLIDE, kind))
            found[f"{tab}, {kind}"] = (1000 / gaps.mean(), gaps.max())
    page.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "page.html"
        write_page(file, asked.tokens)
        browser = driver.chromium.launch(
            executable_path=asked.browser, args=["--no-sandbox", "--disable-gpu"]
        )
        rounds = [measure(browser, file) for _ in range(asked.rounds)]
        print(f"{machine()}; Chromium {browser.version}")
        browser.close()
        print(f"file: {file.stat().st_size / 1e6:.1f} MB")
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        if name in ("first", "drawn"):
            print(f"{name}: median {statistics.median(values):.0f} ms, worst {max(values):.0f} ms")
            continue
        rate = statistics.median(rate for rate, _ in values)
        slowest, gap = min(rate for rate, _ in values), max(gap for _, gap in values)
        print(
            f"{name}: median {rate:.0f}/s, slowest round {slowest:.0f}/s, longest gap {gap:.0f} ms"
        )


if __name__ == "__main__":
    main()

"""The page that trains a model: it learns, its losses are the library's, and it may be broken."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view.browsing import cut
from tests.apps.view.test_runnable import VIEWER, made

from pellucid.apps.cli.main import main
from pellucid.apps.view.page import template
from pellucid.apps.view.runnable import runnable
from pellucid.core.batch import Batch, Packed
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step
from pellucid.training.config import TrainingConfig

if TYPE_CHECKING:
    from playwright.sync_api import Page

STEPS = 50
UNSEEN = re.compile(r"(\d+) of (\d+) right")


def train_in_node(case: dict[str, Any], folder: Path) -> list[float]:
    path = folder / "case.json"
    path.write_text(json.dumps(case), encoding="utf-8")
    done = subprocess.run(
        ["node", "test/train.mjs", str(path)],
        cwd=VIEWER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses: list[float] = json.loads(done.stdout)
    return losses


@pytest.mark.oracle("node")
@pytest.mark.parametrize("plain", [False, True], ids=["kernel", "loops"])
@pytest.mark.parametrize(
    "settings",
    [
        {"activation_function": "gelu_tanh", "d_model": 40, "num_attention_heads": 5,
         "ffn_dim": 56},
        {"norm": "pre", "norm_type": "rms_norm", "positions": "rotary", "d_model": 24,
         "activation_function": "swiglu", "num_key_value_heads": 1},
        {"positions": "learned", "d_model": 24, "embedding_norm": True},
    ],
    ids=["as article 000", "modern", "learned positions"],
)  # fmt: skip
def test_losses_of_fifty_steps_are_the_librarys(
    settings: dict[str, Any], plain: bool, tmp_path: Path
) -> None:
    task = made(**settings, dropout=0.0)
    vocabulary = task.source.vocab_size
    g = np.random.default_rng(5)
    batches = []
    for _ in range(STEPS):
        sources = [g.integers(4, vocabulary, n).tolist() for n in g.integers(1, 8, 5)]
        answers = [source[::-1] for source in sources]
        batches.append((sources, answers))
    rates = [2e-3 * min(step / 10, 1) for step in range(1, STEPS + 1)]
    case = {
        "record": runnable(task),
        "plain": plain,
        "steps": [
            {
                "rate": rate,
                "examples": [
                    [source, [1, *answer], [*answer, 2]]
                    for source, answer in zip(sources, answers, strict=True)
                ],
            }
            for rate, (sources, answers) in zip(rates, batches, strict=True)
        ],
    }
    ours = train_in_node(case, tmp_path)
    config = TrainingConfig(
        steps=STEPS, optimizer=OptimizerConfig("adam", betas=(0.9, 0.99), clip=float("inf"))
    )
    task.model.train()
    optimizer = ModelOptimizer(task.model.named_parameters(), config.optimizer)
    losses = []
    for step, (rate, (sources, answers)) in enumerate(zip(rates, batches, strict=True), 1):
        targets = Packed.of([[1, *answer, 2] for answer in answers])
        tally, _ = train_step(
            task.model, optimizer, Batch(Packed.of(sources), targets), config, step=step, lr=rate
        )
        losses.append(tally.loss)
    np.testing.assert_allclose(ours, losses, atol=1e-4, rtol=0)
    assert losses[-1] < 0.8 * losses[0]


@pytest.fixture
def opened(new_page: Callable[..., Page], tmp_path: Path) -> Callable[..., Page]:
    path = tmp_path / "learn.html"
    path.write_text(template("learn.html"), encoding="utf-8")

    def open_page(**options: Any) -> Page:
        page = new_page(**options)
        page.goto(path.as_uri())
        return page

    return open_page


def finished(page: Page) -> None:
    page.wait_for_function(
        "() => learning.run.said?.step === learning.settings.steps && !learning.run.said.running",
        timeout=300_000,
    )


def right(page: Page) -> float:
    found = UNSEEN.search(page.locator(".learn-unseen").inner_text())
    assert found
    return int(found[1]) / int(found[2])


def test_it_learns_numbers_that_it_was_never_trained_on(opened: Callable[..., Page]) -> None:
    page = opened()
    assert page.evaluate("learning.trial.runner.products.fast")
    page.click("#train")
    finished(page)
    assert right(page) >= 0.99
    # The model taken apart is the one that has just learnt.
    page.fill("#try-text", "sixty thousand")
    page.wait_for_function("() => document.querySelector('.try-text').textContent === '육만'")
    assert page.locator(".learn-heard").inner_text().startswith("Step 400 of 400")


def test_a_broken_derivative_is_seen_and_the_right_run_stays_beside_it(
    opened: Callable[..., Page],
) -> None:
    page = opened()
    page.click("text=Reverse a word")
    page.fill("#steps", "60")
    page.locator("#steps").blur()
    page.click("#train")
    finished(page)
    page.select_option("#mistake", label="softmax: w (1 − w) alone")
    page.click("#train")
    finished(page)
    runs = page.evaluate(
        "[...learning.before, learning.run].map(run => [run.settings.mistake, run.losses.at(-1)])"
    )
    assert [name for name, _ in runs] == ["none", "softmax"]
    assert runs[1][1] > runs[0][1] + 0.1
    assert page.locator(".learn-curve polyline").count() == 2


def test_the_film_puts_back_the_model_of_every_moment(opened: Callable[..., Page]) -> None:
    page = opened()
    page.click("text=Reverse a word")
    page.fill("#steps", "60")
    page.locator("#steps").blur()
    film = page.locator("#film")
    assert film.is_disabled()
    weights = "JSON.stringify(learning.trial.runner.tensors.map(({values}) => [...values]))"
    untrained = page.evaluate(weights)
    answers = page.locator(".learn-examples tbody").inner_text()
    page.click("#train")
    finished(page)
    trained, said = page.evaluate(weights), page.locator(".learn-unseen").inner_text()
    assert trained != untrained
    film.focus()
    page.keyboard.press("Home")
    assert page.locator(".learn-film output").inner_text() == "step 0"
    assert page.evaluate(weights) == untrained
    assert page.locator(".learn-examples tbody").inner_text() == answers
    assert page.locator(".learn-unseen").inner_text() == ""
    assert page.locator(".learn-curve .at").get_attribute("x1") == "40"
    page.click("text=Play")
    page.wait_for_function("() => learning.at === learning.run.frames.length - 1")
    assert page.evaluate(weights) == trained
    assert page.locator(".learn-unseen").inner_text() == said


@pytest.mark.oracle("playwright", "chromium", "PIL")
def test_the_training_is_a_gif_of_the_card_in_view(opened: Callable[..., Page]) -> None:
    from PIL import Image

    page = opened()
    page.click("text=Reverse a word")
    page.click("#train")  # of so many steps that it still runs when the film is asked for
    page.wait_for_function("() => learning.running")
    page.click("#share")
    page.click("#save-gif")
    page.get_by_text("The training has to stop first").wait_for()
    page.keyboard.press("Escape")
    page.click("#train")
    page.wait_for_function("() => !learning.running && learning.trial.measured")
    page.locator(".try-column .card").last.scroll_into_view_if_needed()
    page.evaluate("document.getElementById('share').click()")
    with page.expect_download() as download:
        page.click("#save-gif")
    assert download.value.suggested_filename.endswith(".gif")
    film = Image.open(io.BytesIO(Path(download.value.path()).read_bytes()))
    frames = page.evaluate("learning.run.frames.length")
    assert (film.format, film.n_frames) == ("GIF", frames)
    shots = []
    for n in range(frames):
        film.seek(n)
        shots.append(np.asarray(film.convert("RGB"), float))
    assert all(np.abs(a - b).max() > 50 for a, b in pairwise(shots))
    assert page.evaluate("learning.at") is None


def test_one_step_pause_and_another_language(opened: Callable[..., Page]) -> None:
    page = opened()
    page.click("#one")
    page.wait_for_function("() => learning.run.said?.step === 1")
    page.click("#train")
    page.wait_for_function("() => learning.run.said.step >= 4")
    page.click("#train")
    page.wait_for_function("() => !learning.run.said.running && learning.trial.measured")
    step = page.evaluate("learning.run.said.step")
    # What is trained further is the last model, not the one of the film.
    page.locator("#film").focus()
    page.keyboard.press("Home")
    assert page.evaluate("learning.at") == 0
    page.click("#language")
    assert page.locator("h1").inner_text() == "트랜스포머가 배우는 모습 보기"
    assert f"{step}스텝" in page.locator(".learn-said").inner_text()
    page.click("#train")
    page.wait_for_function(f"() => learning.run.said.step > {step}")
    assert page.evaluate("learning.at") is None


def test_pairs_of_ones_own_are_learnt(opened: Callable[..., Page]) -> None:
    page = opened()
    page.click("text=Your own pairs")
    page.fill("#pairs", "a\tb\nno pair")
    said = page.locator(".learn-pairs [role=status]")
    assert said.inner_text() == (
        "1 pairs. No pair (source, tab, target) in line 2. At least 20 pairs are needed."
    )
    letters = "abcde"
    pairs = [f"{x}{y}\t{y}{x}{y}" for x in letters for y in letters]
    page.fill("#pairs", "\n".join(pairs))
    page.locator("#pairs").blur()
    page.fill("#steps", "120")
    page.locator("#steps").blur()
    assert page.evaluate("learning.settings.task") == "pairs"
    assert page.evaluate("learning.task.heldOut.length") == 2
    page.click("#train")
    finished(page)
    assert page.evaluate("learning.run.losses.at(-1)") < 0.3
    assert page.locator(".learn-examples tbody tr").count() == 2


@pytest.mark.parametrize("width", [380, 800, 1400])
def test_nothing_is_wider_than_the_screen_and_axe_finds_nothing(
    width: int, opened: Callable[..., Page], axe: str
) -> None:
    page = opened(viewport={"width": width, "height": 900})
    for scheme in ("light", "dark"):
        if page.evaluate("document.documentElement.dataset.theme") != scheme:
            page.click("#theme")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert cut(page) == []
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(({violations}) => violations.map(v => v.id))")
        assert found == []


def test_the_page_asks_nothing_of_the_network() -> None:
    html = template("learn.html")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert policy[1].startswith("default-src 'none'")
    assert "connect-src" not in policy[1]
    assert set(re.findall(r"https?://[^\s\"'`)]+", html)) <= {"http://www.w3.org/2000/svg"}
    assert len(html.encode()) < 3_000_000


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "learn.html"
    assert main(["learn", "--output", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == template("learn.html")
    assert str(path) in capsys.readouterr().out

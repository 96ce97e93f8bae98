"""The story of eight screens in a real browser: its numbers are the library's, of any text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view import test_try
from tests.apps.view.browsing import settle
from tests.apps.view.samples import bert, gpt, labelling
from tests.apps.view.test_edit import backward, nats
from tests.apps.view.test_runnable import greedy, quantized, run
from tests.apps.view.test_try import NARROW, TEXTS, WIDE

from pellucid import ops
from pellucid.apps import view
from pellucid.data.tokenizers import train_tokenizer
from pellucid.tasks import Seq2SeqTask

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]
task = test_try.task
pytestmark = pytest.mark.oracle("playwright", "chromium")


@pytest.fixture
def told(new_page: Callable[..., Page], task: Seq2SeqTask, tmp_path: Path) -> Open:
    """Open the page at an address."""
    path = view.attention(task, "가나 b", run=True).save(tmp_path / "story.html")

    def open_page(address: str, **options: Any) -> Page:
        page = new_page(**{"viewport": WIDE, **options})
        page.goto(f"{path.as_uri()}{address}")
        page.locator(".story-idea").wait_for()
        settle(page)
        return page

    return open_page


def idea(page: Page) -> str:
    return page.locator(".story-idea").inner_text()


def numbers(page: Page, selector: str) -> list[float]:
    return [float(re.sub("[^0-9.]", "", text)) for text in page.locator(selector).all_inner_texts()]


def test_every_screen_has_the_librarys_numbers(told: Open, task: Seq2SeqTask) -> None:
    page = told("#story=1&text=마바사")
    source = task.source.encode("마바사")
    own, ended = greedy(task, [], source)
    expected = [*own, task.model.config.eos_token_id][: len(own) + ended]
    logits, recorder, *_ = run(task, [], source, own)
    log_p = np.asarray(ops.log_softmax(logits)[0])
    losses = [-float(log_p[i, token]) for i, token in enumerate(expected)]
    assert numbers(page, ".story-chip small") == source
    page.keyboard.press("ArrowRight")
    table = np.asarray(task.model.stacks()["encoder"].embed.tokens.weight.data)
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosines = unit @ unit[source[0]]
    cosines[[source[0], 0, 1, 2, 3]] = -np.inf
    near = task.source.decode([int(cosines.argmax())])
    assert f"that of “{near}” (cosine {cosines.max():.2f})".replace("-", "−") in idea(page)
    page.keyboard.press("ArrowRight")
    names = {id(module): name for name, module in task.model.named_modules()}
    cross = task.model.stacks()["decoder"].attentions(memory=True)
    weights = [recorder.maps[names[id(each)]].probabilities[0] for each in cross]
    shown = np.array(page.evaluate("""[...document.querySelectorAll('.story-chip small')].map(
        each => parseFloat(each.textContent))"""))  # fmt: skip
    tops = [100 * head.max(-1)[: len(expected)] for layer in weights for head in layer]
    assert any(np.abs(shown - top).max() < 0.06 for top in tops)
    page.keyboard.press("ArrowRight")
    assert page.locator(".story-head").count() == 3 * (2 + 2 * 2)
    assert idea(page).startswith("18 heads")
    page.keyboard.press("ArrowRight")
    assert numbers(page, ".story-bars .p")[0] == pytest.approx(
        100 * np.exp(log_p[0].max()), abs=0.06
    )
    page.keyboard.press("ArrowRight")
    found = numbers(page, ".story-bars .p")
    assert found == pytest.approx(losses, rel=5e-3)
    assert f"it is {sum(losses):.3g}" in idea(page)
    page.keyboard.press("ArrowRight")
    assert page.locator(".story-back path").count() == len(source) + len(own) + 1
    assert page.url.endswith("#story=7&text=%EB%A7%88%EB%B0%94%EC%82%AC")


def test_a_step_is_the_librarys(told: Open, task: Seq2SeqTask) -> None:
    copy = quantized(test_try.speaking(train_tokenizer([*TEXTS, "나b"], kind="char")))
    page = told("#story=8&expected=b나")
    source, right = copy.source.encode("가나 b"), copy.target.encode("b나")
    counted = list(range(len(right) + 1))
    losses = [nats(copy, source, right, counted)]
    for _ in range(2):
        gradients, _ = backward(copy, source, right, counted, [])
        squares = sum(float((d * d).sum()) for d in gradients.values() if d is not None)
        for name, parameter in copy.model.named_parameters():
            if (d := gradients[name]) is not None:
                parameter.data = parameter.data - losses[-1] / (2 * squares) * d
        losses.append(nats(copy, source, right, counted))
        page.locator("#story-step").click()
        loss = page.evaluate("pellucid.trial.whole.answer.losses.reduce((a, b) => a + b)")
        assert loss == pytest.approx(losses[-1], abs=1e-4)
    settle(page)
    assert losses[-1] < losses[0]
    probabilities = [100 * float(np.exp(-loss)) for loss in losses]
    shown = numbers(page, ".story-steps .p")
    assert shown == pytest.approx([max(p, 0.1) for p in probabilities], abs=0.06)
    assert "After 2 steps “b나” has" in idea(page)
    page.locator("#story-forget").click()
    assert len(numbers(page, ".story-steps .p")) == 1
    before = page.evaluate("pellucid.trial.whole.answer.losses.reduce((a, b) => a + b)")
    assert before == pytest.approx(losses[0], abs=1e-5)


def test_keys_turn_the_screens_and_the_word_is_the_readers(told: Open, task: Seq2SeqTask) -> None:
    page = told("#story=99")
    assert page.locator("[aria-current=step]").inner_text() == "8 One step"
    page.keyboard.press("ArrowLeft")
    assert page.locator("h1:visible").inner_text() == "The gradient goes back"
    assert page.locator("#app").is_hidden()
    page.locator("#story-text").fill("나 b")
    page.locator("#story-text").press("ArrowLeft")  # moves in the field alone
    page.wait_for_function("() => pellucid.trial.text === '나 b'")
    assert "story=7&text=" in page.url
    page.locator("#story-text").fill("가" * 30)
    page.get_by_text("The model cannot read this").wait_for()
    page.locator("#story-text").fill("나")
    page.get_by_text("of what reaches the text").wait_for()
    page.locator("#story-language").click()
    assert page.locator("h1:visible").inner_text() == "기울기가 거슬러 갑니다"
    page.locator("#story-close").click()
    page.locator("#panel-run .try-text").first.wait_for()
    assert page.locator("#try-text").input_value() == "나"
    answer = task.target.decode(greedy(task, [], task.source.encode("나"))[0])
    assert page.locator("h1:visible").inner_text() == f"나 → {answer}".strip()
    assert "story=" not in page.url
    page.locator("#story-open").click()
    assert page.locator("[aria-current=step]").inner_text() == "1 글자"


SINGLE = {
    "masked": (bert, "a[MASK]가", "While it reads"),
    "label": (labelling, "a bc", "While it reads"),
    "labels": (lambda: labelling("token"), "a bc", "While it reads"),
    "causal": (gpt, "가나", "To write"),
}


@pytest.mark.parametrize("kind", SINGLE)
def test_models_of_one_stack_tell_it_too(
    kind: str, new_page: Callable[..., Page], tmp_path: Path
) -> None:
    make, text, opening = SINGLE[kind]
    model = quantized(make())
    picture = view.attention(model, text, run=True)
    page = new_page(viewport=WIDE)
    page.goto(f"{picture.save(tmp_path / 'story.html').as_uri()}#story=3")
    page.locator(".story-idea").wait_for()
    assert idea(page).startswith(opening)
    shown, answer, first = numbers(page, ".story-chip small"), None, 0
    seen = len(shown)
    if kind == "causal":  # looks from what is written to what was typed
        answer = page.evaluate("pellucid.trial.target.decode(pellucid.trial.own.ids)")
        first, seen = len(model.prompt_ids([])), len(text)
    record = view.attention(model, text, answer).record
    rows = first + seen - 1 if answer else 0
    tops = [
        100 * head[rows : rows + len(shown), first : first + seen].max(-1)
        for m in record.maps
        for head in m.probabilities
    ]
    assert any(np.abs(shown - top).max() < 0.06 for top in tops)
    page.keyboard.press("ArrowRight")
    assert page.locator(".story-head").count() == sum(len(m.probabilities) for m in record.maps)
    page.keyboard.press("ArrowRight")
    best = record.steps[0].candidates[0].probability
    assert numbers(page, ".story-bars .p")[0] == pytest.approx(100 * best, abs=0.06)
    page.keyboard.press("ArrowRight")
    losses = [-math.log(step.probability) for step in record.steps]
    found = numbers(page, ".story-bars .p")
    assert len(found) in (len(losses), len(losses) - 1)  # of an answer cut at its longest no end
    assert found == pytest.approx(losses[: len(found)], rel=5e-3)
    page.keyboard.press("ArrowRight")
    read = record.source or record.target
    assert page.locator(".story-back path").count() == len(read)
    page.keyboard.press("ArrowRight")
    total = "pellucid.trial.whole.answer.losses.reduce((a, b) => a + b)"
    page.locator("#story-step").click()  # from here on the answer has an end
    before = page.evaluate(total)
    page.locator("#story-step").click()
    assert page.evaluate(total) < before
    assert page.locator(".story-steps tbody tr").count() == 3


def test_a_text_whose_tokens_the_model_writes_again_has_every_screen(
    new_page: Callable[..., Page], tmp_path: Path
) -> None:
    model = quantized(gpt("bpe", ["하늘 하늘을 하늘은", "오늘 오늘은 오늘이"] * 4, 300))
    path = view.attention(model, "오늘", run=True).save(tmp_path / "story.html")
    page = new_page(viewport=WIDE)
    page.goto(path.as_uri())
    page.locator("#story-open").click()
    assert page.evaluate("pellucid.trial.ids.length") == 0  # nothing is read, all is written again
    assert "→" not in (page.locator("h1").first.text_content() or "")
    typed = [int(number) for number in numbers(page, ".story-chip small")]
    assert model.source.decode(typed).startswith("오늘")
    assert typed == page.evaluate("pellucid.trial.own.ids")[: len(typed)]
    for screen in range(2, 9):
        page.locator("#story-next").click()
        settle(page)
        assert f"story={screen}" in page.url
        assert idea(page)
    page.locator("#story-back").click()
    settle(page)
    labels = page.locator(".story-back text").all_text_contents()
    assert (
        labels
        == page.evaluate("pellucid.trial.labels('target').map(([text]) => text)")[: len(labels)]
    )


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_screen(
    told: Open, axe: str, size: dict[str, int], scheme: str
) -> None:
    page = told("#story=1&lang=ko", viewport=size, color_scheme=scheme)
    page.evaluate(axe)
    for screen in range(8):
        settle(page)
        found = page.evaluate("axe.run()")["violations"]
        assert not [(screen, one["id"], one["nodes"][0]["html"]) for one in found]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator("#story-next").click(force=True, no_wait_after=True) if screen < 7 else None

"""The tab in which the model runs, in a real browser: typing, switching parts off, by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.apps.view.samples import TEXTS, speaking
from tests.apps.view.test_runnable import greedy, quantized, run

from pellucid import ops
from pellucid.apps import view
from pellucid.data.tokenizers import train_tokenizer
from pellucid.tasks import Seq2SeqTask

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]
WIDE, NARROW = {"width": 1400, "height": 1000}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def task() -> Seq2SeqTask:
    tokenizer = train_tokenizer([*TEXTS, "나b"], kind="char")
    return quantized(speaking(tokenizer))


@pytest.fixture
def opened(browser: Browser, task: Seq2SeqTask, tmp_path: Path) -> Iterator[Open]:
    """Open the tab; at the end the console must be empty and nothing but the file requested."""
    reported: list[str] = []
    asked: list[str] = []
    contexts = []
    path = view.attention(task, "가나 b", run=True).save(tmp_path / "try.html")

    def open_page(**options: Any) -> Page:
        context = browser.new_context(**{"viewport": WIDE, "locale": "en-US", **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: reported.append(message.text))
        page.on("pageerror", lambda error: reported.append(str(error)))
        context.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.locator("#tab-run").click()
        settle(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not reported
    assert set(asked) == {path.as_uri()}


def settle(page: Page) -> None:
    """Wait until the model is read, every part was switched off once and the result is drawn."""
    page.evaluate("""() => new Promise(done => {
        const look = () => pellucid.trial && (pellucid.trial.measured || !pellucid.trial.whole)
            ? requestAnimationFrame(() => setTimeout(done)) : setTimeout(look, 20);
        look();
    })""")


def texts(page: Page) -> list[str]:
    return page.locator(".try-text").all_text_contents()


def test_the_answer_follows_what_is_typed(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    for text in ("가나 b", "마바사", "사랑이"):
        page.get_by_label("Text").fill(text)
        settle(page)
        ids, _ = greedy(task, [], task.source.encode(text))
        assert texts(page) == [task.target.decode(ids)]
    page.get_by_label("Text").fill("")
    assert page.get_by_text("Type something").is_visible()
    page.get_by_label("Text").fill("가" * 24)
    assert page.get_by_text("24 tokens, but the model reads at most 23").is_visible()
    page.get_by_label("Text").fill("가힣")
    assert page.get_by_text("Never seen in training: 힣").is_visible()


def test_every_effect_of_the_ranking_is_the_librarys(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    source = task.source.encode("가나 b")
    effects = page.evaluate("""pellucid.trial.effects.map(({part, grows, other}) =>
        ({part, grows, other: other && other.ids}))""")
    assert sorted(effects, key=lambda e: -e["grows"]) == effects
    sublayers, heads = 2 * 2 + 2 * 3, 3 * (2 + 2 * 2)
    assert len(effects) == sublayers + heads + len(source)
    own, ended = greedy(task, [], source)
    expected = [*own, task.model.config.eos_token_id][: len(own) + ended]

    def nats(off: list[str]) -> float:
        log_p, _ = ops.log_softmax(run(task, off, source, own)[0])
        return -sum(float(log_p[i, token]) for i, token in enumerate(expected))

    for effect in effects[:5] + effects[-5:]:
        off = [effect["part"]]
        assert (effect["other"] or own) == greedy(task, off, source)[0]
        assert effect["grows"] == pytest.approx(nats(off) - nats([]), abs=1e-5)


def test_parts_are_switched_by_keyboard_and_the_answers_are_side_by_side(
    opened: Open, task: Seq2SeqTask
) -> None:
    page = opened()
    source = task.source.encode("가나 b")
    switch = page.get_by_role("switch", name="Decoder · Layer 1 · Feed-forward")
    switch.focus()
    page.keyboard.press("Enter")
    assert switch.get_attribute("aria-checked") == "false"
    ids = [greedy(task, off, source)[0] for off in ([], ["decoder.2"])]
    assert texts(page) == [task.target.decode(some) for some in ids]
    assert "Without Decoder · Layer 1 · Feed-forward" in (page.text_content(".try-outcome") or "")
    page.get_by_role("button", name="Everything on").press("Enter")
    assert len(texts(page)) == 1
    page.get_by_role("switch", name="Encoder · Layer 2", exact=True).click()
    assert page.evaluate("[...pellucid.trial.off]") == ["encoder.2", "encoder.3"]


def test_an_edge_is_cut_by_arrow_keys_and_enter(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    page.get_by_label("Head", exact=True).select_option("decoder.1.2")
    page.locator(".try-edges [tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate("[...pellucid.trial.off]") == ["decoder.1.2.1.1"]
    assert page.evaluate("document.activeElement.textContent") == "✕"
    answer = greedy(task, ["decoder.1.2.1.1"], task.source.encode("가나 b"))[0]
    assert texts(page)[1] == task.target.decode(answer)


def test_the_bars_of_the_ledger_add_up_to_the_logit(opened: Open) -> None:
    page = opened()
    for place in (0, 1):
        page.locator(".try-row button.said").nth(place).click()
        shown = page.locator(".try-ledger td:nth-child(2) .p").all_text_contents()
        *parts, total = (float(x.replace("−", "-")) for x in shown)
        assert sum(parts) == pytest.approx(total, abs=0.005 * len(shown))


def test_what_was_typed_outlives_the_language_and_is_korean(opened: Open) -> None:
    page = opened()
    page.get_by_label("Text").fill("마바사")
    page.evaluate("pellucid.trial.toggle(['decoder.2'])")
    page.locator("#language").click()
    settle(page)
    assert page.get_by_role("tab", name="직접 해 보기").get_attribute("aria-selected") == "true"
    assert page.get_by_label("글", exact=True).input_value() == "마바사"
    assert "디코더 · 1층 · 피드포워드" in (page.text_content(".try-outcome") or "")
    for heading in page.locator(".try h2").all_text_contents():
        assert re.search("[가-힣]", heading)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_no_serious_violation(
    opened: Open, axe: str, scheme: str, size: dict[str, int]
) -> None:
    page = opened(color_scheme=scheme, viewport=size)
    page.evaluate("pellucid.trial.toggle(['decoder.1.0', 'source.1'])")
    settle(page)
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    assert not [
        (violation["id"], [node["html"] for node in violation["nodes"]])
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_page_without_the_model_has_no_such_tab(
    browser: Browser, task: Seq2SeqTask, tmp_path: Path
) -> None:
    page = browser.new_page(viewport=WIDE)
    picture = view.attention(task, "가나 b", run=True)
    page.goto(replace(picture, model=None).save(tmp_path / "still.html").as_uri())
    assert page.locator("#tab-attention").is_visible()
    assert page.locator("#tab-run").count() == 0
    page.close()

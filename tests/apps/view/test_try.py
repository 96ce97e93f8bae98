"""The tab in which the model runs, in a real browser: typing, switching parts off, by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view.samples import TEXTS, bert, gpt, labelling, speaking
from tests.apps.view.test_edit import apart, backward, moved_score, nats
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
    return quantized(speaking(tokenizer, beam=1))  # as the page searches


@pytest.fixture
def opened(new_page: Callable[..., Page], task: Seq2SeqTask, tmp_path: Path) -> Open:
    """Open the tab."""
    path = view.attention(task, "가나 b", run=True).save(tmp_path / "try.html")

    def open_page(**options: Any) -> Page:
        page = new_page(**{"viewport": WIDE, **options})
        page.goto(path.as_uri())
        page.locator("#tab-run").click()
        settle(page)
        return page

    return open_page


def settle(page: Page) -> None:
    """Wait until the model is read, every part was switched off once and the result is drawn."""
    page.evaluate("""() => new Promise(done => {
        const look = () => pellucid.trial && (pellucid.trial.measured || !pellucid.trial.whole)
            ? requestAnimationFrame(() => setTimeout(done)) : setTimeout(look, 20);
        look();
    })""")


@pytest.mark.oracle("playwright")
def test_a_decoder_continues_what_is_typed_and_all_tabs_follow(
    new_page: Callable[..., Page], tmp_path: Path
) -> None:
    task = gpt("bpe", beam=1)
    page = new_page(viewport=WIDE)
    page.goto(view.attention(task, "가나", run=True).save(tmp_path / "gpt.html").as_uri())
    page.locator("#tab-run").click()
    settle(page)
    page.locator("#try-text").fill("나 b")
    settle(page)
    record = view.attention(task, "나 b").record
    for tab in ("whole", "attention", "steps", "generation", "backward"):
        page.locator(f"#tab-{tab}").click()
        settle(page)
        assert page.locator(f"#panel-{tab}").is_visible()
    found = page.evaluate("({...pellucid.record, maps: pellucid.record.maps.length})")
    assert [step["token"] for step in found["steps"]] == [step.token for step in record.steps]
    read = len(record.target) - len(record.steps)
    assert found["target"][:read] == [list(label) for label in record.target[:read]]
    assert found["maps"] == len(record.maps)
    assert len(found["derivations"]) > 0
    assert len(found["flows"]) == len(record.steps)


@pytest.mark.oracle("playwright")
@pytest.mark.parametrize(
    ("make", "first", "typed", "expected", "name"),
    [
        (bert, "a[MASK]c", "가[MASK]다 [MASK]", "ab", "Guesses"),
        (labelling, "a bc", "가나다 b", "some word", "Label"),
        (lambda: labelling("token"), "a bc", "가b", "taxi some", "Guesses"),
    ],
    ids=["masks", "label", "labels"],
)
def test_an_encoder_alone_answers_what_is_typed_and_all_tabs_follow(
    make: Any, first: str, typed: str, expected: str, name: str,
    new_page: Callable[..., Page], axe: str, tmp_path: Path,
) -> None:  # fmt: skip
    task = quantized(make())
    page = new_page(viewport=NARROW)
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(view.attention(task, first, run=True).save(tmp_path / "alone.html").as_uri())
    page.locator("#tab-run").click()
    settle(page)
    page.locator("#try-text").fill(typed)
    settle(page)
    assert len(page.evaluate("pellucid.trial.effects")) == len(
        page.evaluate("pellucid.trial.parts")
    )
    page.get_by_label("Expected answer").fill("나나나나")
    page.get_by_label("Expected answer").press("Enter")
    assert "cannot give “나나나나”" in (page.locator(".try-typing").text_content() or "")
    page.get_by_label("Expected answer").fill(expected)
    page.get_by_label("Expected answer").press("Enter")
    settle(page)
    record = view.attention(task, typed, expected).record
    for tab in ("whole", "attention", "steps", "generation", "backward", "run"):
        page.locator(f"#tab-{tab}").click()
        settle(page)
        assert page.locator(f"#panel-{tab}").is_visible()
    assert page.locator("#tab-generation").text_content() == name
    found = page.evaluate("({...pellucid.record, maps: []})")
    assert page.text_content("h1") == record.title
    assert [step["token"] for step in found["steps"]] == [step.token for step in record.steps]
    assert found["loss"] == pytest.approx(record.loss, rel=1e-4)
    assert len(found["flows"]) == len(record.steps)
    page.evaluate(
        "pellucid.trial.learn([{text: pellucid.trial.text, right: pellucid.trial.expected}])"
    )
    losses = page.evaluate("pellucid.trial.lessons[0].losses")
    assert losses[0] == pytest.approx(record.loss, rel=1e-4)
    assert losses == sorted(losses, reverse=True)
    assert not failed
    for tab in ("generation", "run"):
        page.locator(f"#tab-{tab}").click()
        settle(page)
        page.evaluate(axe)
        violations = page.evaluate("axe.run()")["violations"]
        assert not [v["id"] for v in violations if v["impact"] in ("serious", "critical")]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.oracle("playwright")
def test_a_text_of_several_sentences_is_answered_piece_by_piece(opened: Open) -> None:
    page = opened()
    assert page.locator(".try-pieces").is_hidden()
    alone = []
    for piece in ("가나.", "b가"):
        page.locator("#try-text").fill(piece)
        settle(page)
        alone.append(texts(page)[0])
    page.locator("#try-text").fill("가나. b가")
    settle(page)
    buttons = page.locator(".try-pieces button")
    assert buttons.all_text_contents() == ["가나.", "b가"]
    assert page.locator(".try-pieces strong").text_content() == " ".join(alone)
    for place, answer in enumerate(alone):
        buttons.nth(place).click()
        settle(page)
        assert texts(page) == [answer]
        assert buttons.nth(place).get_attribute("aria-pressed") == "true"
    assert page.locator("#try-text").input_value() == "가나. b가"


def texts(page: Page) -> list[str]:
    return page.locator(".try-text").all_text_contents()


def test_the_answer_follows_what_is_typed(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    for text in ("가나 b", "마바사", "사랑이"):
        page.get_by_label("Text", exact=True).fill(text)
        settle(page)
        ids, _ = greedy(task, [], task.source.encode(text))
        assert texts(page) == [task.target.decode(ids)]
    page.get_by_label("Text", exact=True).fill("")
    assert page.get_by_text("Type something").is_visible()
    page.get_by_label("Text", exact=True).fill("가" * 24)
    assert page.get_by_text("24 tokens, but the model reads at most 23").is_visible()
    page.get_by_label("Text", exact=True).fill("가힣")
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


def test_the_ranking_grows_as_it_is_measured(opened: Open) -> None:
    page = opened()
    # A clock that runs fast: each part is a slice of its own, after which the page draws.
    seen = page.evaluate("""() => new Promise(done => {
        let now = 0;
        performance.now = () => (now += 1000);
        const list = document.querySelector('.try-ranking'), seen = [];
        new MutationObserver(() => seen.push([
            list.children.length, list.previousElementSibling.textContent, pellucid.trial.measured,
        ])).observe(list, {childList: true});
        const look = () => pellucid.trial.measured ? done(seen) : setTimeout(look);
        pellucid.trial.read('마바사');
        look();
    })""")
    partial = [(rows, said) for rows, said, measured in seen if not measured]
    parts = page.evaluate("pellucid.trial.parts.length")
    assert (3, f"Switching off one part after another: 3 of {parts} …") in partial
    assert [rows for rows, _ in partial] == sorted(rows for rows, _ in partial)
    assert partial[-1][0] == 12 < parts


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


def curve(page: Page) -> tuple[float, float]:
    """Wait until a curve is whole; return its loss and slope at 0."""
    page.wait_for_function("""() => document.querySelector('.try-edit .loss')
        ?.getAttribute('d').split('L').length === 41""")
    label = page.get_attribute(".try-edit .curve", "aria-label") or ""
    loss, slope = re.findall(r"(−?[\d.]+(?:e−?\d+)?)(?= at 0|\.$)", label)[-2:]
    return float(loss), float(slope.replace("−", "-"))


def test_a_score_is_chosen_in_the_map_and_dragged(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    page.get_by_label("Head", exact=True).select_option("decoder.1.2")
    page.get_by_role("button", name="Edit its score").click()
    page.locator(".try-edges td[data-row='1'][data-column='2']").click()
    source = task.source.encode("가나 b")
    own, ended = greedy(task, [], source)
    counted = list(range(len(own) + ended))
    loss, slope = curve(page)
    _, recorder = backward(task, source, own, counted, [])
    names = {id(module): name for name, module in task.model.named_modules()}
    body = names[id(task.model.stacks()["decoder"].steps[1].block.body)]
    assert slope == pytest.approx(recorder.maps[body].dscores[0, 2, 1, 2], rel=1e-3)
    assert loss == pytest.approx(nats(task, source, own, counted), rel=1e-3)
    page.locator("#edit-by").focus()
    page.keyboard.press("End")
    assert page.text_content(".try-edit output") == "6.00"
    score = {"head": "decoder.1.2", "query": 1, "key": 2}
    restore = moved_score(task, score, 6.0, len(source), len(own) + 1)
    after = nats(task, source, own, counted)
    restore()
    said = page.text_content(".edit-said") or ""
    assert float(re.findall(r"→ ([\d.]+)\.", said)[0]) == pytest.approx(after, abs=0.006)


def test_the_largest_gradient_of_a_matrix_is_the_weight_that_opens(
    opened: Open, task: Seq2SeqTask
) -> None:
    page = opened()
    page.get_by_role("button", name="A weight").click()
    page.get_by_label("In", exact=True).select_option("Output layer")
    source = task.source.encode("가나 b")
    own, ended = greedy(task, [], source)
    gradients, _ = backward(task, source, own, list(range(len(own) + ended)), [])
    d = gradients["output.weight"]
    row, column = np.unravel_index(np.abs(d).argmax(), d.shape)
    assert page.get_by_label("Row", exact=True).input_value() == str(row + 1)
    assert page.get_by_label("Column", exact=True).input_value() == str(column + 1)
    assert curve(page)[1] == pytest.approx(d[row, column], rel=1e-3)


def test_the_largest_gradient_is_looked_for_in_all_heads(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    source = task.source.encode("가나 b")
    own, ended = greedy(task, [], source)
    _, recorder = backward(task, source, own, list(range(len(own) + ended)), [])
    names = {id(module): name for name, module in task.model.named_modules()}
    heads = {
        f"{stack}.{i}.{h}": float(np.abs(of_head).max())
        for stack in ("encoder", "decoder")
        for i, step in enumerate(task.model.stacks()[stack].steps)
        if hasattr(step.block.body, "out_proj")
        for h, of_head in enumerate(recorder.maps[names[id(step.block.body)]].dscores[0])
    }
    steepest = max(heads, key=lambda head: heads[head])
    assert page.evaluate("pellucid.trial.look") != steepest
    page.get_by_role("button", name="Largest gradient").click()
    assert page.evaluate("pellucid.trial.look") == steepest
    assert abs(curve(page)[1]) == pytest.approx(heads[steepest], rel=1e-3)


def test_two_texts_have_one_cursor(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    page.get_by_label("Beside it").select_option("text")
    page.get_by_role("textbox", name="The other text").fill("마바사")
    assert page.locator(".try-edges").count() == 2
    page.locator(".try-edges td[data-row='1'][data-column='1']").nth(1).hover()
    assert page.locator(".try-edges td.at").count() == 2
    assert (page.text_content(".try-maps + .value") or "").count("%") == 2
    page.get_by_label("Beside it").select_option("head")
    assert page.locator(".try-map h3").all_text_contents() == [
        "Decoder · Layer 2 · Cross-attention · head 1",
        "Decoder · Layer 2 · Cross-attention · head 2",
    ]


def test_a_step_against_the_followed_gradient_raises_p(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    page.locator("#tab-backward").click()
    page.get_by_role("button", name="Take the step").click()
    step = page.evaluate("pellucid.model.state.step")
    sure = page.evaluate("pellucid.record.steps.map(({probability}) => probability)")
    assert step == int(np.argmin(sure))  # the page opens on the token that it was least sure of
    place = page.evaluate("pellucid.record.flows[pellucid.model.state.step].place")
    tokens = page.evaluate("pellucid.record.steps.map(({token}) => token)")
    own = [token for token in tokens if token != task.model.config.eos_token_id]
    gradients, _ = backward(task, task.source.encode("가나 b"), own, [place], [])
    squares = sum(float((d * d).sum()) for d in gradients.values() if d is not None)
    assert float(page.input_value("#flow-eta")) > 0  # the step is taken, not only offered
    label = page.get_attribute(".flow-step .curve", "aria-label") or ""
    assert float(re.findall(r"−([\d.e−]+\d)\.$", label)[0]) == pytest.approx(squares, rel=1e-3)
    page.locator("#flow-eta").evaluate(
        "s => { s.value = s.max / 20; s.dispatchEvent(new Event('input')); }"
    )
    before, after = re.findall(r"([\d.]+) %", page.text_content(".flow-said") or "")
    assert float(after) > float(before)


def test_the_bars_of_the_ledger_add_up_to_the_logit(opened: Open) -> None:
    page = opened()
    for place in (0, 1):
        page.locator(".try-row button.said").nth(place).click()
        shown = page.locator(".try-ledger td:nth-child(2) .p").all_text_contents()
        *parts, total = (float(x.replace("−", "-")) for x in shown)
        assert sum(parts) == pytest.approx(total, abs=0.005 * len(shown))


def test_what_was_typed_outlives_the_language_and_is_korean(opened: Open) -> None:
    page = opened()
    page.get_by_label("Text", exact=True).fill("마바사")
    page.evaluate("pellucid.trial.toggle(['decoder.2'])")
    page.locator("#language").click()
    settle(page)
    assert page.get_by_role("tab", name="직접 해 보기").get_attribute("aria-selected") == "true"
    assert page.get_by_label("텍스트", exact=True).input_value() == "마바사"
    assert "디코더 · 레이어 1 · 피드포워드" in (page.text_content(".try-outcome") or "")
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


def test_an_expected_answer_is_looked_at_in_place_of_the_models_own(
    opened: Open, task: Seq2SeqTask
) -> None:
    page = opened()
    source, expected = task.source.encode("가나 b"), "b나"
    own = task.target.decode(greedy(task, [], source)[0])
    assert own != expected
    page.fill("#try-expected", expected)
    page.locator("#try-expected").blur()
    settle(page)
    assert texts(page) == [own, expected]
    ids = task.target.encode(expected)
    log_p, _ = ops.log_softmax(run(task, [], source, ids)[0])
    right = [*ids, task.model.config.eos_token_id]
    nats_of = -sum(float(log_p[i, token]) for i, token in enumerate(right))
    losses = page.evaluate("pellucid.trial.whole.answer.losses")
    assert sum(losses) == pytest.approx(nats_of, abs=1e-5)
    # Three kept steps make it likelier each time; the way back is exact.
    page.get_by_role("button", name="All weights").click()
    before = sum(losses)
    for _ in range(3):
        curve(page)
        page.get_by_role("button", name="Keep this change").click()
        now = page.evaluate("pellucid.trial.whole.answer.losses.reduce((a, b) => a + b)")
        assert now < before
        before = now
    page.locator(".try-edit").get_by_role("button", name="As it was trained").click()
    assert page.evaluate("pellucid.trial.whole.answer.losses") == losses
    page.fill("#try-text", "나")
    assert page.input_value("#try-expected") == ""


def test_the_difference_of_two_logits_adds_up(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    page.locator(".try-typing .said").first.click()  # it opens on the least sure token
    settle(page)
    source = task.source.encode("가나 b")
    own, _ = greedy(task, [], source)
    page.locator(".try-decided .choices button").first.click()
    other = page.evaluate("pellucid.trial.rather")
    logits = np.asarray(run(task, [], source, own)[0])[0]
    title = page.inner_text(".try-decided h2")
    assert title.startswith(f"Why “{task.target.decode([own[0]])}” rather than “")
    total = page.inner_text(".try-decided tr.total").split()[1].replace("−", "-")
    assert float(total) == pytest.approx(float(logits[own[0]] - logits[other]), abs=0.006)
    # The ranking is of the difference too: how far it falls without a part.
    settle(page)

    def apart(off: list[str]) -> float:
        logits = run(task, off, source, own)[0][0]
        return float(logits[own[0]] - logits[other])

    look = "pellucid.trial.effects.map(({part, grows}) => [part, grows])"
    effects = page.evaluate(look)
    for part, grows in effects[:4] + effects[-4:]:
        assert grows == pytest.approx(apart([]) - apart([part]), abs=1e-5)
    assert "minus that of" in page.locator(".try-ranking").locator("..").inner_text()
    page.get_by_role("button", name="its mean here").click()
    settle(page)
    assert page.evaluate(look) != effects
    assert "instead=mean" in page.url
    page.get_by_role("button", name="its rows in another text").click()
    page.get_by_label("The other text").first.fill("가나 b")  # the text itself changes nothing
    settle(page)
    same = dict(page.evaluate(look))
    assert max(abs(grows) for part, grows in same.items() if "source" not in part) < 1e-5


@pytest.mark.parametrize("edit", ["score", "weight", "step"])
def test_a_link_opens_the_token_the_other_one_and_the_edit(opened: Open, edit: str) -> None:
    page = opened()
    least = page.evaluate("pellucid.trial.token")
    chosen = 1 if least == 0 else 0
    page.locator(".try-typing .said").nth(chosen).click()
    settle(page)
    page.locator(".try-decided .choices button").nth(1).click()
    settle(page)
    page.locator(".try-ranking li button").first.click()
    name = {"score": "A score", "weight": "A weight", "step": "All weights"}[edit]
    page.locator(".try-edit .segmented button", has_text=name).click()
    settle(page)
    if edit == "score":
        page.select_option("#edit-query", index=1)
    if edit == "weight":
        page.select_option("#edit-where", index=2)
        page.select_option("#edit-matrix", index=1)
        page.fill("#edit-row", "3")
        page.locator("#edit-row").blur()
    settle(page)
    page.evaluate("""() => {
        const slider = document.getElementById("edit-by");
        slider.value = Number(slider.min) + 0.7 * (slider.max - slider.min);
        slider.dispatchEvent(new Event("input"));
    }""")
    seen = """() => {
        const { token, rather, look, edit } = pellucid.trial;
        const { value } = document.getElementById("edit-by");
        const said = document.querySelector(".edit-said").textContent;
        return { token, rather, look, edit: { ...edit, by: null }, value, said };
    }"""
    before = page.evaluate(seen)
    assert before["token"] == chosen
    assert before["rather"] is not None
    page.wait_for_function("() => location.hash.includes('by=')")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    settle(page)
    assert page.evaluate(seen) == before
    page.locator("#language").click()  # the parts are built anew
    settle(page)
    assert page.evaluate("document.getElementById('edit-by').value") == before["value"]
    page.locator(".try-typing .said").nth(least).click()
    settle(page)
    assert "rather=" not in page.url
    assert "token=" not in page.url


def test_the_least_sure_token_of_an_answer_is_chosen_first(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()

    def least(text: str, answer: str | None = None) -> int:
        record = view.attention(task, text, answer).record
        return int(np.argmin([step.probability for step in record.steps]))

    for text in ("가나 b", "다나가 bc", "마바사"):
        page.locator("#try-text").fill(text)
        settle(page)
        assert page.evaluate("pellucid.trial.token") == least(text)
    page.get_by_label("Expected answer").fill("나나 가b")
    page.get_by_label("Expected answer").press("Enter")
    settle(page)
    assert page.evaluate("pellucid.trial.token") == least("마바사", "나나 가b") != 0
    page.locator(".try-typing button.said").first.click()
    page.evaluate("pellucid.trial.take()")
    assert page.evaluate("pellucid.trial.token") == 0, "a choice outlives a step"
    pressed = page.locator(".try-typing .said[aria-pressed=true]")
    assert pressed.count() == 1


def test_a_map_wider_than_a_phone_says_that_it_goes_on(opened: Open) -> None:
    page = opened(viewport=NARROW)
    page.fill("#try-text", "가나 다라 마바 사아 자차 카타")
    settle(page)
    region = page.locator(".try-map .try-scroll")
    more = page.locator(".try-map .more")
    page.wait_for_function("() => document.querySelector('.try-map .more').checkVisibility()")
    assert more.inner_text() == "→ more"
    region.evaluate("e => e.scrollTo(e.scrollWidth, 0)")
    page.wait_for_function(
        "() => document.querySelector('.try-map .more').classList.contains('none')"
    )
    page.set_viewport_size(WIDE)
    settle(page)
    assert not more.is_visible()


def test_paper_has_no_choices_of_the_tab(opened: Open) -> None:
    page = opened()
    named = (".try-decided .choices", ".segmented:has(~ .try-ranking)", ".try-modes .segmented")
    assert all(page.locator(each).first.is_visible() for each in named)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not any(page.locator(each).first.is_visible() for each in named)
    shown = page.locator(".segmented button:not([aria-pressed=true])")
    assert shown.evaluate_all("all => all.filter(e => e.checkVisibility()).length") == 0


def test_the_curve_and_the_gradients_of_a_difference(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    page.locator(".try-typing .said").first.click()  # it opens on the least sure token
    settle(page)
    source = task.source.encode("가나 b")
    own, _ = greedy(task, [], source)
    page.locator(".try-decided .choices button").first.click()
    between = {"at": 0, "other": page.evaluate("pellucid.trial.rather")}
    gradients, recorder = backward(task, source, own, [], [], between)
    loss, slope = curve(page)
    assert loss == pytest.approx(apart(task, source, own, between), rel=1e-3)
    names = {id(module): name for name, module in task.model.named_modules()}
    last = task.model.stacks()["decoder"].steps[4].block.body
    dscores = recorder.maps[names[id(last)]].dscores[0, 0]
    assert abs(slope) == pytest.approx(np.abs(dscores).max(), rel=1e-3)
    assert "times as likely as" in (page.text_content(".edit-said") or "")
    page.get_by_label("Beside it").select_option("gradient")
    grid = page.locator(".try-map").nth(1)
    assert (grid.locator("h3").text_content() or "").startswith("Gradient of the scores: logit “")
    shown = [cell.split(": ")[-1].replace("−", "-") for cell in page.evaluate(
        "[...document.querySelectorAll('.try-map:last-child td[data-row]')].map(c => c.title)"
    )]  # fmt: skip
    np.testing.assert_allclose([float(x) for x in shown], dscores.ravel(), rtol=6e-3, atol=1e-9)
    assert page.locator(".try-attribution .share").count() == len(source) + 1 + len(own)
    # The ribbons of the other tab, and the step that makes the two tokens likelier alike.
    page.locator("#tab-backward").click()
    page.locator("#flow-choice").select_option(index=0)
    page.locator("#flow-rather").select_option(index=1)
    page.locator(".flow-sentence", has_text="above that of").wait_for()  # drawn at the next frame
    page.wait_for_function("() => location.hash.includes('rather=')")
    page.reload()  # a link opens what one sees
    page.locator(".flow-sentence", has_text="above that of").wait_for()
    page.get_by_role("button", name="Take the step").click()
    squares = sum(float((d * d).sum()) for d in gradients.values() if d is not None)
    label = page.get_attribute(".flow-step .curve", "aria-label") or ""
    assert float(re.findall(r"−([\d.e−]+\d)\.$", label)[0]) == pytest.approx(squares, rel=1e-3)


def taught(task: Seq2SeqTask, source: list[int], answer: list[int]) -> list[float]:
    """Take three steps of a lesson in the library; return −log p before, between and after."""
    counted = list(range(len(answer) + 1))
    losses = [nats(task, source, answer, counted)]
    for _ in range(3):
        gradients, _ = backward(task, source, answer, counted, [])
        squares = sum(float((d * d).sum()) for d in gradients.values() if d is not None)
        for name, parameter in task.model.named_parameters():
            if (d := gradients[name]) is not None:
                parameter.data = parameter.data - losses[-1] / (2 * squares) * d
        losses.append(nats(task, source, answer, counted))
    return losses


def test_a_lesson_is_three_steps_of_the_library_and_a_link_carries_it(opened: Open) -> None:
    task = quantized(speaking(train_tokenizer([*TEXTS, "나b"], kind="char")))
    page = opened()
    others = ["나", "마바", "가나", "가나 b"]
    source, right = task.source.encode("가나 b"), "b나"
    before = [task.target.decode(greedy(task, [], task.source.encode(text))[0]) for text in others]
    losses = taught(task, source, task.target.encode(right))
    after = [task.target.decode(greedy(task, [], task.source.encode(text))[0]) for text in others]
    assert losses[-1] < losses[0] / 2
    page.fill("#try-expected", right)
    page.locator("#try-expected").blur()
    settle(page)
    page.click("#try-learn")
    settle(page)
    assert page.evaluate("pellucid.trial.lessons[0].losses") == pytest.approx(losses, abs=1e-4)
    page.fill("#try-others", ", ".join(others))
    page.locator("#try-others").blur()
    page.wait_for_function("""() => /^\\d of 4 have another answer\\.$/.test(
        document.querySelector('.try-teaching [role=status]').textContent)""")
    rows = page.evaluate("""[...document.querySelectorAll('.try-others tbody tr')].map(
        row => [...row.children].map(cell => cell.textContent))""")
    assert sorted(rows) == sorted(map(list, zip(others, before, after, strict=True)))
    changed = [row[0] for row in rows if row[1] != row[2]]
    assert changed
    assert [row[0] for row in rows][: len(changed)] == changed
    weights = "pellucid.trial.runner.tensors.map(({values}) => [...values])"
    kept, address = page.evaluate(weights), page.url
    assert "learn=" in address
    page.goto("about:blank")
    page.goto(address)
    settle(page)
    assert page.evaluate(weights) == kept
    # A step by hand is in no link.
    assert page.get_by_text("The address of this page has the lessons").is_visible()
    page.get_by_role("button", name="All weights").click()
    curve(page)
    page.get_by_role("button", name="Keep this change").click()
    settle(page)
    assert "learn=" not in page.url
    page.locator(".try-teaching").get_by_role("button", name="As it was trained").click()
    settle(page)
    assert page.locator(".try-others").is_hidden()


def test_what_is_typed_on_one_tab_is_on_all(opened: Open, task: Seq2SeqTask) -> None:
    page = opened()
    page.locator("#tab-attention").click()
    page.get_by_label("Your own text").fill("마바사")
    page.locator("h1", has_text="마바사").wait_for()
    answer, _ = greedy(task, [], task.source.encode("마바사"))
    record = view.attention(task, "마바사").record
    assert page.evaluate("document.activeElement.id") == "ask-text"
    assert "text=" in page.evaluate("location.hash")
    assert page.evaluate("pellucid.record.source.map(label => label[0])") == list("마바사")
    assert page.text_content("h1") == f"마바사 → {task.target.decode(answer)}"
    shown = page.evaluate("""pellucid.model.all.map(layer =>
        layer.map(head => Array.from(head.own.values)))""")
    for m, layer in zip(record.layers("cross"), shown, strict=True):
        np.testing.assert_allclose(layer, m.probabilities.reshape(len(m.q), -1), atol=1e-5)
    page.locator("#tab-run").click()
    settle(page)
    assert page.get_by_label("Text", exact=True).input_value() == "마바사"
    page.get_by_label("Text", exact=True).fill("가나")
    page.locator("#tab-generation").click()
    page.locator("h1", has_text="가나 →").wait_for()
    page.wait_for_function(
        "() => pellucid.record.source.length === 2"
    )  # a frame later than the heading


def test_tokens_of_the_river_have_their_names_on_a_phone(opened: Open) -> None:
    page = opened(viewport={"width": 380, "height": 800})
    page.get_by_label("Text", exact=True).fill("가나다라마바사가나다라마바사가나다라마바")
    page.locator("#tab-whole").click()
    page.locator("h1", has_text="가나다라마바사가").wait_for()
    for n, least in ((0, 20), (1, 2)):
        names = page.locator(".spring [role=listbox]").nth(n).locator(".choice .token.text")
        boxes = names.evaluate_all("""all => all.map(one => {
            const {left, top, right, bottom} = one.getBoundingClientRect();
            return [left, top, right, bottom, one.checkVisibility()];
        })""")
        assert len(boxes) >= least
        for i, (left, top, right, bottom, seen) in enumerate(boxes):
            assert seen
            assert right > left
            for other in boxes[i + 1 :]:
                apart = other[0] >= right - 0.5 or other[2] <= left + 0.5
                assert apart or other[1] >= bottom - 0.5 or other[3] <= top + 0.5
    assert (
        page.locator(".tools button").evaluate_all(
            "all => Math.max(...all.map(one => one.offsetHeight))"
        )
        < 45
    )  # no name of a button is broken
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_projector_the_page_is_wide_and_its_words_are_large(opened: Open) -> None:
    page = opened(viewport={"width": 1920, "height": 1000})
    for tab in ("attention", "run", "whole"):
        page.locator(f"#tab-{tab}").click()
        settle(page)
        small = page.evaluate("""tab => [...document.querySelectorAll(
            `header.page *, nav *, #panel-${tab} :is(p, h2, h3, button, label)`)]
            .filter(one => one.checkVisibility() && one.textContent.trim() !== '')
            .filter(one => parseFloat(getComputedStyle(one).fontSize) < 17)
            .filter(one => !one.closest('.legend, .flow-legend, .widths'))
            .map(one => [one.className, one.textContent.slice(0, 40)])""", tab)  # fmt: skip
        assert not small
        assert page.evaluate("document.querySelector('main').offsetWidth") > 1700

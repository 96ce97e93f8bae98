"""The page in a real browser, opened from a file: every view, by mouse and by keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view.browsing import settle
from tests.apps.view.samples import CONFIG, bert, bpe, gpt, shaken, speaking
from tests.apps.view.test_variants import DISTANCES, TOGETHER

import pellucid
from pellucid import ops
from pellucid.apps import view
from pellucid.apps.view.page import as_json
from pellucid.apps.view.record import Record, Text, select_cell
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.ops.rules.window import Window
from pellucid.tasks import Seq2SeqTask

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]
TABS = ("Attention", "Step by step", "Backward", "Generation")
WIDE, NARROW = {"width": 1400, "height": 1000}, {"width": 390, "height": 844}
FIRST_CELL = """pellucid.model.store.set(
    {tab: 'attention', layer: pellucid.model.all.length - 1, head: 0, query: 0, key: 0}
)"""
SCALES = (None, 1.0, 0.0, -0.25)


@pytest.fixture(scope="module")
def picture() -> view.Picture:
    return view.attention(speaking(bpe()), "가 😀", "나b")


@pytest.fixture(scope="module")
def file(picture: view.Picture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return picture.save(tmp_path_factory.mktemp("page") / "attention.html")


@pytest.fixture
def open_page(new_page: Callable[..., Page], file: Path, tmp_path: Path) -> Open:
    """Open the file, or another picture's, at the last layer's first head and cell."""

    def opened(other: view.Picture | None = None, **options: Any) -> Page:
        page = new_page(**{"locale": None, **options})
        page.goto((file if other is None else other.save(tmp_path / "other.html")).as_uri())
        page.wait_for_function("() => pellucid.model.colours !== undefined")
        page.evaluate(FIRST_CELL)
        settle(page)
        return page

    return opened


def pixels(page: Page, selector: str) -> str:
    settle(page)
    return str(page.locator(selector).first.evaluate("canvas => canvas.toDataURL()"))


def redrawn(page: Page, selector: str, before: str) -> str:
    """Wait until a canvas shows something else: on a busy machine that takes more than a frame."""
    script = "([selector, before]) => document.querySelector(selector).toDataURL() !== before"
    page.wait_for_function(script, arg=[selector, before])
    return pixels(page, selector)


def heads(page: Page, kind: str, what: str) -> np.ndarray:
    """Ask the page for an array of every layer and head of a kind: (layers, heads, ...)."""
    script = f"""kind => {{
        pellucid.model.chooseKind(kind);
        return pellucid.model.all.map(layer => layer.map(head => {what}));
    }}"""
    return np.array(page.evaluate(script, kind))


def flat(maps: np.ndarray) -> np.ndarray:
    """(H, L, S) as the page's arrays lie: (H, L · S)."""
    return maps.reshape(len(maps), -1)


@pytest.mark.parametrize("scale", SCALES)
def test_weights_and_outputs_equal_the_librarys(
    open_page: Open, picture: view.Picture, scale: float | None
) -> None:
    page = open_page()
    record = picture.record
    factor = "head.scale" if scale is None else repr(scale)
    for kind in record.kinds:
        weights = heads(page, kind, f"Array.from(head.weights({factor}).values)")
        outputs = heads(
            page,
            kind,
            f"Array.from({{length: head.q.count}}, (_, l) => Array.from(head.output(l, {factor})))",
        )
        for m, w, z in zip(record.layers(kind), weights, outputs, strict=True):
            expected, saved = ops.attention(
                *(x.astype(np.float64) for x in (m.q, m.k, m.v)),
                scale=m.scale if scale is None else scale,
                causal=(m.kind == "decoder"),
            )
            np.testing.assert_allclose(w, flat(saved.probabilities), atol=1e-5)
            if scale is None:
                np.testing.assert_allclose(w, flat(m.probabilities), atol=1e-5)
            assert np.abs(z - expected).max() < 1e-5 * np.abs(expected).max()


def test_gradients_equal_the_librarys(open_page: Open, picture: view.Picture) -> None:
    page = open_page()
    for kind in picture.record.kinds:
        dweights = heads(page, kind, "Array.from(head.weightGradient.values)")
        dscores = heads(page, kind, "Array.from(head.scoreGradient.values)")
        for m, dw, da in zip(picture.record.layers(kind), dweights, dscores, strict=True):
            p = m.probabilities.astype(np.float64)
            open_to = p > 0 if (m.kind == "decoder") else np.ones_like(p, bool)
            expected = np.where(open_to, m.doutputs @ m.v.swapaxes(-1, -2), 0.0)
            assert np.abs(dw - flat(expected)).max() < 1e-5 * np.abs(expected).max()
            expected = p * (expected - (p * expected).sum(-1, keepdims=True))
            assert np.abs(da - flat(expected)).max() < 1e-5 * np.abs(expected).max()


def test_the_gradients_of_a_head_equal_the_librarys_and_finite_differences(
    open_page: Open, picture: view.Picture
) -> None:
    check_gradients(open_page(), picture)


def check_gradients(page: Page, picture: view.Picture) -> None:
    differences = """(() => {
        const of = (what, rows, n) => Array.from({length: n}, (_, row) =>
            Array.from({length: rows.width}, (_, column) =>
                head.finiteDifference({what, row, column}, 1e-4)));
        const scores = Array.from({length: head.q.count}, (_, row) =>
            Array.from({length: head.k.count}, (_, column) =>
                head.own.values[row * head.k.count + column] === 0 ? 0
                    : head.finiteDifference({what: "a", row, column}, 1e-4)));
        const [q, k, v] = [of("q", head.q, head.q.count), of("k", head.k, head.k.count),
            of("v", head.v, head.v.count)];
        return [q.flat(), k.flat(), v.flat(), scores.flat()];
    })()"""
    parts = ("queryGradient", "keyGradient", "valueGradient")
    for kind in picture.record.kinds:
        shown = [heads(page, kind, f"Array.from(head.{part}.values)") for part in parts]
        scores = heads(page, kind, "Array.from(head.scoreGradient.values)")
        moved = page.evaluate(f"pellucid.model.all.map(layer => layer.map(head => {differences}))")
        for layer, m in enumerate(picture.record.layers(kind)):
            _, saved = ops.attention(
                *(x.astype(np.float64) for x in (m.q, m.k, m.v)), scale=m.scale, rule=m.rule
            )
            # of q, k and v; T5's table gets one too
            expected = ops.attention_backward(m.doutputs.astype(np.float64), saved)[:3]
            for n, (part, gradient) in enumerate(zip(shown, expected, strict=True)):
                largest = np.abs(gradient).max()
                assert np.abs(part[layer] - flat(gradient)).max() < 1e-5 * largest
                by_moving = np.array([head[n] for head in moved[layer]])
                assert np.abs(by_moving - flat(gradient)).max() < 1e-5 * largest
            by_moving = np.array([head[3] for head in moved[layer]])
            assert np.abs(by_moving - scores[layer]).max() < 1e-5 * np.abs(scores[layer]).max()


def shown_numbers(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text.replace("−", "-"))]


@pytest.mark.parametrize("kind", ["decoder", "cross"])
def test_backward_shows_every_gradient_with_our_code(
    open_page: Open, picture: view.Picture, kind: str
) -> None:
    page = open_page()
    page.get_by_role("tab", name="Backward").click()
    page.evaluate(f"pellucid.model.chooseKind('{kind}')")
    page.get_by_label("query i").last.select_option(index=3)
    page.get_by_label("key j").last.select_option(index=2)
    page.get_by_label("entry d").select_option(index=1)
    settle(page)
    m = picture.record.layers(kind)[1]
    arrays = (x.astype(np.float64) for x in (m.q, m.k, m.v))
    _, saved = ops.attention(*arrays, scale=m.scale, causal=(m.kind == "decoder"))
    dz = m.doutputs.astype(np.float64)
    dq, dk, dv = ops.attention_backward(dz, saved)
    dw = dz @ m.v.swapaxes(-1, -2)
    da = ops.softmax_backward(dw, ops.softmax(np.log(saved.probabilities + 1e-300))[1])
    expected = {
        "dV": dv[0, 2, 1],
        "dW": dw[0, 3, 2],
        "dA": da[0, 3, 2],
        "dQ": dq[0, 3, 1],
        "dK": dk[0, 2, 1],
    }
    for step, value in expected.items():
        card = page.locator(f"[data-step={step}]")
        formula, difference = card.locator(".value").all_text_contents()
        assert shown_numbers(formula.split("=")[-1])[0] == pytest.approx(value, rel=2e-2, abs=6e-5)
        assert shown_numbers(difference)[0] == pytest.approx(value, rel=2e-2, abs=6e-5)
        assert step.lower() in (card.locator("code").first.text_content() or "")
    (shown,) = page.locator("[data-step=dZ] .value").all_text_contents()[:1]
    assert shown_numbers(shown)[0] == pytest.approx(dz[0, 3, 1], rel=2e-2, abs=6e-5)
    assert m.dqueries is not None
    assert m.dkeys is not None
    dx = m.dqueries[3] + (m.dkeys[3] if kind == "decoder" else 0)
    cells = page.locator("[data-step=dx] td").all_text_contents()[: len(dx)]
    np.testing.assert_allclose(
        [float(x.replace("−", "-")) for x in cells], dx, rtol=6e-2, atol=6e-5
    )
    step = picture.record.steps[3]
    assert step.place == 3
    rows = page.locator(".losses tbody tr")
    by_hand = [float(x.replace("−", "-")) for x in rows.locator(".by-hand").all_text_contents()]
    wanted = [c.probability - (c.label == step.label) for c in step.candidates[:5]]
    np.testing.assert_allclose(by_hand[:5], wanted, rtol=2e-2, atol=6e-5)
    assert sum(x < 0 for x in by_hand) == 1


def test_backward_opens_on_the_largest_gradient_of_a_score_and_its_arithmetic_works(
    browser: Browser, forty: view.Picture, tmp_path: Path
) -> None:
    page = browser.new_page(viewport=WIDE)
    page.goto(forty.save(tmp_path / "opening.html").as_uri())
    page.get_by_role("tab", name="Backward").click()
    settle(page)
    query, key, largest, found = page.evaluate("""() => {
        const { state, head } = pellucid.model;
        const { values, columns } = head.scoreGradient;
        const size = values.map(Math.abs);
        return [state.query, state.key, Math.max(...size), size[state.query * columns + state.key]];
    }""")
    opening = select_cell(forty.record)
    assert found == largest > 0
    assert (query, key) != (opening.query, opening.key), "the sample has no saturated weight"
    checked = 0
    for cell in ((query, key), (opening.query, opening.key), (39, 1)):
        page.evaluate(f"pellucid.model.store.set({{query: {cell[0]}, key: {cell[1]}, entry: 3}})")
        settle(page)
        for step in ("dV", "dW", "dA", "dQ", "dK"):
            formula = page.locator(f"[data-step={step}] .value").first.text_content() or ""
            if formula.count("=") != 2:
                assert formula.startswith("masked")
                continue
            _, terms, result = formula.split(" = ")
            for shown, python in (("−", "-"), ("·", "*"), ("×", "*")):
                terms, result = terms.replace(shown, python), result.replace(shown, python)
            value = eval(re.sub(r"\(\d+ more terms?\)", "", terms))
            assert value == pytest.approx(float(result), rel=6e-4, abs=1e-12), formula
            checked += 1
    assert checked >= 10
    page.evaluate("pellucid.model.store.set({tab: 'attention', query: 1, key: 1})")
    page.evaluate("pellucid.model.store.set({tab: 'backward'})")
    settle(page)
    assert page.evaluate("[pellucid.model.state.query, pellucid.model.state.key]") == [1, 1]
    page.close()


def test_paper_has_the_whole_map_in_light_colours(
    browser: Browser, forty: view.Picture, tmp_path: Path
) -> None:
    page = browser.new_page(viewport=NARROW, color_scheme="dark")
    page.goto(forty.save(tmp_path / "paper.html").as_uri() + "#tab=attention")
    settle(page)
    before = page.evaluate("document.querySelector('.matrix .spacer').style.width")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    settle(page)
    for n in (0, 1):
        matrix = page.locator(".map .matrix").nth(n)
        seen, whole = matrix.evaluate("e => [e.clientWidth, e.scrollWidth]")
        assert whole <= seen <= 703, "the width of A4 paper between its margins"
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert not page.get_by_role("button", name="Fit").is_visible()
    assert not page.get_by_label("layer", exact=True).is_visible()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    settle(page)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.querySelector('.matrix .spacer').style.width") == before
    page.close()


def test_paper_has_the_whole_search_and_no_buttons(
    browser: Browser, picture: view.Picture, tmp_path: Path
) -> None:
    page = browser.new_page(viewport=WIDE)
    page.goto(picture.save(tmp_path / "paper.html").as_uri())
    page.get_by_role("tab", name="Generation").click()
    settle(page)
    places = """() => [...document.querySelectorAll('.tree .node')].map(
        node => node.getAttribute('transform').split(' ')[0])"""
    before = page.evaluate(places)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    settle(page)
    tree = box(page, ".tree")
    nodes = page.locator(".tree .node rect").all()
    assert len(nodes) > 7
    for node in nodes:
        one = node.bounding_box()
        assert one
        assert tree["x"] <= one["x"]
        assert one["x"] + one["width"] <= tree["x"] + tree["width"] + 1
    assert page.evaluate(places) != before, "columns go on in the next line"
    for hidden in ("Guess one yourself", "show dropped tokens"):
        assert not page.get_by_text(hidden).first.is_visible()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    settle(page)
    assert page.evaluate(places) == before
    page.close()


def test_a_long_title_keeps_its_answer(open_page: Open, forty: view.Picture) -> None:
    page = open_page(forty, viewport=NARROW)
    answer = page.locator("h1 span").last
    title = box(page, "h1")
    shown = answer.bounding_box()
    assert shown
    assert (answer.text_content() or "").startswith(" → ")
    assert shown["y"] + shown["height"] <= title["y"] + title["height"] + 1


def test_backward_shows_the_check_of_the_whole_model(
    browser: Browser, picture: view.Picture, tmp_path: Path
) -> None:
    page = browser.new_page(viewport=WIDE)
    page.goto(picture.save(tmp_path / "check.html").as_uri())
    page.get_by_role("tab", name="Backward").click()
    settle(page)
    check = picture.record.check
    assert check is not None
    text = page.locator("[data-step=dZ] .value").last.text_content() or ""
    by_hand, difference = shown_numbers(text.split("=", 1)[1])
    assert by_hand == difference == pytest.approx(check.by_hand, rel=2e-2, abs=6e-5)
    page.close()


def test_the_language_follows_the_browser_and_the_switch(
    open_page: Open, picture: view.Picture
) -> None:
    page = open_page(locale="ko-KR")
    assert page.get_by_role("tab", name="단계별 계산").is_visible()
    assert page.evaluate("document.documentElement.lang") == "ko"
    assert picture.record.model.ko in (page.text_content("header.page") or "")
    page.get_by_role("tab", name="역전파").click()
    page.evaluate("pellucid.model.store.set({query: 2, head: 1})")
    page.get_by_role("button", name="English").focus()
    page.keyboard.press("Enter")
    settle(page)
    assert page.get_by_role("tab", name="Backward").get_attribute("aria-selected") == "true"
    state = page.evaluate("pellucid.model.state")
    assert (state["query"], state["head"], state["language"]) == (2, 1, "en")
    assert page.evaluate("document.activeElement.id") == "language"
    assert not re.search("[가-힣]", page.locator("nav").text_content() or "")


def test_the_language_asked_for_comes_before_the_browsers(
    browser: Browser, picture: view.Picture, tmp_path: Path
) -> None:
    page = browser.new_page(locale="en-US")
    page.goto(picture.save(tmp_path / "korean.html", language="ko").as_uri())
    assert page.get_by_role("tab", name="어텐션").is_visible()
    page.close()


def test_entropies_equal_the_librarys(open_page: Open, picture: view.Picture) -> None:
    page = open_page()
    for kind in picture.record.kinds:
        shown = heads(page, kind, "head.ownSummary.entropy")
        expected = [m.entropies for m in picture.record.layers(kind)]
        np.testing.assert_allclose(shown, expected, atol=1e-5)


def test_the_slider_changes_the_matrix_by_keyboard_and_by_mouse(open_page: Open) -> None:
    page = open_page()
    before = pixels(page, ".matrix canvas")
    small = pixels(page, ".thumbnail canvas")
    slider = page.locator("#scale-slider")
    slider.focus()
    page.keyboard.press("Home")
    moved = redrawn(page, ".matrix canvas", before)
    redrawn(page, ".thumbnail canvas", small)
    assert page.locator(".power").text_content() == "p = −0.50".replace("−", "-")
    box = slider.bounding_box()
    assert box
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
    redrawn(page, ".matrix canvas", moved)
    page.get_by_role("button", name="own", exact=True).click()
    assert pixels(page, ".matrix canvas") == before
    page.get_by_label("Any scale").fill("0")
    page.keyboard.press("Enter")
    settle(page)
    weights = np.array(page.evaluate("Array.from(pellucid.model.head.weights(0).values)"))
    np.testing.assert_allclose(weights, 1 / page.evaluate("pellucid.model.keys.length"), atol=1e-6)
    assert page.locator(".power").text_content() == "no such p"


def test_every_tab_opens_by_keyboard(open_page: Open) -> None:
    page = open_page()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "tab":
            break
    for name in TABS[1:]:
        page.keyboard.press("ArrowRight")
        settle(page)
        assert page.get_by_role("tabpanel", name=name).is_visible()
        assert page.locator("[role=tabpanel]:visible").count() == 1


def test_heads_are_chosen_by_mouse_and_by_keyboard(open_page: Open) -> None:
    page = open_page()
    title = page.locator(".large h2")
    page.get_by_role("option", name="layer 1, head 3").click()
    settle(page)
    assert title.text_content() == "Cross-attention, layer 1, head 3"
    page.keyboard.press("Tab")
    page.get_by_role("option", name="layer 1, head 3").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert title.text_content() == "Cross-attention, layer 2, head 2"
    assert page.evaluate("document.activeElement.ariaSelected") == "true"
    page.get_by_role("button", name="Encoder self-attention").click()
    page.get_by_label("layer", exact=True).select_option("1")
    settle(page)
    assert title.text_content() == "Encoder self-attention, layer 1, head 2"


def test_cells_are_chosen_by_mouse_and_by_keyboard(open_page: Open, picture: view.Picture) -> None:
    page = open_page()
    matrix = page.get_by_role("application", name="Weights", exact=True)
    readout = page.locator("#readout")
    matrix.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
        settle(page)
    text = readout.text_content() or ""
    assert "query 2 “나₁”, predicting “나₂”, → key 3 “가₃”" in text
    assert page.evaluate("[pellucid.model.state.query, pellucid.model.state.key]") == [1, 2]
    m = picture.record.layers("cross")[1]
    assert f"weight {m.probabilities[0, 1, 2]:.3f}"[:10] in text.replace("−", "-")
    box = matrix.bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.85)
    settle(page)
    assert page.evaluate("pellucid.model.state.query") > 1
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.6)
    settle(page)
    assert readout.text_content() != text
    matrix.focus()
    page.keyboard.press("]")
    page.keyboard.press("{")
    settle(page)
    assert page.evaluate("[pellucid.model.state.layer, pellucid.model.state.head]") == [0, 1]
    size = page.locator(".matrix .spacer").first.bounding_box()
    page.keyboard.press("+")
    settle(page)
    grown = page.locator(".matrix .spacer").first.bounding_box()
    assert size
    assert grown
    assert grown["width"] > size["width"]


def test_a_key_pressed_before_another_kind_is_drawn_stays_inside_it(open_page: Open) -> None:
    page = open_page()
    page.evaluate("""() => {
        pellucid.model.chooseKind("decoder");
        const press = new KeyboardEvent("keydown", { key: "End" });
        document.querySelector(".matrix").dispatchEvent(press);
    }""")
    settle(page)
    assert (
        page.evaluate("pellucid.model.state.key") == page.evaluate("pellucid.model.keys.length") - 1
    )


def test_masked_cells_say_so(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("button", name="Decoder self-attention").click()
    page.get_by_role("application", name="Weights", exact=True).focus()
    page.keyboard.press("End")
    settle(page)
    assert "may not look ahead to key" in (page.locator("#readout").text_content() or "")


def test_lines_and_the_map_next_to_them(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("button", name="Lines").focus()
    page.keyboard.press("Enter")
    settle(page)
    lines = page.get_by_role("application", name="Tokens linked by weights")
    assert lines.is_visible()
    drawn = pixels(page, ".lines canvas")
    lines.focus()
    page.keyboard.press("ArrowDown")
    redrawn(page, ".lines canvas", drawn)
    beside = pixels(page, ".map:nth-child(2) canvas")
    page.get_by_role("button", name="∂L/∂A").click()
    redrawn(page, ".map:nth-child(2) canvas", beside)
    page.get_by_role("button", name="change").click()
    page.get_by_role("button", name="1", exact=True).click()
    settle(page)
    assert "now minus the model’s own" in (page.locator(".large").text_content() or "")


def test_step_by_step_shows_the_numbers(open_page: Open, picture: view.Picture) -> None:
    page = open_page()
    page.get_by_role("tab", name="Step by step").click()
    settle(page)
    assert "" not in page.locator(".numbers tbody td").all_text_contents()
    page.get_by_label("query i").first.select_option(index=2)
    page.get_by_label("key j").first.select_option(index=1)
    settle(page)
    m = picture.record.layers("cross")[1]
    row = page.locator(".numbers tbody tr").nth(1)
    cells = [float(text.replace("−", "-")) for text in row.locator("td").all_text_contents()]
    raw = float(m.q[0, 2] @ m.k[0, 1])
    expected = [raw, raw * m.scale, raw * m.scale]
    np.testing.assert_allclose(cells[:3], expected, atol=2e-3)
    assert cells[4] == pytest.approx(float(m.probabilities[0, 2, 1]), abs=2e-3)
    stages = page.locator(".stage .value").all_text_contents()
    titles = page.locator(".stage h3")
    assert [title.text_content() for title in titles.all() if title.is_visible()] == [
        "1 Scores", "2 Scaled", "3 Softmax", "4 Output",
    ]  # fmt: skip
    assert stages[3].endswith(f"= {page.locator('.numbers tr.chosen .weight').text_content()}")
    assert page.locator("#panel-steps .strip tr").count() == 4
    before = row.locator("td").nth(4).text_content()
    page.get_by_role("button", name="1", exact=True).click()
    settle(page)
    assert row.locator("td").nth(4).text_content() != before
    page.locator(".numbers tbody tr").nth(3).click()
    settle(page)
    assert page.evaluate("pellucid.model.state.key") == 3
    page.locator(".stage .picture").first.click(position={"x": 3, "y": 3})
    settle(page)
    assert page.evaluate("[pellucid.model.state.query, pellucid.model.state.key]") == [0, 0]


def own_weights(page: Page, picture: view.Picture) -> None:
    """The weights that the page makes of queries, keys and scales are those that the model had."""
    for kind in picture.record.kinds:
        shown = heads(page, kind, "Array.from(head.weights(head.scale).values)")
        for m, w in zip(picture.record.layers(kind), shown, strict=True):
            np.testing.assert_allclose(w, flat(m.probabilities), atol=1e-5)


@pytest.mark.parametrize("settings", [TOGETHER, DISTANCES], ids=["together", "distances"])
def test_newer_parts_equal_the_librarys(open_page: Open, settings: dict[str, Any]) -> None:
    model = shaken(replace(CONFIG, num_attention_heads=4, d_model=16, **settings))
    picture = view.attention(model, [5, 6, 7, 5, 4, 8], [4, 12, 8, 5])
    page = open_page(picture)
    own_weights(page, picture)
    check_gradients(page, picture)
    page.evaluate("pellucid.model.chooseKind('decoder')")
    page.get_by_role("tab", name="Step by step").click()
    page.evaluate("pellucid.model.store.set({layer: 0, head: 0, query: 4, key: 4})")
    settle(page)
    m = picture.record.layers("decoder")[0]
    raw = m.q[0, 4].astype(float) @ m.k[0].T
    cells = np.array(page.locator(".numbers tbody td").all_text_contents()).reshape(5, -1)
    found = np.vectorize(lambda x: float(x.replace("−", "-").replace("∞", "inf")))(cells)
    np.testing.assert_allclose(found[:, 0], raw, rtol=1e-3, atol=2e-3)
    np.testing.assert_allclose(found[:, 4], m.probabilities[0, 4], atol=2e-3)
    stages = page.locator(".stage .value").all_text_contents()
    assert shown_numbers(stages[2])[-1] == pytest.approx(found[4, 2], abs=2e-3)
    window = m.rule.part(Window)
    reach = 99 if window is None else window.size
    assert np.isinf(found[:, 2]).tolist() == [j <= 4 - reach for j in range(5)]


def test_every_head_shows_the_scale_that_it_has_learned(open_page: Open) -> None:
    model = shaken(replace(CONFIG, attention_scale="learned"))
    picture = view.attention(model, [5, 6, 7, 5], [4, 12, 8])
    page = open_page(picture)
    own_weights(page, picture)
    m = picture.record.layers("cross")[1]
    assert len(set(m.scales)) == 3
    page.get_by_role("tab", name="Step by step").click()
    for head, scale in enumerate(m.scales):
        page.get_by_label("head", exact=True).select_option(index=head)
        settle(page)
        raw = float(m.q[head, 0] @ m.k[head, 0])
        row = page.locator(".numbers tbody tr").first.locator("td")
        cells = [float(text.replace("−", "-")) for text in row.all_text_contents()]
        np.testing.assert_allclose(cells[:2], [raw, raw * scale], atol=2e-3)
        reported = page.locator(".stage .value").nth(1).text_content() or ""
        assert float(reported.split(" × ")[0].replace("−", "-")) == pytest.approx(scale, abs=6e-4)
        own, now = page.locator(".effect tr").nth(1).locator("td").all_text_contents()
        assert own == now
        assert float(own) == pytest.approx(float(reported.split(" × ")[0]), rel=1e-3)


def test_the_page_of_a_decoder_alone(open_page: Open) -> None:
    picture = view.attention(gpt(), "가나", "다a")
    page = open_page(picture)
    own_weights(page, picture)
    assert page.locator(".large h2").text_content() == "Decoder self-attention, layer 2, head 1"
    assert page.get_by_role("group", name="Kind of attention").get_by_role("button").count() == 1
    page.get_by_role("application", name="Weights", exact=True).focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
        settle(page)
    readout = page.locator("#readout").text_content() or ""
    assert "query 3 “나”, predicting “다”, → key 1 “<s>”" in readout
    page.get_by_role("tab", name="Step by step").click()
    settle(page)
    assert page.locator(".numbers tbody tr.forbidden").count() == 2
    page.get_by_role("tab", name="Generation").click()
    page.locator(".said").nth(1).click()
    settle(page)
    record = picture.record
    assert page.locator(".said .token").all_text_contents() == ["다", "a", "</s>"]
    shown = page.locator(".candidates li:not(.rest) .token").all_text_contents()
    assert shown == [c.label.text for c in record.steps[1].candidates]
    assert page.locator(".looks .token.ahead").count() == 1
    assert page.get_by_role("treeitem").count() > 1


def test_the_page_of_an_encoder_alone(open_page: Open) -> None:
    picture = view.attention(bert(), "a[MASK]가")
    page = open_page(picture)
    own_weights(page, picture)
    assert page.locator(".large h2").text_content() == "Encoder self-attention, layer 2, head 1"
    page.get_by_role("application", name="Weights", exact=True).focus()
    page.keyboard.press("End")
    settle(page)
    readout = page.locator("#readout").text_content() or ""
    assert "query 1 “<s>” → key 5 “</s>”: q·k" in readout
    page.get_by_role("tab", name="Step by step").click()
    settle(page)
    assert not page.locator(".stage").nth(2).is_visible()
    page.get_by_role("tab", name="Guesses").click()
    settle(page)
    (step,) = picture.record.steps
    assert page.get_by_text("Most likely at token 3 of the text").is_visible()
    shown = page.locator(".candidates li:not(.rest) .token").all_text_contents()
    assert shown == [c.label.text for c in step.candidates]
    assert page.locator(".candidates .chosen .mark").text_content() == "taken"
    assert page.locator(".looks .token").all_text_contents() == [
        label.text for label in picture.record.source
    ]
    assert page.get_by_role("treeitem").count() == 0


def test_generation_by_mouse_and_by_keyboard(open_page: Open, picture: view.Picture) -> None:
    page = open_page()
    page.get_by_role("tab", name="Generation").click()
    settle(page)
    steps = picture.record.steps
    assert page.locator(".said").count() == len(steps)
    page.locator(".said").nth(1).click()
    page.locator(".said").nth(1).focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert page.get_by_text("Most likely in place 3").is_visible()
    shown = page.locator(".candidates li:not(.rest) .token").all_text_contents()
    assert shown == [c.label.text for c in steps[2].candidates]
    assert page.locator(".looks .token").count() == len(picture.record.source)


def test_the_tree_by_mouse_and_by_keyboard(open_page: Open, picture: view.Picture) -> None:
    page = open_page()
    page.get_by_role("tab", name="Generation").click()
    settle(page)
    kept = [node for node in picture.record.tree if node.state != "dropped"]
    nodes = page.get_by_role("treeitem")
    assert nodes.count() == len(kept)
    nodes.first.click()
    settle(page)
    detail = page.locator(".card > output").last
    assert "“<s>”" in (detail.text_content() or "")
    nodes.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    settle(page)
    assert page.evaluate("pellucid.model.record.tree[pellucid.model.state.node][0]") == 0
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    page.get_by_label("show dropped tokens").check()
    settle(page)
    assert nodes.count() == len(picture.record.tree)


def test_the_theme_and_the_keys(open_page: Open) -> None:
    page = open_page()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    shaded = pixels(page, ".matrix canvas")
    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    redrawn(page, ".matrix canvas", shaded)
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Theme: dark").click()
    page.emulate_media(color_scheme="dark")
    settle(page)
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Keys", exact=True).click()
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_no_serious_violation(
    open_page: Open, axe: str, scheme: str, size: dict[str, int]
) -> None:
    page = open_page(color_scheme=scheme, viewport=size)
    page.evaluate(axe)
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        settle(page)
        found = page.evaluate("axe.run()")["violations"]
        serious = [
            (violation["id"], [node["html"] for node in violation["nodes"]])
            for violation in found
            if violation["impact"] in ("serious", "critical")
        ]
        assert not serious, tab


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_tour_has_ten_stops_by_keyboard(
    open_page: Open, axe: str, size: dict[str, int]
) -> None:
    page = open_page(viewport=size)
    page.get_by_role("button", name="Tour").focus()
    page.keyboard.press("Enter")
    tour = page.get_by_role("region", name="Tour")
    titles, marked = [], []
    for stop in range(1, 11):
        settle(page)
        assert f"Stop {stop} of 10" in (tour.text_content() or "")
        titles.append(tour.get_by_role("heading").text_content())
        part = page.locator(".toured")
        assert part.count() == 1
        assert part.is_visible()
        marked.append(box(page, ".toured")["y"] < size["height"] / 2)
        page.keyboard.press("ArrowRight")
    assert len(set(titles)) == 10
    assert all(marked), marked
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    serious = [violation for violation in found if violation["impact"] in ("serious", "critical")]
    assert not [[node["html"] for node in violation["nodes"]] for violation in serious]
    page.get_by_role("button", name="한국어").click()
    settle(page)
    assert "전체 10곳 중 10번째" in (page.locator(".tour").text_content() or "")
    page.locator(".tour button").last.focus()
    page.keyboard.press("Escape")
    settle(page)
    assert not page.locator(".tour").is_visible()
    assert page.locator(".toured").count() == 0
    assert page.evaluate("document.activeElement.id") == "tour-start"


def test_a_term_shows_its_meaning_on_hover_and_focus(open_page: Open) -> None:
    page = open_page()
    meaning = page.get_by_role("tooltip")
    term = page.locator(".overview .term")
    assert term.text_content() == "entropy"
    term.hover()
    assert "−Σ w log w" in (meaning.text_content() or "")
    assert meaning.is_visible()
    page.mouse.move(0, 0)
    assert not meaning.is_visible()
    term.focus()
    assert meaning.is_visible()
    page.keyboard.press("Escape")
    assert not meaning.is_visible()


def test_a_narrow_page_does_not_scroll_sideways(open_page: Open) -> None:
    page = open_page(viewport=NARROW)
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]


def test_the_page_may_not_ask_the_network(browser: Browser, file: Path) -> None:
    page = browser.new_page()
    page.goto(file.as_uri())
    refused = page.evaluate("fetch('http://127.0.0.1:9/').then(() => false, () => true)")
    blocked = page.evaluate(
        """() => new Promise(done => {
            addEventListener('securitypolicyviolation', event => done(event.violatedDirective));
            fetch('http://127.0.0.1:9/').catch(() => {});
        })"""
    )
    page.close()
    assert refused
    assert blocked == "connect-src"


def test_a_file_of_another_kind_is_refused(
    browser: Browser, picture: view.Picture, tmp_path: Path
) -> None:
    empty = Record("", Text("", ""), (), (), (), 0.0)
    path = view.Picture(empty).save(tmp_path / "empty.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert "no attention that this page can show" in (page.text_content("#app") or "")
    page.close()


def test_in_a_notebooks_frame(browser: Browser, picture: view.Picture, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><meta charset=utf-8>{picture._repr_html_()}", "utf-8")
    page = browser.new_page(viewport=WIDE)
    page_errors: list[str] = []
    page.on("pageerror", lambda error: page_errors.append(str(error)))
    page.goto(notebook.as_uri())
    frame = page.frame_locator("iframe")
    frame.get_by_role("tab", name="Generation").click()
    settle(page)
    assert frame.get_by_text("Token by token").is_visible()
    page.close()
    assert not page_errors


@pytest.fixture(scope="module")
def forty() -> view.Picture:
    """Forty Korean tokens read, forty more answered."""
    text = "오늘 아침에는 날씨가 무척 맑아서 강가를 따라 천천히 걸으며 오래된 노래"
    tokenizer = train_tokenizer([text], kind="char")
    size = tokenizer.vocab_size
    config = replace(
        CONFIG,
        source_vocab_size=size,
        target_vocab_size=size,
        d_model=96,
        max_position_embeddings=60,
    )
    model = Seq2SeqTask(shaken(config), tokenizer, tokenizer, SearchConfig(max_length=5))
    picture = view.attention(model, text[:40], text[39::-1][:39])
    assert len(picture.record.source) == len(picture.record.target) == 40
    return picture


@pytest.mark.parametrize("width", [320, 380, 414])
@pytest.mark.parametrize("kind", ["decoder", "cross"])
def test_no_number_is_cut_on_a_phone(
    open_page: Open, forty: view.Picture, width: int, kind: str
) -> None:
    page = open_page(forty, viewport={"width": width, "height": 844})
    page.get_by_role("tab", name="Step by step").click()
    page.evaluate(f"pellucid.model.chooseKind('{kind}')")
    page.evaluate("pellucid.model.store.set({scale: 8, query: 30})")
    settle(page)
    shown = page.locator(".numbers td").all_text_contents()
    assert any(re.fullmatch(r"\d\.\d{3}e−\d\d", text) for text in shown)
    cut = page.locator(".numbers td").evaluate_all(
        "cells => cells.filter(c => c.scrollWidth > c.clientWidth).map(c => c.textContent)"
    )
    assert not cut


def test_forty_tokens_have_readable_cells_and_the_panel_is_used(
    open_page: Open, forty: view.Picture
) -> None:
    page = open_page(forty)
    settle(page)
    first, second = (box(page, ".map .matrix", n) for n in (0, 1))
    panel = box(page, ".maps")
    cell = page.evaluate("parseFloat(document.querySelector('.matrix .spacer').style.width) / 40")
    assert cell >= 18
    assert second["y"] >= first["y"] + first["height"], "maps are under each other"
    assert first["width"] > 0.95 * panel["width"]


def test_few_tokens_have_their_maps_side_by_side(open_page: Open) -> None:
    page = open_page()
    settle(page)
    first, second = (box(page, ".map .matrix", n) for n in (0, 1))
    assert second["x"] > first["x"] + first["width"]
    assert second["y"] == first["y"]
    assert not page.locator(".large .more").first.is_visible()


@pytest.mark.parametrize("which", [("encoder", 1, 2), ("decoder", 2, 3)])
def test_the_page_opens_where_it_was_asked_to(
    browser: Browser, picture: view.Picture, tmp_path: Path, which: tuple[Any, int, int]
) -> None:
    page = browser.new_page(viewport=WIDE)
    page.goto(picture.save(tmp_path / "asked.html", *which).as_uri())
    kind, layer, head = which
    shown = f"{kind.title()} self-attention, layer {layer}, head {head}"
    assert page.locator(".large h2").is_visible()
    assert page.locator(".large h2").text_content() == shown
    page.close()


def test_the_page_opens_on_the_most_telling_head_and_its_strongest_cell(
    browser: Browser, picture: view.Picture, tmp_path: Path
) -> None:
    page = browser.new_page(viewport=WIDE)
    page.goto(picture.save(tmp_path / "telling.html").as_uri())
    maps = picture.record.layers("cross")
    # What the query tells of the key: H(mean row) − mean H(row), in nats.
    noted = [entropy(m.probabilities.mean(1)) - m.entropies for m in maps]
    layer, head = np.unravel_index(np.argmax(noted), np.shape(noted))
    weights = maps[layer].probabilities[head]
    query, key = np.unravel_index(weights.argmax(), weights.shape)
    state = page.evaluate("pellucid.model.state")
    page.close()
    assert [state[name] for name in ("layer", "head", "query", "key")] == [layer, head, query, key]
    assert state["kind"] == "cross"


def test_only_causal_attention_shows_the_causal_mask(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("tab", name="Step by step").click()
    equation = page.locator(".stage").nth(2).locator(".equation")
    for kind, masked in (("Cross-attention", False), ("Decoder self-attention", True)):
        page.get_by_role("button", name=kind).click()
        settle(page)
        assert ("∞" in (equation.text_content() or "")) == masked


def test_steps_fit_two_pages_and_the_panel_beside_them_a_window(
    new_page: Callable[..., Page], tmp_path: Path
) -> None:
    picture = view.attention(pellucid.load("g2p-en"), "transformer", whole=False)
    page = new_page(viewport={"width": 1400, "height": 900})
    page.goto(picture.save(tmp_path / "steps.html").as_uri() + "#tab=steps")
    settle(page)
    high = "(aside => aside.scrollHeight - aside.clientHeight)(document.querySelector('aside'))"
    assert page.evaluate(high) == 0
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 2
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    first = page.locator(".numbers tbody tr").first.bounding_box()
    head = page.locator(".numbers thead tr").bounding_box()
    assert first
    assert head
    assert head["y"] + head["height"] <= first["y"] + 1
    assert (
        page.locator(".numbers thead th").first.evaluate("e => getComputedStyle(e).position")
        == "static"
    )


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_every_entry_of_a_score_is_in_view_and_hidden_keys_are_announced(
    open_page: Open, forty: view.Picture, size: dict[str, int]
) -> None:
    page = open_page(forty, viewport=size)
    page.get_by_role("tab", name="Step by step").click()
    settle(page)
    strips = page.locator(".strips")
    for n in range(strips.count()):
        assert strips.nth(n).evaluate("e => e.scrollWidth <= e.clientWidth")
    assert strips.first.locator("td").count() == 3 * 32
    more = page.locator(".numbers-region .more")
    below = int((more.text_content() or "").split()[1])
    region = page.get_by_role("region", name="Every key of the query")
    rows = region.locator("tbody tr")
    bottom = region.evaluate("e => e.getBoundingClientRect().bottom")
    ends = rows.evaluate_all("rows => rows.map(r => r.getBoundingClientRect().bottom)")
    assert below == sum(end > bottom + 1 for end in ends) > 0
    region.evaluate("e => e.scrollTo(0, e.scrollHeight)")
    settle(page)
    assert not more.is_visible()


def test_the_slider_is_small_on_a_phone_and_gone_where_it_changes_nothing(
    open_page: Open,
) -> None:
    page = open_page(viewport=NARROW)
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        settle(page)
        scale = page.locator(".scale")
        assert scale.is_visible() == (tab in ("Attention", "Step by step"))
        if scale.is_visible():
            assert box(page, ".scale")["height"] < NARROW["height"] / 12


def box(page: Page, selector: str, n: int = 0) -> dict[str, float]:
    found = page.locator(selector).nth(n).bounding_box()
    assert found
    return dict(found)


def entropy(p: np.ndarray) -> Any:
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


@pytest.mark.parametrize("width", [380, 800, 1100, 1280, 1400])
@pytest.mark.parametrize("locale", ["en", "ko"])
def test_no_equation_runs_into_the_next(open_page: Open, width: int, locale: str) -> None:
    page = open_page(viewport={"width": width, "height": 900}, locale=locale)
    page.evaluate("pellucid.model.chooseKind('decoder'); pellucid.model.store.set({tab: 'steps'})")
    settle(page)
    wide = page.locator(".stage .equation").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
    )
    assert not wide


def test_a_large_map_opens_scrolled_to_its_strongest_cell(
    browser: Browser, forty: view.Picture, tmp_path: Path
) -> None:
    cells = [
        select_cell(forty.record, kind, layer, head)
        for kind in forty.record.kinds
        for layer in (1, 2)
        for head in (1, 2, 3)
    ]
    cell = max(cells, key=lambda cell: cell.key)
    assert cell.key > 20, "beyond what a phone shows at first"
    page = browser.new_page(viewport=NARROW)
    asked: Any = (cell.kind, cell.layer + 1, cell.head + 1)
    page.goto(forty.save(tmp_path / "forty.html", *asked).as_uri())
    settle(page)
    matrix = page.get_by_role("application", name="Weights", exact=True)
    left, width = matrix.evaluate("e => [e.scrollLeft, e.clientWidth]")
    page.close()
    assert left < (cell.key + 1) * 12 < left + width


def test_a_record_of_an_earlier_version_opens(
    browser: Browser, picture: view.Picture, tmp_path: Path
) -> None:
    record = as_json(picture.record)
    for later in ("opens", "language", "korean", "code", "check"):
        del record[later]
    for m in record["maps"]:
        del m["dqueries"], m["dkeys"]
    html = re.sub(
        r'(?s)(<script id="record" type="application/json">).*?(</script>)',
        lambda found: found[1] + json.dumps(record) + found[2],
        picture.html(),
    )
    path = tmp_path / "earlier.html"
    path.write_text(html, encoding="utf-8")
    page = browser.new_page(viewport=WIDE, locale="en-US")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        settle(page)
    assert page.locator(".what .hint").text_content() == picture.record.model.en
    assert page.evaluate("pellucid.model.state.layer") == 1
    page.close()
    assert not errors


def test_one_gradient_is_followed_back_with_the_records_numbers(
    open_page: Open, picture: view.Picture
) -> None:
    page = open_page(view.attention(speaking(bpe()), "가 😀", "나b", run=True))
    flows = page.evaluate("pellucid.record.flows")
    page.get_by_role("tab", name="Backward").click()
    chooser = page.locator("#flow-choice")
    for n, flow in enumerate(flows):
        chooser.select_option(index=n)
        settle(page)
        text = page.locator(".flow-sentence").inner_text()
        assert as_number(re.findall(r"‖ = (\S+)\.", text)[0]) == pytest.approx(
            flow["dlogits"], rel=1e-2
        )
        page.evaluate("document.querySelector('.flow-table').open = true")
        rows = page.evaluate(
            """[...document.querySelectorAll('.flow-table tbody tr')].map(
                row => [...row.querySelectorAll('td')].map(cell => cell.textContent))"""
        )
        expected = []
        for side in ("target", "source"):
            stages = [stage for stage in flow["stages"] if stage["side"] == side]
            expected += [numbers(stage["lengths"])[3] for stage in stages]
            expected.append(numbers(flow["tables"][side])[0])
        assert len(rows) == len(expected)
        for row, lengths in zip(rows, expected, strict=True):
            found = [as_number(cell) for cell in row]
            assert found == pytest.approx(list(lengths), rel=5e-2, abs=1e-6)
        widths = page.evaluate(
            """[...document.querySelectorAll('.flow path[data-d]')].map(
                path => [Number(path.dataset.d), parseFloat(getComputedStyle(path).strokeWidth)])"""
        )
        length, width = np.array(widths).T
        np.testing.assert_allclose(width, length * (width.max() / length.max()), atol=0.02)
    assert flows
    region = page.locator(".flow-region")
    region.focus()
    before = page.locator(".flow-readout").inner_text()
    page.keyboard.press("ArrowUp")
    assert page.locator(".flow-readout").inner_text() != before
    assert page.locator(".flow .cell.chosen").count() == 1


def numbers(array: dict[str, Any]) -> np.ndarray:
    """Return an array that the page computed, (rows, tokens)."""
    return np.reshape(array["values"], array["shape"])[:, 0]


def as_number(text: str) -> float:
    return float(text.replace("−", "-"))

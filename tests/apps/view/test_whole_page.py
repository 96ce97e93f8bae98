"""The whole model on the page, and the backward of its norms, networks and loss, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.view.browsing import cut, settle
from tests.apps.view.samples import CONFIG, bert, gpt, labelling, shaken, speaking
from tests.apps.view.test_runnable import made

from pellucid.apps import view
from pellucid.apps.view import page as page_module

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def picture() -> view.Picture:
    return view.attention(speaking(), "가나 b", "나a", run=True)


@pytest.fixture
def opened(new_page: Callable[..., Page], picture: view.Picture, tmp_path: Path) -> Open:
    """Open a picture on the whole model."""

    def open_page(other: view.Picture | None = None, **options: Any) -> Page:
        page = new_page(**options)
        page.goto((other or picture).save(tmp_path / "whole.html").as_uri())
        page.locator("#tab-whole").click()
        settle(page)
        return page

    return open_page


def choose(page: Page, number: int) -> str:
    page.evaluate(f"pellucid.model.choosePart({number})")
    settle(page)
    return page.locator("#part-detail").text_content() or ""


def close(text: str, x: float, largest: float = 0.0) -> bool:
    """Whether a number on the page is x to the digits that it has.

    The page's own float32 sums differ from the library's by 1e-6 of the largest in the vector.
    """
    value = float(text.replace("−", "-"))
    last = 10.0 ** -(len(text.partition("e")[0].partition(".")[2]))
    power = float(f"1e{text.partition('e')[2].replace('−', '-') or 0}")
    return abs(value - x) <= 0.51 * last * power + 1e-6 * largest


def table_of(page: Page) -> dict[str, list[str]]:
    """Return the vectors of the detail by their names."""
    rows = page.locator("#part-detail .strip tr").evaluate_all(
        "rows => rows.map(r => [r.children[0].textContent,"
        " [...r.children].slice(1).map(c => c.textContent)])"
    )
    found: dict[str, list[str]] = {}
    for name, cells in rows:
        found[name] = found.get(name, []) + cells
    return found


def test_every_part_shows_the_numbers_of_the_record(opened: Open, picture: view.Picture) -> None:
    page = opened()
    parts = picture.record.parts
    tokens = page.evaluate("pellucid.model.tokens")
    checked = 0
    for number, part in enumerate(parts):
        if part.rows is None:
            continue
        choose(page, number)
        tokens = page.evaluate("pellucid.model.tokens")
        row = part.rows[tokens[part.side]]
        shown = table_of(page)
        assert len(shown["out"]) == len(row), part
        assert all(map(close, shown["out"], row)), part
        if part.drows is not None:
            gradient = part.drows[tokens[part.side]]
            most = float(np.abs(gradient).max())
            for said, x in zip(shown["∂L/∂·"], gradient, strict=True):
                assert close(said, x, most), part
        norm = page.locator(".part[aria-pressed=true] .length").text_content() or ""
        assert close(norm.removeprefix("‖·‖ "), float(np.linalg.norm(row))), part
        checked += 1
    assert checked > 30


def test_a_part_keeps_its_numbers_while_another_layer_is_in_view(
    opened: Open, picture: view.Picture
) -> None:
    page, record = opened(), picture.record
    maps = {m.name: m for m in record.maps}
    checked = 0
    for number, part in enumerate(record.parts):
        if part.role != "queries":
            continue
        choose(page, number)
        for kind, layer in (("encoder", 0), ("decoder", 1), ("cross", 1)):
            page.evaluate(f"pellucid.model.store.set({{kind: '{kind}', layer: {layer}, head: 2}})")
            settle(page)
            tokens = page.evaluate("pellucid.model.tokens")
            shown = table_of(page)["qᵢ"]
            row = maps[part.map].q[2][tokens[part.side]]
            assert all(map(close, shown, row)), (part, kind)
            checked += len(shown)
    assert checked == 3 * 6 * 4


def numbers(texts: list[str]) -> np.ndarray:
    return np.array([float(text.replace("−", "-")) for text in texts])


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "pre"},
        {"embedding_norm": True},
        {"norm": "pre", "norm_type": "rms_norm", "activation_function": "swiglu",
         "positions": "rotary", "qk_norm": True, "tie_embeddings": "all"},
    ],
    ids=["pre", "post", "newer"],
)  # fmt: skip
def test_a_page_with_the_model_computes_the_rows_that_it_does_not_hold(
    opened: Open, settings: dict[str, Any]
) -> None:
    picture = view.attention(made(**settings), "cab A.B", "ban", run=True)
    page = opened(picture)
    stored = json.loads(re.findall(r'(?s)id="record"[^>]*>(.*?)</script>', picture.html())[0])
    assert not any("rows" in part or "drows" in part for part in stored["parts"])
    assert not any("q" in m for m in stored["maps"])
    checked = 0
    for number, part in enumerate(picture.record.parts):
        if part.rows is None:
            continue
        choose(page, number)
        at = page.evaluate("pellucid.model.tokens")[part.side]
        shown = table_of(page)
        for name, rows in (("out", part.rows), ("∂L/∂·", part.drows)):
            assert (name in shown) == (rows is not None), part
            if rows is not None:
                tolerance = 1e-5 * np.abs(rows).max()
                np.testing.assert_allclose(
                    numbers(shown[name]), rows[at], rtol=6e-4, atol=tolerance, err_msg=str(part)
                )
                checked += 1
    assert checked > 60


def test_a_residual_step_is_the_sum_of_what_is_shown(opened: Open, picture: view.Picture) -> None:
    page = opened()
    for number, part in enumerate(picture.record.parts):
        if part.role == "residual":
            choose(page, number)
            x, y, total = (
                np.array([float(c.replace("−", "-")) for c in table_of(page)[name]])
                for name in ("x", "+ y", "out")
            )
            np.testing.assert_allclose(x + y, total, atol=2e-3)


def test_parts_of_attention_show_the_map(opened: Open, picture: view.Picture) -> None:
    page = opened()
    record = picture.record
    for number, part in enumerate(record.parts):
        if part.role != "softmax":
            continue
        choose(page, number)
        state = page.evaluate("pellucid.model.state")
        m = next(m for m in record.maps if m.name == part.map)
        assert (state["kind"], state["layer"]) == (m.kind, m.layer - 1)
        weights = sorted(m.probabilities[state["head"], state["query"]], reverse=True)
        shown = page.locator("#part-detail .candidates .p").all_text_contents()
        assert shown
        assert all(map(close, shown, weights))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"norm_type": "rms_norm", "activation_function": "swiglu"}, ("RMSNorm", "SwiGLU")),
        ({"norm": "post", "positions": "rotary", "d_model": 12}, ("LayerNorm", "ReLU")),
    ],
)
def test_names_and_shapes_are_those_of_the_description(
    opened: Open, settings: dict[str, Any], names: tuple[str, str]
) -> None:
    model = shaken(replace(CONFIG, **settings))
    picture = view.attention(model, [5, 6, 7], [4, 8])
    page = opened(picture)
    parts = picture.record.parts
    found: set[str] = set()
    for number, part in enumerate(parts):
        shown = choose(page, number)
        found |= {name for name in names if name in shown}
        letters = ", ".join(letter for letter, _ in part.shape)
        assert f"({letters}) = {' × '.join(str(n) for _, n in part.shape)}" in shown
        for name, shape, _ in part.tensors:
            assert f"{name} ({', '.join(map(str, shape))})" in shown
        if part.role == "positions" and part.kind == "rotary":
            assert "nothing is added here" in shown
    assert found == set(names)


@pytest.mark.parametrize("make", [gpt, bert, labelling])
def test_a_single_stack_has_its_own_river(opened: Open, make: Callable[[], Any]) -> None:
    picture = view.attention(make(), "a[MASK]가")
    page = opened(picture)
    stacks = page.locator(".spring > h3").all_text_contents()
    assert stacks == (["Decoder"] if make is gpt else ["Encoder"])
    roles = [part.role for part in picture.record.parts]
    assert roles[-1] == "output"
    choose(page, len(roles) - 1)
    step = picture.record.steps[0]
    page.evaluate(
        f"pellucid.model.chooseToken('{picture.record.parts[0].side}', {max(0, step.place)})"
    )
    settle(page)
    assert f"“{step.label.text}”" in (page.locator("#part-detail").text_content() or "")


def stations(picture: view.Picture) -> list[list[Any]]:
    """Return the parts of the forward pass as the river groups them."""
    found: list[list[Any]] = []
    for part in picture.record.parts:
        last = found[-1][-1] if found else None
        place = part.stack, part.layer, part.block
        if last is not None and (last.stack, last.layer, last.block) == place:
            found[-1].append(part)
        else:
            found.append([part])
    return found


def end_width(path: str) -> float:
    """Return how wide a stream is at its lower end."""
    match = re.search(r" (-?[\d.]+) -?[\d.]+H(-?[\d.]+)C", path)
    assert match, path
    return float(match[2]) - float(match[1])


def norms(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.asarray(rows, np.float64), axis=1)


def drawn(page: Page, selector: str, *names: str) -> list[list[str]]:
    """Return the data of paths."""
    return page.locator(f".course {selector}").evaluate_all(
        "(paths, names) => paths.map(path => names.map(name => path.dataset[name]))", list(names)
    )


@pytest.mark.parametrize("make", [speaking, gpt])
def test_widths_are_the_root_of_the_lengths_and_a_scale_says_so(
    opened: Open, make: Callable[[], Any]
) -> None:
    page = opened(view.attention(make(), "가나 b"))
    paths = page.locator(".course .around[data-x]").evaluate_all(
        "paths => paths.map(p => [p.dataset.at, +p.dataset.x, p.getAttribute('d')])"
    )
    scales = page.locator(".widths i").evaluate_all(
        "bars => bars.map(bar => [+bar.dataset.width, bar.getBoundingClientRect().width])"
    )
    first = page.evaluate(
        "pellucid.model.parts.filter(p => p.stack === pellucid.model.parts[0].stack)"
        ".map(p => `${p.layer} ${p.block}`).filter((p, i, all) => p !== all[i - 1]).length"
    )
    for top, scale in ((True, scales[:3]), (False, scales[3:])):
        for norm, wide in scale:
            assert (norm / scale[-1][0]) ** 0.5 == pytest.approx(wide / scale[-1][1], rel=0.01)
        for at, norm, path in paths:
            if (int(at.partition(",")[0]) < first) == top and scale:
                expected = scale[-1][1] * (norm / scale[-1][0]) ** 0.5
                assert end_width(path) == pytest.approx(max(1, expected), rel=0.01), at


@pytest.mark.parametrize("make", [speaking, gpt, bert, labelling])
def test_streams_have_the_lengths_of_the_rows(opened: Open, make: Callable[[], Any]) -> None:
    picture = view.attention(make(), "가나 b")
    page = opened(picture)
    streams = {at: float(x) for at, x in drawn(page, ".around[data-x]", "at", "x")}
    count = 0
    for n, parts in enumerate(stations(picture)):
        rows = [part.rows for part in parts if part.rows is not None]
        for i, norm in enumerate(norms(rows[-1]) if rows else []):
            assert streams[f"{n},{i}"] == pytest.approx(norm, rel=1e-6), (n, i)
            count += 1
    assert count >= 12
    added = [
        norm
        for parts in stations(picture)
        if not any(part.map for part in parts)
        for part in parts
        if part.role in ("positions", "feed_forward") and part.rows is not None
        for norm in norms(part.rows)
    ]
    shown = [float(y) for (y,) in drawn(page, ".through", "y")]
    np.testing.assert_allclose(shown, added, rtol=1e-6)


@pytest.mark.parametrize("make", [speaking, gpt, bert, labelling])
def test_arcs_are_the_strong_weights(opened: Open, make: Callable[[], Any]) -> None:
    picture = view.attention(make(), "가나 b")
    page = opened(picture)
    by_name = {m.name: m for m in picture.record.maps}
    maps = {
        n: by_name[part.map]
        for n, parts in enumerate(stations(picture))
        for part in parts
        if part.role == "softmax"
    }
    for head in (None, 1):
        if head is not None:
            page.evaluate(f"pellucid.model.store.set({{head: {head}}})")
            settle(page)
            page.get_by_role("button", name=f"Head {head + 1}").click()
            settle(page)
        arcs = {at: float(w) for at, w in drawn(page, "[data-weight]", "at", "weight")}
        expected = {}
        for n, m in maps.items():
            p = m.probabilities
            weights = p.mean(axis=0) if head is None else p[head]
            for (query, key), weight in np.ndenumerate(weights):
                if weight >= 0.1 or weight == weights[query].max():
                    expected[f"{n},{query},{key}"] = weight
        assert arcs.keys() == expected.keys()
        for at, weight in expected.items():
            assert arcs[at] == pytest.approx(weight, abs=1e-6)


def test_the_memory_is_what_cross_attention_reads(opened: Open, picture: view.Picture) -> None:
    page = opened()
    memory = next(
        part.rows
        for part in reversed(picture.record.parts)
        if part.stack == "encoder" and part.rows is not None
    )
    shown = [float(x) for (x,) in drawn(page, ".memory[data-memory]", "memory")]
    np.testing.assert_allclose(shown, norms(memory), rtol=1e-6)


def test_stations_unfold_and_tokens_are_chosen_by_keyboard(opened: Open) -> None:
    page = opened()
    assert not page.locator("#part-detail").is_visible()
    station = page.get_by_role("button", name="1 self-attention").first
    assert station.get_attribute("aria-expanded") == "false"
    station.focus()
    assert "Layer 1, self-attention" in (page.locator(".river-readout").text_content() or "")
    page.keyboard.press("Enter")
    settle(page)
    assert station.get_attribute("aria-expanded") == "true"
    softmax = page.locator(".part.softmax")
    assert softmax.get_attribute("aria-pressed") == "true"
    part = page.locator(".part.projection")
    part.focus()
    page.keyboard.press("Enter")
    settle(page)
    assert part.get_attribute("aria-pressed") == "true"
    assert page.evaluate("document.activeElement.className") == "part projection"
    before = part.locator(".length").text_content()
    tokens = page.get_by_role("listbox", name="Tokens of the encoder")
    tokens.locator("[aria-selected=true]").focus()
    at = page.evaluate("pellucid.model.tokens.source")
    page.keyboard.press("ArrowLeft" if at else "ArrowRight")
    settle(page)
    assert page.evaluate("pellucid.model.tokens.source") != at
    assert part.locator(".length").text_content() != before
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    station.focus()
    page.keyboard.press("ArrowDown")
    following = page.get_by_role("button", name="1 feed-forward").first
    assert following.evaluate("button => button === document.activeElement")
    page.keyboard.press("Enter")
    settle(page)
    assert station.get_attribute("aria-expanded") == "false"
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("#part-detail").count() == 0


def test_the_mouse_reads_and_chooses_tokens_in_the_river(opened: Open) -> None:
    page = opened()
    station = page.locator(".station").nth(1)
    box = station.bounding_box()
    tokens = page.get_by_role("listbox", name="Tokens of the encoder").locator("[role=option]")
    token = tokens.nth(2).bounding_box()
    assert box is not None
    assert token is not None
    page.mouse.move(token["x"] + token["width"] / 2, box["y"] + 30)
    label = tokens.nth(2).text_content()
    assert f"self-attention: “{label}”" in (page.locator(".river-readout").text_content() or "")
    page.mouse.click(token["x"] + token["width"] / 2, box["y"] + 30)
    settle(page)
    assert page.evaluate("pellucid.model.tokens.source") == 2


def test_rows_that_are_left_out_are_named(
    opened: Open, picture: view.Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "ROWS", 1)
    page = opened(replace(picture, model=None))
    kept = page.evaluate("pellucid.record.kept")
    assert {side: len(tokens) for side, tokens in kept.items()} == {"source": 1, "target": 1}
    number = next(i for i, p in enumerate(picture.record.parts) if p.role == "feed_forward")
    assert "out" in choose(page, number)
    other = 0 if kept["source"] != [0] else 1
    page.evaluate(f"pellucid.model.chooseToken('source', {other})")
    settle(page)
    shown = page.locator("#part-detail").text_content() or ""
    assert f"these tokens only: {kept['source'][0] + 1}" in shown
    row = picture.record.parts[number].rows
    assert row is not None
    assert any(
        close(number, float(np.linalg.norm(row[other])))
        for number in re.findall(r"[\d.]+(?:e−?\d+)?$", page.locator(
            "#part-detail .forward").text_content() or "")
    )  # fmt: skip


def test_backward_of_norms_networks_and_the_loss(opened: Open, picture: view.Picture) -> None:
    page = opened()
    derivations = page.evaluate("pellucid.record.derivations")
    assert {one["role"] for one in derivations} == {"norm", "feed_forward", "output"}
    for number, derivation in enumerate(derivations):
        page.evaluate(f"pellucid.model.store.set({{tab: 'backward', through: {number}}})")
        settle(page)
        for step in derivation["steps"]:
            card = page.locator(f"[data-through='{derivation['role']}.{step['name']}']")
            formula, difference = card.locator(".value").all_text_contents()
            by_hand = formula.rpartition(" = ")[2]
            assert close(by_hand, step["value"])
            assert close(difference.rpartition(" ")[2], step["difference"])
            assert step["difference"] == pytest.approx(step["value"], rel=1e-4, abs=1e-8)
            assert card.locator(".equation").is_visible()
            assert "pellucid/ops/" in (card.locator(".code").first.text_content() or "")


def test_backward_is_reached_from_the_river_and_by_its_buttons(
    opened: Open, picture: view.Picture
) -> None:
    page = opened()
    number = next(i for i, p in enumerate(picture.record.parts) if p.role == "feed_forward")
    choose(page, number)
    page.get_by_role("button", name="Backward →").click()
    settle(page)
    assert "encoder.layers.0" in (page.locator("#panel-backward").text_content() or "")
    group = page.get_by_role("group", name="Backward through")
    for name, heading in (("Norm", "LayerNorm"), ("Loss", "Logits"), ("Attention", None)):
        group.get_by_role("button", name=name).click()
        settle(page)
        *above, shown = page.locator("#panel-backward h2:visible").all_text_contents()
        assert shown.startswith(heading or "Cross-attention")
        assert above == ([] if heading else ["Follow one gradient back"])


def states(picture: view.Picture) -> list[str]:
    """A part with rows, one of attention, the last; every kind of derivation."""
    roles = [one.role for one in picture.record.parts]
    stations = ("norm", "feed_forward", "output")
    derivations = [role for role in reversed(roles) if role in stations]
    return [
        *(f"{{tab: 'whole', part: {roles.index(role)}}}" for role in ("sum", "softmax", "output")),
        *(
            f"{{tab: 'backward', through: {derivations.index(role)}}}"
            for role in ("norm", "feed_forward", "output")
        ),
    ]


@pytest.mark.parametrize("width", [380, 800, 1400, 1920])
def test_nothing_is_wider_than_the_screen(opened: Open, width: int, picture: view.Picture) -> None:
    page = opened(viewport={"width": width, "height": 900})
    for state in states(picture):
        page.evaluate(f"pellucid.model.store.set({state})")
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, state
        assert cut(page) == [], state


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1400, "light")])
def test_axe_finds_no_serious_violation(
    opened: Open, axe: str, width: int, scheme: str, picture: view.Picture
) -> None:
    page = opened(color_scheme=scheme, viewport={"width": width, "height": 900})
    page.evaluate(axe)
    for state in states(picture):
        page.evaluate(f"pellucid.model.store.set({state})")
        settle(page)
        found = page.evaluate("axe.run()")["violations"]
        serious = [
            (violation["id"], [node["html"] for node in violation["nodes"]])
            for violation in found
            if violation["impact"] in ("serious", "critical")
        ]
        assert not serious, state


def test_korean_has_every_name(opened: Open, picture: view.Picture) -> None:
    page = opened(locale="ko-KR")
    assert "모델 전체" in (page.locator("#panel-whole").text_content() or "")
    assert not re.search("undefined|NaN", page.locator("#app").text_content() or "")
    roles = [part.role for part in picture.record.parts]
    for role in set(roles):
        assert not re.search("undefined|NaN", choose(page, roles.index(role))), role
    for number in range(0, page.evaluate("pellucid.record.derivations.length"), 3):
        page.evaluate(f"pellucid.model.store.set({{tab: 'backward', through: {number}}})")
        settle(page)
        assert "유한 차분" in (page.locator("#panel-backward").text_content() or "")

"""transformer.py in two columns: nothing is lost, and each step is beside what undoes it."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import columns
import numpy as np
import pages
import pytest
from markdown import Markdown

if TYPE_CHECKING:
    from playwright.sync_api import Page

SOURCES = {name: file.read_text(encoding="utf-8") for name, file in columns.EDITIONS.items()}
SOURCE = SOURCES["en"]
FUNCTIONS = {each.name: each for each in columns.functions(SOURCE)}


def test_examples_of_the_module() -> None:
    assert doctest.testmod(columns).failed == 0


def test_every_function_with_a_backward_is_there() -> None:
    assert len(FUNCTIONS) == SOURCE.count("    def backward(")
    assert list(FUNCTIONS)[:3] == ["linear", "softmax", "attention"]
    assert list(FUNCTIONS)[-1] == "transformer"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_statement_is_in_one_row(name: str) -> None:
    (node,) = (
        each
        for each in ast.parse(SOURCE).body
        if isinstance(each, ast.FunctionDef) and each.name == name
    )
    (backward,) = (each for each in node.body if isinstance(each, ast.FunctionDef))
    forward = [ast.unparse(each) for each in node.body[1:] if each is not backward]
    rows = FUNCTIONS[name].rows
    assert [ast.unparse(each) for left, _ in rows for each in left] == forward
    right = [ast.unparse(each) for _, undone in rows for each in undone]
    assert sorted(right) == sorted(map(ast.unparse, backward.body))


def test_both_languages_have_the_same_rows() -> None:
    korean = {each.name: each for each in columns.functions(SOURCES["ko"])}
    assert korean.keys() == FUNCTIONS.keys()
    for name, function in FUNCTIONS.items():
        english, other = (
            [[list(map(ast.unparse, side)) for side in row] for row in each.rows]
            for each in (function, korean[name])
        )
        assert english == other, name


def row_of(name: str, code: str) -> str:
    """The forward's line in the row where a line of the backward is."""
    (found,) = (
        ast.unparse(left[0])
        for left, right in FUNCTIONS[name].rows
        if any(ast.unparse(each).startswith(code) for each in right)
    )
    return found


def test_a_step_is_beside_what_undoes_it() -> None:
    assert row_of("attention", "dv = ").startswith("z = w @ v")  # by its number
    assert row_of("attention", "da = ").startswith("w, softmax_backward = ")
    assert row_of("attention", "return (scale").startswith("a = scale")
    assert row_of("softmax", "return").startswith("w = e / ")  # by what it is the gradient of
    assert row_of("gelu", "return").startswith("return (0.5 * x")
    assert row_of("layer_norm", "through_variance").startswith("x_hat")
    assert row_of("multi_head", "dz, g['out']").startswith("y, out_backward")  # by what it calls
    assert row_of("encoder_layer", "dz, g['ffn']").startswith("f, ffn_backward")
    assert row_of("transformer", "for n in reversed(encoder)").startswith("for n, layer in p['enc")


def test_a_gradient_has_the_shape_of_its_array() -> None:
    known = columns.shapes()
    pairs = [
        (of, name, known[of, name], shape)
        for (function, gradient), shape in known.items()
        for of, name in [(function.removesuffix(".backward"), gradient.removeprefix("d"))]
        if function != of and gradient != name and (of, name) in known
        if of != "multi_head"  # its dq is the heads', before `join`
    ]
    assert len(pairs) > 15
    assert [each for each in pairs if each[2] != each[3]] == []
    assert not re.search(r"\d\d", "".join(known.values()))  # every size has its letter


def test_the_values_are_those_of_the_letters() -> None:
    t = columns.module()
    found, loss = columns.traced(t, columns.NUMBERS)
    sizes = {"N": 3, "E": t.E, "H": t.H, "D": t.E // t.H, "F": t.F, "V": len(t.TARGET)}
    known = columns.shapes()
    assert found.keys() == known.keys()
    for key, array in found.items():
        for letter, size in zip(known[key].strip("(),").split(", "), array.shape, strict=True):
            assert sizes.get(letter, size) == size, (key, known[key], array.shape)
    assert np.allclose(found["attention", "w"].sum(-1), 1)
    assert 1 < loss < 6


def test_the_page_shows_the_shapes() -> None:
    for language in ("en", "ko"):
        page = columns.page(language, "elsewhere")  # type: ignore[arg-type]
        assert '<span title="dk: (N, H, S, D)">dk</span>' in page
        assert page.count('class="two-columns"') == len(FUNCTIONS)
        assert "(elsewhere)" in page
        comments = re.findall(r"<i>(.*?)</i>", page)
        assert any(re.search("[가-힣]", each) for each in comments) == (language == "ko")


def test_a_name_shows_its_shape_to_pointer_finger_and_keyboard(
    tmp_path: Path, new_page: Callable[..., Page]
) -> None:
    body = Markdown(extensions=["md_in_html"]).convert(columns.page("en", "transformer.py"))
    loads = '<script src="assets/columns.js" defer></script>'
    assert loads in body
    script = (pages.DOCS / "assets" / "columns.js").read_text(encoding="utf-8")
    text = f'<meta charset="utf-8">{body.replace(loads, "")}<script>{script}</script>'
    (tmp_path / "columns.html").write_text(text, encoding="utf-8")
    page = new_page(offline=True, has_touch=True)
    page.goto((tmp_path / "columns.html").as_uri())
    shown, names = page.locator(".columns-shown"), page.locator("[data-of=attention] [data-shape]")
    assert page.locator(".columns-live").is_hidden()  # from the disk there is no worker
    assert shown.is_hidden()
    names.get_by_text("z", exact=True).first.hover()
    assert shown.text_content() == "z: (N, H, L, D)"
    page.locator("h1").tap()
    assert shown.is_hidden()
    names.get_by_text("w", exact=True).first.tap()
    assert shown.text_content() == "w: (N, H, L, S)"
    page.keyboard.press("Escape")
    assert shown.is_hidden()
    page.locator("pre[data-of='attention.backward']").first.focus()
    page.keyboard.press("ArrowRight")
    assert shown.text_content() == "dz: (N, H, L, D)"

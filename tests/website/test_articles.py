"""An article's file: it is whole, it needs no network, its figures compute, it fits any screen."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import articles
import numpy as np
import pages
import pytest

from pellucid import ops

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
Language = Literal["en", "ko"]
LOADED = re.compile(r"""(?:\ssrc(?:set)?=|<link[^>]*\shref=|url\(|@import )["']?+(?!data:)""")
every_article = pytest.mark.parametrize("number", articles.FIGURES)
both_languages = pytest.mark.parametrize("language", pages.LANGUAGES)


def notebook(number: str, language: Language) -> list[dict[str, Any]]:
    suffix = "" if language == "en" else ".ko"
    path = ROOT / "examples" / f"article_{number}{suffix}.ipynb"
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def plain(text: str) -> str:
    """Return the text of HTML, and of Markdown, without what a renderer may change."""
    text = html.unescape(re.sub("<[^>]+>", "", text))
    return re.sub(r"[\s`*\\]", "", text)


@both_languages
@every_article
def test_a_file_loads_nothing(number: str, language: Language) -> None:
    page = articles.page(number, language)
    body, _, script = page.rpartition("<script>")
    assert not [page[m.start() : m.end() + 60] for m in LOADED.finditer(body)]
    assert "fetch(" not in script.replace("prefetch(", "")
    assert f'<html lang="{language}">' in page
    assert len(page.encode()) < 1_000_000


@both_languages
@every_article
def test_a_file_holds_the_notebook_with_its_output(number: str, language: Language) -> None:
    page = articles.page(number, language)
    held, at = plain(page.partition("<main")[2]), 0
    first, _, *cells = notebook(number, language)
    assert plain("".join(first["source"])).lstrip("#") in held
    outputs = 0
    for cell in cells:
        for line in "".join(cell["source"]).splitlines():
            part = plain(html.escape(re.sub("^#+ ", "", line)))
            assert part in held, line
        for output in cell.get("outputs", []):
            if "text" not in output:  # a picture, of which the next test looks for each
                assert "image/png" in output["data"]
                continue
            printed = plain(html.escape("".join(output["text"])))
            at = held.find(printed, at)
            assert at >= 0, output["text"][:3]
            outputs += 1
    assert outputs > 3


@both_languages
@every_article
def test_a_file_holds_the_corrections_and_the_map(number: str, language: Language) -> None:
    held = plain(articles.page(number, language))
    suffix = "" if language == "en" else ".ko"
    for name in ("articles", "articles/map"):
        text = (pages.DOCS / f"{name}{suffix}.md").read_text(encoding="utf-8")
        (section,) = re.findall(
            rf"^## (?:Article|글) {number}\b.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
        )
        section = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", section)
        for line in section.partition("\n|")[0].splitlines()[1:]:
            assert plain(html.escape(line.lstrip("#- "))) in held, line
        for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)[2:]:
            assert plain(html.escape(row[0])) in held, row


@pytest.mark.parametrize(("number", "names"), [("000", ["softmax", "activations", "variance"]),
                                               ("001", ["positions", "scores"]),
                                               ("003", ["trained", "variance"])])  # fmt: skip
def test_a_file_holds_its_stored_pictures_once(number: str, names: list[str]) -> None:
    page = articles.page(number, "ko")
    for name in names:
        data = articles.base64.b64encode((pages.DOCS / "articles" / f"{name}.ko.png").read_bytes())
        assert page.count(data.decode()) == 1, name


def test_a_figure_whose_cell_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(articles.FIGURES["002"], "masks", "no such code")
    with pytest.raises(ValueError, match=r"article 002 has no cell for .*masks"):
        articles.page("002", "en")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files of all articles to one folder, as a reader saves them."""
    folder = tmp_path_factory.mktemp("saved")
    for language in pages.LANGUAGES:
        for number in articles.FIGURES:
            path = folder / articles.file_of(number, language)
            path.write_text(articles.page(number, language), encoding="utf-8")
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1400])
@both_languages
@every_article
def test_a_saved_file_opens_offline_and_nothing_is_clipped(
    files: Path,
    new_page: Callable[..., Page],
    number: str,
    language: Language,
    width: int,
    scheme: str,
) -> None:
    page = new_page(offline=True, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto((files / articles.file_of(number, language)).as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".pf > .pf-worked, .pf-plot").count() >= len(articles.FIGURES[number]) - 1
    assert "NaN" not in "".join(page.locator(".pf").all_text_contents())
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(243, 247, 247)" if scheme == "light" else "rgb(10, 19, 22)")
    assert page.evaluate("[...document.images].every(each => each.naturalWidth > 0)")


def test_a_figure_of_a_saved_file_follows_the_keyboard(
    files: Path, new_page: Callable[..., Page]
) -> None:
    page = new_page(offline=True)
    page.goto((files / "article_000.ko.html").as_uri())
    figure = page.locator("[data-figure=softmax]")
    figure.get_by_role("slider", name="x₁").press("End")
    x = [float(each.get_attribute("aria-valuenow") or "") for each in
         figure.locator("[data-name=x] [role=slider]").all()]  # fmt: skip
    dp = [float(each.get_attribute("aria-valuenow") or "") for each in
          figure.locator("[data-name=dp] [role=slider]").all()]  # fmt: skip
    assert x[0] == 3
    dx = ops.softmax_backward(np.array(dp), ops.softmax(np.array(x))[1])
    shown = figure.locator("[data-name=dx] .pf-number").all_text_contents()
    assert shown == [f"{value:.3f}".replace("-", "−") for value in dx]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["article_000.ko", "article_003", "article_004.ko"])
def test_a_saved_file_has_no_serious_fault_of_accessibility(
    files: Path, new_page: Callable[..., Page], axe: str, name: str, scheme: str
) -> None:
    page = new_page(offline=True, color_scheme=scheme)
    page.goto((files / f"{name}.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    page.evaluate("dispatchEvent(new Event('resize'))")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], v["nodes"][0]["html"]) for v in serious] == []

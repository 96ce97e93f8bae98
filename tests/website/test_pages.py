"""The site: it builds strictly, every link leads somewhere, both languages are whole."""

from __future__ import annotations

import contextlib
import doctest
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import articles
import docstrings
import formulas
import links
import numpy as np
import pages
import pytest

import pellucid
from pellucid import ops
from pellucid.apps import view
from pellucid.apps.teach import topic as topics
from pellucid.apps.teach.checks import CHECKS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
ADDRESS = "https://pellucid.example/book/"
"""Where the site is as if it were published."""
HANGUL = re.compile("[가-힣]")
ENGLISH = re.compile(r"\b(?:the|of|to|and|for|in) ")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    found = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "SITE_URL": ADDRESS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return folder


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert list(links.faults(site)) == []


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("index.html", "Home"),
        ("ko/view.html", "들여다보기"),
        ("view/try.html", "A Transformer in eight screens"),
        ("view/learn.html", "Watch a Transformer learn"),
    ],
)
def test_a_page_has_a_card_with_whole_addresses(site: Path, path: str, title: str) -> None:
    found = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)">', text_of(site / path)))
    assert found["title"] == title
    assert found["description"]
    assert found["url"] == f"{ADDRESS}{path}"
    assert found["image"].startswith(ADDRESS)
    assert (site / found["image"].removeprefix(ADDRESS)).is_file()


def test_the_page_of_a_folder_lists_its_files_and_not_what_python_keeps_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src" / "__pycache__").mkdir(parents=True)
    (tmp_path / "src" / "softmax.py").touch()
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "linked", lambda: ())
    assert pages.source("src").splitlines()[-1] == "- softmax.py"
    assert "__pycache__" not in pages.source("src")


def test_every_page_of_the_menu_is_in_both_languages(site: Path) -> None:
    english = {path.relative_to(site) for path in site.glob("*.html")}
    english |= {path.relative_to(site) for path in site.glob("explain/*.html")}
    for path in english - {Path("404.html")}:
        assert (site / "ko" / path).exists(), path
        assert f'href="ko/{path.name}"' in text_of(site / path) or "explain" in path.parts


def test_formulas_are_mathematics_in_both_languages(site: Path) -> None:
    for page in ("explain/softmax.html", "ko/explain/softmax.html"):
        assert "<mfrac>" in text_of(site / page)


def test_source_lines_of_a_step_are_linked(site: Path) -> None:
    (link,) = re.findall(r'href="([^"]*softmax_py.html#[^"]*)">ops/softmax.py, line', text_of(
        site / "explain" / "softmax.html"))[:1]  # fmt: skip
    assert link.startswith("../source/src/pellucid/ops/softmax_py.html#__codelineno-0-")


def test_the_search_knows_korean_and_works_from_the_disk(site: Path) -> None:
    for folder, languages, title in (
        (site, ["en"], "Softmax"),
        (site / "ko", ["en", "ko"], "softmax"),
    ):
        index = json.loads(text_of(folder / "search" / "search_index.json"))
        assert index["config"]["lang"] == languages
        pages_found = {entry["location"] for entry in index["docs"] if entry["title"] == title}
        assert "explain/softmax.html" in pages_found
        for entry in index["docs"]:
            path = entry["location"].partition("#")[0]
            assert (folder / path).exists(), path
            assert not path.startswith(("source/", "ko/"))
        assert text_of(folder / "search" / "search_index.js").startswith("var __index = {")


@pytest.mark.parametrize(
    ("folder", "word", "found"),
    [
        ("", "jacobian", "explain/softmax.html"),
        ("", "backprop", "explain/index.html"),
        ("ko", "야코비안", "ko/explain/softmax.html"),
        ("ko", "서브 레이어", "ko/explain/encoder_layer.html"),
    ],
)
def test_the_search_finds_a_word_without_a_server(
    site: Path, browser: Browser, folder: str, word: str, found: str
) -> None:
    from playwright.sync_api import TimeoutError as TooLate

    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / folder / "index.html").as_uri())
    page.locator(".md-search__input").focus()
    page.wait_for_selector('[data-md-toggle="search"]:checked', state="attached")
    result = page.locator(f".md-search-result__link[href*='/{found}']")
    for _ in range(10):  # what is typed before the index has been read is not looked for
        page.locator(".md-search__input").fill(word)
        page.locator(".md-search__input").press("End")
        with contextlib.suppress(TooLate):
            result.first.wait_for(state="attached", timeout=6000)
            break
    assert result.count()
    page.close()
    assert {url.partition(":")[0] for url in asked} <= {"file", "blob", "data"}


def test_other_words_lead_to_pages_and_topics_have_one_order(site: Path) -> None:
    synonyms = tomllib.loads(text_of(ROOT / "scripts" / "website" / "synonyms.toml"))
    for path, words in synonyms.items():
        for language, folder in (("en", site), ("ko", site / "ko")):
            assert words[language] in text_of(folder / path.replace(".md", ".html"))
            listed = words[language].split(", ")
            assert len(set(listed)) == len(listed)
    glossary = synonyms["glossary.md"]["ko"].split(", ")
    assert {"매개변수", "편향", "너비", "층"} <= set(glossary)  # which the pages never use
    listed = re.findall(r"explain/(\w+)\.md", text_of(ROOT / "mkdocs.yml"))
    assert listed == ["index", *topics.TOPICS]


@pytest.mark.parametrize("name", ["explain/adam", "ko/explain/multi_head", "ko/settings"])
def test_nothing_is_clipped_on_a_narrow_page(site: Path, browser: Browser, name: str) -> None:
    page = browser.new_page(viewport={"width": 380, "height": 760})
    page.goto((site / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 380
    for box in page.locator(".formula > span, .md-typeset__scrollwrap").all():
        scrolls = (
            "box => getComputedStyle(box).overflowX === 'auto' || box.scrollWidth <= innerWidth"
        )
        assert box.evaluate(scrolls)
    for box in page.locator(".highlight > pre > code:not(:has(.go))").all():  # code wraps
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth"), box.inner_text()
    page.close()


def test_a_card_of_the_landing_page_is_its_link(site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.locator(".cards li").nth(1).click(position={"x": 200, "y": 90})
    page.wait_for_url("**/start.html")
    page.close()


def test_a_term_of_a_paragraph_is_one_formula_in_both_languages() -> None:
    for text in ("Z_lj = Σ_s W_ls V_sj. Value s", "Z_lj = Σ_s W_ls V_sj입니다. s번째"):
        assert pages.SYMBOL.findall(text) == ["Z_lj = Σ_s W_ls V_sj"]
    assert pages.SYMBOL.findall("a d_k of x's q·k, not W's or a `q_i`") == ["d_k", "q·k", "`q_i`"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "ko/explain/softmax", "ko/parts", "columns"])
def test_pages_have_no_serious_fault_of_accessibility(
    site: Path, browser: Browser, axe: str, name: str, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto((site / f"{name}.html").as_uri())
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    page.close()
    serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], v["nodes"][0]["html"]) for v in serious] == []


def test_the_pages_of_the_articles_lead_to_their_files(site: Path) -> None:
    for language, folder in (("en", site), ("ko", site / "ko")):
        for number in articles.FIGURES:
            name = articles.file_of(number, language)
            assert (folder / "articles" / name).stat().st_size < 1_000_000
            assert f'href="articles/{name}" download' in text_of(folder / "articles.html")
            assert f'href="{name}" download' in text_of(folder / "articles" / "map.html")


@pytest.mark.parametrize("folder", ["", "ko"])
@pytest.mark.parametrize("number", articles.FIGURES)
def test_a_figure_of_an_article_shows_what_that_of_its_topic_shows(
    site: Path, browser: Browser, folder: str, number: str
) -> None:
    page = browser.new_page()
    name = articles.file_of(number, "ko" if folder else "en")
    page.goto((site / folder / "articles" / name).as_uri())
    shown = page.locator(".pf").all_text_contents()
    expected = []
    for topic in articles.FIGURES[number]:
        page.goto((site / folder / "explain" / f"{topic}.html").as_uri())
        expected += page.locator(".pf").all_text_contents()
    page.close()
    assert sorted(shown) == sorted(expected)
    placeholder = pages.word("script", "ko" if folder else "en")
    assert not any(placeholder in text for text in shown)


@pytest.mark.parametrize("folder", ["", "ko"])
@pytest.mark.parametrize("name", sorted(pages.FIGURES))
def test_a_figure_computes_and_fits_a_phone(
    site: Path, browser: Browser, folder: str, name: str
) -> None:
    page = browser.new_page(viewport={"width": 380, "height": 760})
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto((site / folder / "explain" / f"{name}.html").as_uri())
    worked = page.locator(".pf > .pf-worked")
    before = worked.text_content()
    if (bars := page.get_by_role("slider")).count() and "pf-column" in str(
        bars.first.get_attribute("class")
    ):
        bars.first.press("End")
    else:
        page.locator(".pf-range input").first.press("End")
    assert worked.text_content() != before
    assert "NaN" not in str(page.locator(".pf").text_content())
    assert page.evaluate("document.documentElement.scrollWidth") == 380
    page.close()
    assert not failed


def test_a_bar_is_dragged_and_the_gradient_follows(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((site / "explain" / "softmax.html").as_uri())
    score = page.get_by_role("slider", name="x₁")
    score.scroll_into_view_if_needed()
    box = score.locator(".pf-track").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 50)
    page.mouse.up()
    assert score.get_attribute("aria-valuenow") == "3"
    x, dp = np.array([3, 2, -0.5, 0.5, -1.5]), np.array([0.5, -1, 1, 0, 1.5])
    dx = ops.softmax_backward(dp, ops.softmax(x)[1])
    for kind in ("number", "check"):
        shown = page.locator(f"[data-name=dx] .pf-{kind}").all_text_contents()
        assert shown == [f"{value:.3f}".replace("-", "−") for value in dx]
    page.close()


def test_a_mask_is_painted_by_keyboard(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((site / "explain" / "attention.html").as_uri())
    cells = page.locator(".pf-map").first.get_by_role("button")
    cells.first.focus()
    for key in ("ArrowRight", "Space", "ArrowDown"):
        page.keyboard.press(key)
    assert [cells.nth(i).get_attribute("aria-pressed") for i in range(3)] == [
        "false", "true", "false",
    ]  # fmt: skip
    assert cells.nth(1).text_content() == "×"
    page.close()


def test_the_landing_page_runs_the_model(site: Path, browser: Browser) -> None:
    model = pellucid.load("g2p-en")
    page = browser.new_page(viewport={"width": 380, "height": 760})
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto((site / "ko" / "index.html").as_uri())
    for word in ("attention", "transparent", "understandingness"):
        page.locator(".pf-word input").fill(word)
        (answer,) = model.generate([word])
        page.wait_for_function(f"document.querySelector('.pf-answer').textContent === '{answer}'")
        cross = next(m for m in view.attention(model, word).record.maps if m.kind == "cross")
        weights = cross.probabilities.mean(axis=0)[: len(answer)]
        drawn = page.locator(".pf-letters path").evaluate_all(
            "bands => bands.map(band => +band.dataset.weight)"
        )
        np.testing.assert_allclose(drawn, weights[weights >= 0.04], atol=1e-5)
        assert page.evaluate("document.documentElement.scrollWidth") == 380
    page.locator(".pf-word input").fill("")
    assert page.locator(".pf-letters path").count() == 0
    page.close()
    assert not failed


def test_the_landing_pages_word_opens_the_model_on_it(site: Path, browser: Browser) -> None:
    for folder in ("", "ko"):
        page = browser.new_page()
        page.goto((site / folder / "index.html").as_uri())
        page.locator(".pf-word input").fill("two words")
        page.locator(".pf-word input").press("Enter")
        page.wait_for_url(f"{(site / 'view' / 'try.html').as_uri()}#**")
        assert (
            page.evaluate("new URLSearchParams(location.hash.slice(1)).get('text')") == "two words"
        )
        page.close()


def test_the_reference_has_every_public_name(site: Path) -> None:
    for page in pages.API:
        reference = text_of(site / "api" / f"{page}.html")
        for path in pages.public(page).values():
            assert f'id="{path}"' in reference, path


def test_every_text_of_the_korean_pages_has_its_korean() -> None:
    rows = [row[-1] for section in pages.sections("ko").values() for row in section]
    assert [row for row in rows if not HANGUL.search(row)] == []
    for write in (pages.parts, pages.recipes):
        rows = [line for line in write("ko").splitlines() if line.startswith("| ")]
        assert [row for row in rows if ENGLISH.search(row)] == [], "scripts/website/korean.toml"


def test_settings_list_every_option_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    from pellucid.apps.cli.main import main

    main(["train", "g2p-demo", "--help"])
    offered = set(re.findall(r"--((?:data|model|training|search|evaluation)\.[a-z0-9.-]+)",
                             capsys.readouterr().out))  # fmt: skip
    listed = {
        row[0].strip("`").replace("_", "-") for rows in pages.sections().values() for row in rows
    }
    positive = {name.replace(".no-", ".") for name in offered - listed}
    assert len(offered) > 50
    assert positive <= listed


def test_a_failing_check_stops_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "softmax_jacobian", CHECKS["softmax_jacobian"]._replace(limit=-1.0))
    topics.measured.cache_clear()
    with pytest.raises(ValueError, match=r"topic softmax: .* is over"):
        pages.explained("softmax", "en")
    topics.measured.cache_clear()  # of the limit that no other test may see


@pytest.mark.parametrize(
    "module", [articles, docstrings, formulas, pages], ids=lambda m: m.__name__
)
def test_examples_of_the_scripts_run(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert (found.failed, found.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html">', "links to gone.html, which is not there"),
        ('<a href="#gone">', "the page has no such anchor"),
        ('<img src="https://example.org/a.png">', "loads https://example.org/a.png"),
        ('<script src="//example.org/a.js"></script>', "loads //example.org/a.js"),
        ('<a id="here" href="#here">', None),
        ('<link rel="canonical" href="https://example.org/">', None),
    ],
)
def test_the_link_check_finds_what_is_wrong(body: str, fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(body, encoding="utf-8")
    found = "; ".join(links.faults(tmp_path))
    assert fault in found if fault else not found

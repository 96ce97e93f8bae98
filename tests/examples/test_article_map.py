"""The map from the articles: its files exist, its commands run and print what it says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pellucid.apps.cli.commands import COMMANDS
from pellucid.apps.cli.main import main

ROOT = Path(__file__).parents[2]
SLOW = os.environ.get("PELLUCID_SLOW_TESTS", "") not in ("", "0")


@cache
def article_map() -> ModuleType:
    path = ROOT / "scripts" / "article_map.py"
    spec = importlib.util.spec_from_file_location("article_map", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ROWS = [
    pytest.param(row, id=f"{article['number']}-{row['section']}")
    for article in article_map().articles()
    for row in article["row"]
]
QUICK = [param for param in ROWS if not param.values[0].get("slow")]
TRAINS = [param for param in ROWS if param.values[0].get("slow")]
figures = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?")


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_page_is_up_to_date(language: str) -> None:
    written = article_map().PAGES[language].read_text(encoding="utf-8")
    assert written == article_map().page(language), "run: python scripts/article_map.py"


def test_there_are_five_articles_each_with_a_script() -> None:
    numbers = [article["number"] for article in article_map().articles()]
    assert numbers == ["000", "001", "002", "003", "004"]
    assert all((ROOT / "examples" / f"article_{number}.py").exists() for number in numbers)


@pytest.mark.parametrize("row", ROWS)
def test_its_code_exists(row: dict[str, Any]) -> None:
    assert row["code"]
    for code in row["code"]:
        assert article_map().path_of(code).exists(), code


@pytest.mark.parametrize("row", ROWS)
def test_both_languages_give_the_same_figures(row: dict[str, Any]) -> None:
    for name in ("says", "article", "ours"):
        english, korean = row.get(name, ("", ""))
        assert sorted(figures.findall(english)) == sorted(figures.findall(korean)), name


@pytest.mark.parametrize("article", article_map().articles(), ids=lambda one: one["number"])
def test_every_section_of_an_article_has_a_row(article: dict[str, Any]) -> None:
    sections = [row["section"] for row in article["row"]]
    for heading in article["headings"]:
        assert any(
            one == heading or re.match(re.escape(heading) + r":? \(", one) for one in sections
        )


@pytest.fixture
def output(
    printed: Callable[[str], str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[dict[str, Any]], str]:
    """Return what a row's command prints."""

    def run(row: dict[str, Any]) -> str:
        program, *arguments = shlex.split(row["run"])
        if program == "python":
            return printed(arguments[0].removeprefix("examples/").removesuffix(".py"))
        if row.get("needs") == "chat":
            printed("article_001")  # which trains a chatbot
            (chat,) = folder.glob("chatbot-*")
            arguments = [str(chat) if one == "runs/chat" else one for one in arguments]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("LC_ALL", "C")
        assert main(arguments) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("row", QUICK)
def test_its_command_prints_what_it_shows(
    row: dict[str, Any], output: Callable[[dict[str, Any]], str]
) -> None:
    assert row["shows"] in output(row)


@pytest.mark.parametrize("row", [row for row in QUICK if "ours" in row.values[0]])
def test_its_command_prints_our_figures(
    row: dict[str, Any], output: Callable[[dict[str, Any]], str]
) -> None:
    found = re.search(row["example"], output(row), re.MULTILINE)
    assert found, row["example"]
    ours = figures.findall(row["ours"][0].replace("−", "-"))
    assert set(ours) <= set(figures.findall(found[0]))


@cache
def stored(notebook: str) -> str:
    """Return what the cells of a notebook printed when it was run, at full settings."""
    made = json.loads((ROOT / "examples" / notebook).read_text(encoding="utf-8"))
    outputs = [one for cell in made["cells"] for one in cell.get("outputs", ())]
    return "".join(line for one in outputs for line in one.get("text", ()))


@pytest.mark.parametrize(
    "row", [p for p in QUICK if "article_" in p.values[0]["run"] and "ours" in p.values[0]]
)
def test_the_stored_notebook_has_our_figures(row: dict[str, Any]) -> None:
    printed = stored(row["run"].removeprefix("python examples/").replace(".py", ".ipynb"))
    found = re.search(row["example"], printed, re.MULTILINE)
    assert found, row["example"]
    ours = figures.findall(row["ours"][0].replace("−", "-"))
    assert set(ours) <= set(figures.findall(found[0]))


@pytest.mark.parametrize("row", TRAINS)
def test_a_command_that_trains_names_what_there_is(row: dict[str, Any]) -> None:
    program, verb, *rest = shlex.split(row["run"])
    assert program == "pellucid"
    assert verb in COMMANDS
    kind, name = ("studies", rest[1]) if verb == "lab" else ("src/pellucid/recipes", rest[0])
    assert (ROOT / kind / f"{name}.toml").exists()


@pytest.mark.skipif(not SLOW, reason="takes minutes to days; set PELLUCID_SLOW_TESTS=1")
@pytest.mark.parametrize("row", TRAINS)
def test_a_command_that_trains_runs(row: dict[str, Any], tmp_path: Path) -> None:
    _, *arguments = shlex.split(row["run"])
    subprocess.run([sys.executable, "-m", "pellucid", *arguments], cwd=tmp_path, check=True)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_its_pictures_exist(language: str) -> None:
    path = article_map().PAGES[language]
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", path.read_text(encoding="utf-8"))
    assert len(pictures) == 7
    assert all((path.parent / name).exists() for name in pictures)

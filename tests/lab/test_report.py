"""The report: whole, self-contained, and honest about what is not there."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.lab.small import STUDY, Here, write_study

from pellucid.cli import main
from pellucid.errors import UserError
from pellucid.lab.outcome import gather
from pellucid.lab.report import write_report
from pellucid.lab.results import append_result, read_results
from pellucid.lab.runner import run_study
from pellucid.lab.study import Study
from pellucid.lab.study_file import read_study
from pellucid.lab.trial import failure

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
Lines = Mapping[str, Any]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Lines]:
    folder = tmp_path_factory.mktemp("study")
    study = read_study(write_study(folder))
    file = folder / "results.jsonl"
    run_study(study.trials(), file, folder / "runs", executor=Here())
    return study, read_results(file)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes the time: turning figures into pixels."""
    monkeypatch.setattr("pellucid.lab.plots.to_png", lambda figure: b"\x89PNG")


class Sources(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data")]


def test_one_file_that_asks_for_nothing_and_markdown_beside_it(
    done: tuple[Study, Lines], tmp_path: Path
) -> None:
    paths = write_report(gather(*done), tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    sources = Sources()
    sources.feed(html)
    assert sources.found
    assert all(source.startswith("data:image/png;base64,") for source in sources.found)
    assert "@import" not in html
    assert "url(" not in html
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)]+)\)", markdown)
    assert {tmp_path / name for name in named} == {p for p in paths if p.suffix == ".png"}
    assert {"train.png", "valid.png", "forest.png", "attention.png", "heads.png"} <= set(named)
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in named)
    for said in (
        "8 of 8 planned runs are done.",
        "d_k is better",
        "sure at most",
        "numpy",
        "pellucid lab run scale",
        "model.attention_scale = d_k",
    ):
        assert said in markdown


@pytest.mark.usefixtures("undrawn")
def test_a_failed_run_is_told_and_the_rest_analysed(
    done: tuple[Study, Lines], tmp_path: Path
) -> None:
    study, lines = done
    bad = study.trials()[1]
    lines = {**lines, bad.id: failure(bad, "ran out of luck", 0.5)}
    write_report(gather(study, lines), tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "7 of 8 planned runs are done, 1 failed" in markdown
    assert "| linear | 0 | ran out of luck |" in markdown
    assert "linear − sqrt | train_loss | 2 |" in markdown
    assert "(left out: linear with seed 0 has no finished run)" in markdown


@pytest.mark.usefixtures("undrawn")
def test_one_seed_has_no_interval_anywhere(done: tuple[Study, Lines], tmp_path: Path) -> None:
    study, lines = done
    first = {t.id: lines[t.id] for t in study.trials() if t.seed == 1}
    outcome = gather(study, first)
    assert all(c.interval is None and c.p is None for c in outcome.comparisons())
    write_report(outcome, tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "One seed only: no intervals" in markdown
    assert "5 are still to come" in markdown
    assert "(interval" not in markdown
    assert "3 have one pair of runs each, so no interval and nothing general to say" in markdown


@pytest.mark.usefixtures("undrawn")
def test_the_beginning_of_a_study_is_told_as_such(
    done: tuple[Study, Lines], tmp_path: Path
) -> None:
    study, lines = done
    begun = {trial.id: lines[trial.id] for trial in study.trials()[:5]}
    write_report(gather(study, begun), tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "5 of 8 planned runs are done, 3 are still to come" in markdown
    asked, _, rest = markdown.partition("## What came out")
    assert "| d_k is better | linear − sqrt, train_loss | " in asked.partition("before anything")[2]
    assert "★ linear − sqrt | train_loss | 2 |" in rest
    assert "| none − sqrt | train_loss | 1 |" in rest


def test_lines_of_other_settings_are_left_out_and_told(done: tuple[Study, Lines]) -> None:
    study, lines = done
    stranger = {**next(iter(lines.values())), "id": "0" * 12}
    assert gather(study, {**lines, "0" * 12: stranger}).strangers == 1


def test_a_metric_that_no_run_wrote_is_named(done: tuple[Study, Lines]) -> None:
    study, lines = done
    asked = replace(study, plan=replace(study.plan, metrics=("train_loss", "dead_units", "per")))
    with pytest.raises(UserError, match=r"no run of scale wrote per; they wrote best_valid_loss"):
        gather(asked, lines)


def test_nothing_done_is_said_with_the_first_fault(done: tuple[Study, Lines]) -> None:
    study, _ = done
    bad = study.trials()[0]
    with pytest.raises(UserError, match="no run of scale is done yet; 1 failed, the first: oh"):
        gather(study, {bad.id: failure(bad, "oh", 0.0)})


@pytest.mark.parametrize("package", ["scipy", "matplotlib"])
def test_without_the_extra_it_says_what_to_install(
    done: tuple[Study, Lines], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in list(sys.modules):
        if name == package or name.startswith(f"{package}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"pip install 'pellucid\[lab\]'"):
        write_report(gather(*done), tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_the_verb(done: tuple[Study, Lines], tmp_path: Path, capsys: Any) -> None:
    _, lines = done
    path = write_study(
        tmp_path, STUDY.replace("seeds = [0, 1, 2]", "seeds = [0]").replace("seeds = 2\n", "")
    )
    results = tmp_path / "results.jsonl"
    assert main(["lab", "report", str(path), "--results", str(results)]) == 1
    assert "there are no results yet" in capsys.readouterr().err
    trials = read_study(path).trials()
    for trial, line in zip(trials, lines.values(), strict=False):
        append_result(results, {**line, "id": trial.id, "change": trial.change, "seed": 0})
    out = tmp_path / "out"
    assert main(["lab", "report", str(path), "--results", str(results), "--output", str(out)]) == 0
    assert "wrote" in capsys.readouterr().out
    assert (out / "report.html").exists()
    assert main(["lab", "run", str(path), "--results", str(results), "--only", "nope"]) == 2
    assert main(["lab", "list", "--folder", str(tmp_path)]) == 0
    assert "seed-003" in capsys.readouterr().out

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
from tests.apps.lab.small import STUDY, Here, append_result, write_study

from pellucid.apps.cli.main import main
from pellucid.apps.lab import document
from pellucid.apps.lab.findings import gather
from pellucid.apps.lab.report import (
    _facts,
    _values,
    check_bound,
    write_report,
)
from pellucid.apps.lab.results import read_results
from pellucid.apps.lab.runner import run_study
from pellucid.apps.lab.study import Bound, Study
from pellucid.apps.lab.study_file import read_study
from pellucid.apps.lab.trial import failure
from pellucid.core.errors import UserError
from results import answers_to_markdown

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
    """Leave out what takes the time: turning figures into SVG."""
    monkeypatch.setattr("pellucid.apps.lab.plots.to_svg", lambda figure: "<svg/>")


class Sources(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data")]


def test_html_is_one_file_that_loads_nothing_and_markdown_has_its_pictures(
    done: tuple[Study, Lines], tmp_path: Path
) -> None:
    paths = write_report(gather(*done), tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    sources = Sources()
    sources.feed(html)
    assert sources.found
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources.found)
    assert "@import" not in html
    assert "url(" not in html
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)]+)\)", markdown)
    assert {tmp_path / name for name in named} == {p for p in paths if p.suffix == ".svg"}
    assert {
        "train.svg",
        "valid.svg",
        "forest.svg",
        "attention.svg",
        "keys.svg",
    } <= set(named)
    assert all((tmp_path / name).read_text("utf-8").startswith("<svg") for name in named)
    for reported in (
        "8 of 8 planned runs are done.",
        "pip install -e '.[lab]'\npellucid lab run",
        "d_k is better",
        "coverage at most",
        "numpy",
        "scale.toml\npellucid lab report ",
        "model.attention_scale = d_k",
    ):
        assert reported in markdown


def test_a_failed_run_is_reported_and_the_rest_analysed(
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
    assert "1 more lost (left out: linear with seed 0 failed)" in markdown


@pytest.mark.usefixtures("undrawn")
def test_one_seed_has_no_interval_anywhere(done: tuple[Study, Lines], tmp_path: Path) -> None:
    study, lines = done
    first = {t.id: lines[t.id] for t in study.trials() if t.seed == 1}
    outcome = gather(study, first)
    assert all(c.interval is None and c.p is None for c in outcome.comparisons)
    write_report(outcome, tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "There is one seed only: no intervals" in markdown
    assert "5 are not done yet" in markdown
    assert "(interval" not in markdown
    assert "3 more have one pair of runs each, so no interval and no general claim" in markdown


def test_variants_with_one_seed_each_are_not_reported_to_share_it(
    done: tuple[Study, Lines],
) -> None:
    study, lines = done
    ids = {(t.change, t.seed): t.id for t in study.trials()}
    apart = {id: lines[id] for id in (ids["sqrt", 0], ids["linear", 1])}
    text = answers_to_markdown(gather(study, apart))
    assert "No variant has two seeds: no intervals, no general claims." in text
    assert "one seed only" not in text


@pytest.mark.usefixtures("undrawn")
def test_a_half_done_study_is_reported_as_such(done: tuple[Study, Lines], tmp_path: Path) -> None:
    study, lines = done
    begun = {trial.id: lines[trial.id] for trial in study.trials()[:5]}
    write_report(gather(study, begun), tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "5 of 8 planned runs are done, 3 are not done yet" in markdown
    asked, _, rest = markdown.partition("## Results")
    primary = asked.partition("in the study's file")[2]
    assert "| d_k is better | linear − sqrt, train_loss | " in primary
    assert "★ linear − sqrt | train_loss | 2 |" in rest
    assert "| none − sqrt | train_loss | 1 |" in rest


def test_lines_of_other_settings_are_left_out_and_counted(done: tuple[Study, Lines]) -> None:
    study, lines = done
    stranger = {**next(iter(lines.values())), "id": "0" * 12}
    assert gather(study, {**lines, "0" * 12: stranger}).unknown == 1


@pytest.mark.usefixtures("undrawn")
def test_a_metric_that_no_run_wrote_is_named(done: tuple[Study, Lines], tmp_path: Path) -> None:
    study, lines = done
    asked = replace(study, plan=replace(study.plan, metrics=("train_loss", "dead_units", "per")))
    write_report(gather(asked, lines), tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "8 of 8 planned runs are done. No run has a value of per." in markdown
    assert (
        "nothing to compare: no seed has both; 3 lost (left out: linear with seed 0 has no"
        in markdown
    )


@pytest.mark.usefixtures("undrawn")
def test_a_variant_whose_runs_all_failed_is_among_the_others(
    done: tuple[Study, Lines], tmp_path: Path
) -> None:
    study, lines = done
    lines = {
        t.id: failure(t, "oh", 0.0) if t.change != "sqrt" else lines[t.id] for t in study.trials()
    }
    write_report(gather(study, lines), tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    others = markdown.partition("The other comparisons")[2]
    assert "| none − sqrt | nothing to compare: no seed has both; 2 lost (left out:" in others


def test_text_of_a_study_is_no_html() -> None:
    html = document.to_html("# a <script>\n\n| b |\n| --- |\n| <img src=x> |", "a <script>", {})
    assert "<script>" not in html
    assert "<img" not in html
    assert "<td>&lt;img src=x&gt;</td>" in html


def test_a_picture_that_a_study_names_is_its_text_in_html() -> None:
    own = document.to_html("![ours](a.svg), ![theirs](b.png)", "a", {"a.svg": "<svg/>"})
    assert own.count("<img") == 1
    assert "theirs" in own
    assert "b.png" not in own


def bounded(study: Study, **limits: float) -> Study:
    bound = Bound("linear", "epochs_to_1.0", "quick", **limits)
    return replace(study, plan=replace(study.plan, bounds=(bound,)))


def reached(lines: Lines, study: Study, epochs: list[float | None]) -> Lines:
    """Give the runs of `linear`, by seed, a loss below 1.0 at these epochs."""
    found = dict(lines)
    for trial in study.trials():
        if trial.change == "linear":
            epoch = epochs[trial.seed]
            losses = [0.5 if epoch is not None and i >= epoch else 9.0 for i in range(1, 6)]
            curve = {**lines[trial.id]["curve"], "epoch": [1, 2, 3, 4, 5], "train": losses}
            found[trial.id] = {**lines[trial.id], "curve": curve}
    return found


def said_of_bound(study: Study, lines: Lines) -> str:
    return check_bound(gather(study, lines), study.plan.bounds[0])


def test_runs_that_break_a_claim_by_never_getting_there_are_counted(
    done: tuple[Study, Lines],
) -> None:
    study = bounded(done[0], at_most=5.0)
    lines = reached(done[1], study, [4, None, 3])
    assert said_of_bound(study, lines) == "linear: 3, 4, never. Does not hold: 1 of 3 break it"
    lines = reached(done[1], study, [4, 4, 3])
    assert said_of_bound(study, lines) == "linear: 3, 4, 4. Holds in 3 of 3 finished runs"
    never = reached(done[1], study, [None] * 3)
    assert said_of_bound(study, never).startswith("linear: never, never, never. Does not hold: 3")
    bad = next(t for t in study.trials() if t.change == "linear")
    assert said_of_bound(study, {**lines, bad.id: failure(bad, "oh", 0.0)}).endswith(
        "Holds in 2 of 2 finished runs; 1 more failed or have no such value"
    )


def test_runs_on_other_data_are_reported(done: tuple[Study, Lines]) -> None:
    study, lines = done
    mixed = {id: {**line, "data": str(line["seed"])} for id, line in lines.items()}
    text = answers_to_markdown(gather(study, mixed))
    assert "The runs were trained on different data" in text
    assert "delete the study's results file and its runs folder, and run it again" in text
    alike = {id: {**line, "data": "same"} for id, line in lines.items()}
    assert "different data" not in answers_to_markdown(gather(study, alike))
    # both decide which pairs are held out
    for setting in ("data.held_out", "tokenizer.normalise"):
        asked = {
            id: {**line, "settings": {**line["settings"], setting: line["seed"]}}
            for id, line in mixed.items()
        }
        assert "different data" not in answers_to_markdown(gather(study, asked))


def test_losses_per_token_of_other_tokenizers_are_reported_as_such(
    done: tuple[Study, Lines],
) -> None:
    study, lines = done

    def text(*metrics: str, **changes: Any) -> str:
        config = study.variants["linear"]
        other = replace(config, tokenizer=replace(config.tokenizer, **changes))
        asked = replace(
            study,
            variants={**study.variants, "linear": other},
            plan=replace(study.plan, metrics=metrics, primary=()),
        )
        return answers_to_markdown(replace(gather(study, lines), study=asked))

    said = "Variants with another tokenizer than the base: linear."
    assert said in text("train_loss", "valid_loss", kind="word")
    assert said in text("valid_loss", vocab_size=50)
    assert said not in text("valid_loss", dropout=0.1)
    assert said not in text("train_loss", kind="word")


def test_a_corpus_whose_place_files_take_is_not_among_the_settings(
    done: tuple[Study, Lines],
) -> None:
    study, lines = done

    def text(**changes: Any) -> str:
        variants = {
            name: replace(config, data=replace(config.data, corpus="g2p-en", **changes))
            for name, config in study.variants.items()
        }
        outcome = replace(gather(study, lines), study=replace(study, variants=variants))
        return str(_facts(outcome)["settings"])

    assert "data.corpus" not in text()
    assert "data.train = ['" in text()
    assert "data.corpus = g2p-en" in text(train=())


def test_a_report_without_finished_runs_names_the_first_failure(done: tuple[Study, Lines]) -> None:
    study, _ = done
    bad = study.trials()[0]
    with pytest.raises(UserError, match="no run of scale is done yet; 1 failed, the first: oh"):
        gather(study, {bad.id: failure(bad, "oh", 0.0)})


def test_a_report_on_lines_of_another_study_says_so(done: tuple[Study, Lines]) -> None:
    study, lines = done
    others = {f"x{id}": line for id, line in lines.items()}
    with pytest.raises(UserError, match=r"is done yet; lines .* belong to no run .*: 8\."):
        gather(study, others)


@pytest.mark.usefixtures("undrawn")
def test_a_report_in_a_place_that_is_no_folder_is_an_error(
    done: tuple[Study, Lines], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: cannot be written"):
        write_report(gather(*done), tmp_path / "file")


@pytest.mark.parametrize("package", ["scipy", "matplotlib", "jinja2", "markdown_it"])
def test_without_the_extra_it_says_what_to_install(
    done: tuple[Study, Lines], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    document._environment.cache_clear()
    for name in list(sys.modules):
        if name == package or name.startswith(f"{package}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    missing = package.replace("_", "-")
    with pytest.raises(UserError, match=rf"pip install .*'{missing}[-\w]*>="):
        write_report(gather(*done), tmp_path)
    assert not list(tmp_path.iterdir())


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
    assert "article-003" in capsys.readouterr().out


def test_points_are_listed_after_the_base_best_first(done: tuple[Study, Lines]) -> None:
    study, lines = done
    findings = gather(replace(study, points=frozenset({"linear", "none"})), lines)
    rows = {row[0]: float(row[3].split()[0]) for row in _values(findings).rows}
    first, *points = rows
    assert first == "sqrt"
    assert rows["linear"] != rows["none"]
    assert points == sorted(points, key=lambda name: rows[name])
    upside_down = {
        id: {**line, "metrics": {k: -v for k, v in line["metrics"].items()}}
        for id, line in lines.items()
    }
    turned = gather(findings.study, upside_down)
    assert [row[0] for row in _values(turned).rows][1:] == points[::-1]

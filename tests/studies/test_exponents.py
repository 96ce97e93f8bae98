"""Which exponent is best, and where learned scales ended, from results made by hand."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.apps.lab.small import write_study

from pellucid.apps.lab.document import Table, render
from pellucid.apps.lab.findings import Findings, gather
from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.study import Study
from pellucid.apps.lab.study_file import SHIPPED, load_study, read_study
from pellucid.core.errors import UsageError
from pellucid.core.parts import read

read(str(SHIPPED / "exponents.py"))
exponents = sys.modules["pellucid_part_exponents"]
exponent, groups_of, show = exponents.exponent, exponents.groups_of, exponents.show

STUDY = """
format = 1
question = "Which p?"
recipe = "recipe.toml"
base = "p0.5"
seeds = [0, 1, 2]
metrics = ["train_loss"]
minutes_per_run = 0.1
"""
SCALES = {"p0": '"none"', "p1": '"d_k"', "learned": '"learned"'}
LOSSES = {"p0": (3.0, 1.0, 3.0), "p0.5": (2.0, 4.0, 2.5), "p1": (5.0, 5.0, 5.0)}
LEARNED = (1.5, 3.0, 2.0)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.setattr("pellucid.apps.lab.plots.to_svg", lambda figure: "<svg/>")
    changes = [f"[changes.'{n}']\nset.model.attention_scale = {s}" for n, s in SCALES.items()]
    return read_study(write_study(tmp_path, "\n".join([STUDY, *changes])))


def line(loss: float, scales: list[float], start: float = 0.5) -> dict[str, Any]:
    def probe(step: int, scale: list[float]) -> dict[str, Any]:
        return {"step": step, "attention": {"encoder.layers.0.self_attn": {"scale": scale}}}

    probes = [probe(0, [start] * 3), probe(7, scales)]
    return {"status": "done", "metrics": {"train_loss": loss}, "probes": probes}


def outcome(study: Study, without: tuple[tuple[str, int], ...] = ()) -> Findings:
    lines = {}
    for trial in study.trials():
        if (trial.change, trial.seed) in without:
            continue
        if trial.change == "learned":
            lines[trial.id] = line(LEARNED[trial.seed], [0.25, 1.0, -0.1])
        else:
            lines[trial.id] = line(LOSSES[trial.change][trial.seed], [0.5] * 3)
    return gather(study, lines)


def rows(found: Findings) -> list[list[str]]:
    tables = [b for b in show(found) if isinstance(b, Table)]
    return [list(row) for table in tables for row in table.rows]


def test_best_by_the_median_and_by_seed_and_where_the_heads_went(study: Study) -> None:
    assert rows(outcome(study)) == [
        ["train_loss", "d_k = 4", "3", "0.5", "2.5", "0.5, 0, 0.5", "0.50 (0.00 to 1.00)", "2",
         "median −0.5, lower in 3 of 3"],
        ["d_k = 4", "encoder", "0.50 (0.00 to 1.00), 3 of 9 heads at 0 or below",
         "0.625 (0.25 to 1)"],
        ["d_k = 4", "decoder", "–", "–"],
        ["d_k = 4", "cross", "–", "–"],
    ]  # fmt: skip
    reported = render("blocks.md", blocks=show(outcome(study)))
    assert "(exponents-train_loss.svg)" in reported
    assert "(learned.svg)" in reported


def test_only_seeds_that_every_exponent_has_are_used(study: Study) -> None:
    without = (("p1", 0), ("learned", 2))
    assert rows(outcome(study, without))[0] == [
        "train_loss", "d_k = 4", "2", "0", "2", "0, 0.5", "0.50 (0.00 to 1.00)", "3",
        "median +2, lower in 0 of 1",
    ]  # fmt: skip


def test_no_seed_in_common_is_reported(study: Study) -> None:
    without = (("p0", 0), ("p0.5", 1), ("p1", 2))
    assert rows(outcome(study, without))[0][2] == "none with every exponent yet"


def test_too_few_exponents_are_no_question(study: Study) -> None:
    gone = tuple(("p1", seed) for seed in range(3))
    assert show(outcome(study, gone)) == []


def test_old_results_without_a_scale(study: Study) -> None:
    found = outcome(study)
    for done in found.lines:
        for probe in done["probes"]:
            for layer in probe["attention"].values():
                del layer["scale"]
    assert rows(found)[0][-3:] == ["–", "2", "median −0.5, lower in 3 of 3"]


def test_the_shipped_study_has_a_learned_arm_at_every_width() -> None:
    study = load_study("exponent")
    lines = {t.id: line(1.0, [0.25] * 3) for t in study.trials() if t.seed == 0}
    groups = groups_of(gather(study, _with_validation(lines)))
    assert [(g.d_k, g.learned) for g in groups] == [
        (16, "d16_learned"),
        (32, "d32_learned"),
        (64, "d64_learned"),
    ]
    for group in groups:
        wanted = {name: float(name.partition("_p")[2]) for name in group.fixed}
        assert len(wanted) == 7
        assert group.fixed == pytest.approx(wanted, abs=1e-9)


def _with_validation(lines: dict[str, Any]) -> dict[str, Any]:
    for done in lines.values():
        done["metrics"]["best_valid_loss"] = 1.0
    return lines


def test_exponent() -> None:
    assert exponent(64**-0.75, 64) == pytest.approx(0.75)
    assert exponent(1.0, 64) == 0.0
    assert exponent(2.0, 4) == -0.5
    assert exponent(0.0, 4) is exponent(0.5, 1) is None


def test_every_metric_has_its_own_best(study: Study) -> None:
    both = replace(study, plan=replace(study.plan, metrics=("train_loss", "chrf")))
    found = replace(outcome(study), study=both)
    for done in found.lines:
        done["metrics"]["chrf"] = done["metrics"]["train_loss"]
    best = {row[0]: row[3:5] for row in rows(found) if row[1] == "d_k = 4"}
    assert best == {"train_loss": ["0.5", "2.5"], "chrf": ["1", "5"]}
    assert "(exponents-chrf.svg)" in render("blocks.md", blocks=show(found))


def test_exponents_that_tie_are_all_named_and_none_is_best_where_nothing_arrives(
    study: Study,
) -> None:
    late = replace(study, plan=replace(study.plan, metrics=("epochs_to_1.0",)))
    found = replace(outcome(study), study=late)
    reach = {"p0": (9, 0, 9), "p0.5": (3, 0, 9), "p1": (3, 0, 9), "learned": (0, 0, 2)}
    for change, by_seed in found.done.items():
        for seed, done in by_seed.items():
            losses = [0.5 if 0 < reach[change][seed] <= i else 9.0 for i in range(1, 10)]
            done["curve"] = {"epoch": list(range(1, 10)), "train": losses}
    assert rows(found)[0][3:] == [
        "0 = 0.5 = 1", "9", "0.5 = 1, –, 0 = 0.5 = 1", "0.50 (0.00 to 1.00)", "never",
        "median 0, lower in 1 of 3",
    ]  # fmt: skip


def test_a_study_reads_a_measure_of_its_own_next_to_it(tmp_path: Path) -> None:
    own = (SHIPPED / "exponents.py").read_text(encoding="utf-8").replace('"exponents"]', '"own"]')
    (tmp_path / "own.py").write_text(own, encoding="utf-8")
    asked = STUDY + 'imports = ["own.py"]\nmeasures = ["own", "attention"]\n'
    try:
        plan = read_study(write_study(tmp_path, asked)).plan
        assert MEASURES["own"].show is not show
    finally:
        MEASURES.pop("own", None)
    assert plan.imports[1:] == (str(tmp_path / "own.py"),)
    assert plan.measures == ("own", "attention")


def test_a_file_of_measures_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"exponent\.py: FileNotFoundError"):
        read_study(write_study(tmp_path, STUDY + 'imports = ["exponent.py"]\n'))

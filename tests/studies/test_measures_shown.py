"""What the report shows of attention and gradients: no more than was recorded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.apps.lab.small import STUDY, write_study

from pellucid.apps.lab.document import Block, Table
from pellucid.apps.lab.findings import Findings
from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.plots import Curves
from pellucid.apps.lab.results import Line
from pellucid.apps.lab.study import Plan, Study
from pellucid.apps.lab.study_file import SHIPPED, read_study
from pellucid.apps.lab.trial import run_trial
from pellucid.core.parts import read

read(str(SHIPPED / "measures.py"))


def show(measure: str, study: Study, change: str, line: Line) -> Sequence[Block]:
    """Return a measure's section of the report on one run."""
    done: dict[str, dict[int, Line]] = {name: {} for name in study.variants}
    show = MEASURES[measure].show
    assert show is not None
    return show(Findings(study, {**done, change: {0: line}}, [], 0, 0))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_gradients_of_what_is_not_trained_have_no_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: str
) -> None:
    settings = f'[settings.model]\npositions = "{positions}"\n'
    study = read_study(write_study(tmp_path, STUDY + settings))
    trial = study.trials()[0]
    grids: list[tuple[list[str], list[str]]] = []

    def draw(rows: list[str], columns: list[str], *_: Any, **__: Any) -> str:
        grids.append((list(rows), list(columns)))
        return "<svg/>"

    monkeypatch.setattr(sys.modules["pellucid_part_measures"], "draw_grid", draw)
    show("gradients", study, trial.change, run_trial(trial, tmp_path / "run"))
    ((rows, _),) = grids
    assert ("positions" in rows) == (positions == "learned")
    assert {"all", "token tables", "q and k", "v"} <= set(rows)


Panels = dict[tuple[str, str], Curves]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Panels]:
    """The curves of every picture that is drawn."""
    pictures: list[Panels] = []

    def draw(rows: Any, columns: Any, curves: Panels, *_: Any, **__: Any) -> str:
        pictures.append(curves)
        return "<svg/>"

    monkeypatch.setattr(sys.modules["pellucid_part_measures"], "draw_grid", draw)
    return pictures


def test_gradient_that_reaches_q_k_is_the_jacobian_times_the_current_scale(
    tmp_path: Path, drawn: list[Panels]
) -> None:
    study = read_study(write_study(tmp_path))
    name = "linear"  # scores / d_k, heads of width 4
    line = run_trial(study.trials()[1], tmp_path / "run")
    assert line["change"] == name
    for factor in (1 / 4, 0.7):
        drawn.clear()
        show("attention", study, name, line)
        panels = drawn[0]
        for kind in ("encoder", "decoder", "cross"):
            ((_, sizes),) = panels["‖Jacobian‖", kind][name]
            ((_, through),) = panels["scale · ‖Jacobian‖", kind][name]
            assert through == pytest.approx([factor * size for size in sizes])
        for probe in line["probes"]:  # as other scales would be recorded
            for layer in probe["attention"].values():
                layer["scale"] = [-0.7] * 3


def test_what_was_not_probed_before_training_is_not_shown_as_if_it_was(
    tmp_path: Path, drawn: list[Panels]
) -> None:
    study = read_study(write_study(tmp_path))
    line = run_trial(study.trials()[0], tmp_path / "run")
    show("attention", study, "sqrt", line)
    assert drawn[1]["‖Jacobian‖", "first step"]["sqrt"] != [([], [])]
    last = drawn[1]["‖Jacobian‖", "last step"]["sqrt"]
    show("attention", study, "sqrt", {**line, "probes": line["probes"][1:]})
    assert drawn[3]["‖Jacobian‖", "first step"]["sqrt"] == [([], [])]
    assert drawn[3]["‖Jacobian‖", "last step"]["sqrt"] == last


@pytest.mark.parametrize("name", Plan.measures)
def test_a_run_that_was_resumed_with_more_measures_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text = STUDY.replace("seeds = 2", "").replace('"none"', '"learned"')
    study = read_study(
        write_study(tmp_path, text + "[changes.p0]\nset.model.attention_scale = 1.0\n")
    )
    monkeypatch.setattr("pellucid.apps.lab.plots.to_svg", lambda figure: "<svg/>")
    done: dict[str, dict[int, Line]] = {}
    for trial in study.trials()[:4]:
        line = run_trial(trial, tmp_path / trial.id)
        first, *rest = line["probes"]
        begun = {"step": first["step"], "epoch": first["epoch"]}
        done[trial.change] = {0: {**line, "probes": [begun, *rest]}}
    if (measured := MEASURES[name].show) is not None:
        assert measured(Findings(study, done, [], 0, 0))


def test_the_encoders_rows_are_shown_where_they_were_recorded(
    tmp_path: Path,
) -> None:
    study = read_study(write_study(tmp_path))
    line = run_trial(study.trials()[0], tmp_path / "run")
    line["probes"][-1]["memory"] = {"within": 1.0, "between": 7.0}

    def rows() -> list[list[str]]:
        blocks = show("memory", study, "sqrt", line)
        return [list(row) for table in blocks if isinstance(table, Table) for row in table.rows]

    ((_, count, _, first, *middle, size, last),) = rows()
    assert (count, middle, last) == ("1", ["–", "–"], "0.125")
    assert size == "8"
    assert first != last
    for probe in line["probes"]:
        del probe["memory"]
    assert rows() == []

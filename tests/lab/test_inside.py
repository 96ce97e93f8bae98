"""What the report shows of a run's inside: no more than was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.lab.small import STUDY, write_study

from pellucid.lab.document import Table
from pellucid.lab.inside import inside
from pellucid.lab.plots import Curves
from pellucid.lab.study_file import read_study
from pellucid.lab.trial import run_trial


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_gradients_of_what_is_not_learnt_have_no_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: str
) -> None:
    pytest.importorskip("matplotlib")
    settings = f'[settings.model]\npositions = "{positions}"\n'
    study = read_study(write_study(tmp_path, STUDY + settings))
    trial = study.trials()[0]
    grids: list[tuple[list[str], list[str]]] = []

    def draw(rows: list[str], columns: list[str], *_: Any, **__: Any) -> bytes:
        grids.append((list(rows), list(columns)))
        return b"\x89PNG"

    monkeypatch.setattr("pellucid.lab.inside.draw_grid", draw)
    inside(study, {trial.change: {0: run_trial(trial, tmp_path / "run")}})
    (columns,) = [columns for rows, columns in grids if rows == ["‖gradient‖"]]
    assert ("positions" in columns) == (positions == "learned")
    assert {"all", "token tables", "q and k", "v"} <= set(columns)


def test_gradient_that_reaches_products_is_the_jacobian_times_the_scale_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    study = read_study(write_study(tmp_path))
    name = "linear"  # scores / d_k, heads of width 4
    line = run_trial(study.trials()[1], tmp_path / "run")
    assert line["change"] == name
    drawn: list[dict[tuple[str, str], Curves]] = []

    def draw(
        rows: Any, columns: Any, curves: dict[tuple[str, str], Curves], *_: Any, **__: Any
    ) -> bytes:
        drawn.append(curves)
        return b"\x89PNG"

    monkeypatch.setattr("pellucid.lab.inside.draw_grid", draw)
    for probe in line["probes"]:  # a line from before scales were told, then one with other scales
        for layer in probe["attention"].values():
            del layer["scale"]
    for factor in (1 / 4, 0.7):
        drawn.clear()
        inside(study, {name: {0: line}})
        panels = drawn[0]
        for kind in ("encoder", "decoder", "cross"):
            ((_, sizes),) = panels[kind, "‖Jacobian‖"][name]
            ((_, through),) = panels[kind, "scale · ‖Jacobian‖"][name]
            assert through == pytest.approx([factor * size for size in sizes])
        for probe in line["probes"]:
            for layer in probe["attention"].values():
                layer["scale"] = [-0.7] * 3


def test_what_cross_attention_can_choose_from_is_shown_where_it_was_measured(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    study = read_study(write_study(tmp_path))
    line = run_trial(study.trials()[0], tmp_path / "run")
    line["probes"][-1]["memory"] = {"within": 1.0, "between": 7.0}

    def rows() -> list[list[str]]:
        blocks = inside(study, {"sqrt": {0: line}})
        tables = [b for b in blocks if isinstance(b, Table) and b.heads[0] == "variant"]
        return [list(row) for table in tables if "seeds" in table.heads for row in table.rows]

    ((_, count, _, first, *middle, size, last),) = rows()
    assert (count, middle, last) == ("1", ["–", "–"], "0.125")
    assert size == "8"
    assert first != last
    for probe in line["probes"]:
        del probe["memory"]
    assert rows() == []

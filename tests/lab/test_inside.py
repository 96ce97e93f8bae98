"""What the report shows of a run's inside: no more than was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.lab.small import STUDY, write_study

from pellucid.lab.inside import inside
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

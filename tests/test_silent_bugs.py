"""What models with a mistake learn: the table of the exercises' page is that of the stored runs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from pellucid.system.language import Language

ROOT = Path(__file__).parents[1]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("silent", ROOT / "scripts" / "silent_bugs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_table_is_that_of_the_stored_runs(language: Language) -> None:
    module = script()
    page = module.page(language).read_text(encoding="utf-8")
    shown = page.partition(module.START)[2].partition(module.END)[0].strip()
    assert shown == module.table(language).strip()
    assert shown.count("\n") >= 4


def test_a_plausible_slope_learns_nothing_and_a_wrong_one_learns_all() -> None:
    runs = [
        (one["mistake"], one["right"] / one["of"], one["by_hand"] / one["by_difference"])
        for one in script().stored()
    ]
    assert all(right > 0.99 for mistake, right, _ in runs if mistake == "")
    assert all(right < 0.01 for mistake, right, _ in runs if mistake == "row_sum_left_out")
    for mistake, right, slope in runs:
        if mistake == "queries_alone":
            assert right > 0.99
            assert abs(slope - 1) > 0.1


def test_a_run_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script()
    monkeypatch.setattr(module, "FILE", tmp_path / "runs.jsonl")
    monkeypatch.setattr(module, "write_tables", lambda: None)
    monkeypatch.setattr(module, "trained", lambda t, seed, say: {"right": 1, "of": 2})
    monkeypatch.setattr("sys.argv", ["silent_bugs.py", "--limit", "4"])
    module.main()
    module.main()
    lines = [json.loads(line) for line in module.FILE.read_text("utf-8").splitlines()]
    assert len({(one["exercise"], one["mistake"], one["seed"]) for one in lines}) == 8
    assert lines[3]["mistake"] == "row_sum_left_out"
    assert capsys.readouterr().out.count("\n") == 8

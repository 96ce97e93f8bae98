"""The table of many languages, from files and results made by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pellucid.apps.lab.document import Table
from pellucid.apps.lab.findings import gather
from pellucid.apps.lab.study import Study
from pellucid.apps.lab.study_file import SHIPPED, load_study
from pellucid.core.parts import read

read(str(SHIPPED / "languages.py"))
show = sys.modules["pellucid_part_languages"].show


@pytest.fixture
def lexicons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one lexicon, and one in a folder in it."""
    (tmp_path / "more").mkdir()
    for part in ("train", "dev", "test"):
        (tmp_path / f"hun_{part}.tsv").write_text("abba\tɒ bː ɒ\n", encoding="utf-8")
        (tmp_path / f"more/dut_{part}.tsv.gz").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(study: Study, wer: dict[str, list[float]]) -> list[list[str]]:
    lines: dict[str, dict[str, Any]] = {
        trial.id: {"status": "done", "metrics": {"wer": wer[trial.change][trial.seed]}}
        for trial in study.trials()
        if trial.seed < len(wer[trial.change])
    }
    tables = [block for block in show(gather(study, lines)) if isinstance(block, Table)]
    return [list(row) for table in tables for row in table.rows]


def test_languages_have_their_mean_over_seeds_beside_what_others_have(lexicons: Path) -> None:
    assert rows(load_study("sigmorphon"), {"dut": [0.19, 0.2, 0.21], "hun": [0.017, 0.02]}) == [
        ["dut", "3", "20.00", "17.52 to 22.48", "14.7", "16.9", "20.2"],
        ["hun", "2", "1.85", "0.00 to 3.76", "1.8", "1.9", "3.4"],
        # over the two seeds that both have: (19 + 1.7) / 2 and (20 + 2) / 2
        ["mean", "2", "10.68", "6.55 to 14.80", "8.2", "9.4", "11.8"],
    ]


def test_one_seed_has_no_interval_and_other_tasks_no_published_figures(lexicons: Path) -> None:
    study = load_study("sigmorphon-inflection")
    assert rows(study, {"dut": [0.5], "hun": []}) == [["dut", "1", "50.00", "–"]]

"""A study over the recipe for a lexicon of one's own, on one's own files: checks to report."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from pellucid.apps.cli.main import main

Capture = pytest.CaptureFixture[str]

STUDY = """
format = 1
question = "Which rate, which width?"
recipe = "g2p-small"
base = "as_it_is"
seeds = [0]
metrics = ["best_valid_loss", "per"]
measures = []
minutes_per_run = 0.1

[settings.data]
train = ["hun.tsv"]
held_out = 0.2

[settings.model]
d_model = 8
ffn_dim = 8
encoder_layers = 1
decoder_layers = 1

[settings.training]
steps = 4
validate_every = 2

[settings.evaluation]
pairs = 3

[settings.search]
beam = 1
max_length = 5

[grid]
training.schedule.lr = [6e-3, 4e-3]  # the first is the recipe's
model.d_model = [8, 16]
"""


def test_a_grid_over_the_recipe_goes_from_checks_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pytest.importorskip("psutil")
    monkeypatch.chdir(tmp_path)
    words = ["".join(word) for word in itertools.product("aáb", "gyz", "eéő")]
    lines = (f"{word}\t{' '.join(word)}ː\n" for word in words)
    Path("hun.tsv").write_text("".join(lines), encoding="utf-8")
    wrong = STUDY.replace("hun.tsv", "hnu.tsv")
    Path("rates.toml").write_text(wrong, encoding="utf-8")
    assert main(["lab", "run", "rates.toml"]) == 1  # before any run
    assert "hnu.tsv: there is no such file" in capsys.readouterr().err
    assert not Path("lab/rates/results.jsonl").exists()

    Path("rates.toml").write_text(STUDY, encoding="utf-8")
    assert main(["lab", "run", "rates.toml", "--workers", "2"]) == 0
    said = capsys.readouterr().out
    assert "4/4 done" in said
    results = Path("lab/rates/results.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, results):  # validated at steps 2 and 4, by PER
        assert len(line["curve"]["valid"]) == 2
        assert line["metrics"]["best_valid_loss"] == min(line["curve"]["valid"])
        assert "per" in line["metrics"]
    assert main(["lab", "report", "rates.toml"]) == 0
    report = Path("lab/rates/report.md").read_text(encoding="utf-8")
    assert "4 of 4 planned runs are done" in report
    assert "| lr-0.004+d_model-16 |" in report
    assert "belong to no run" not in report

    capsys.readouterr()
    assert main(["runs", "lab/rates/runs"]) == 0
    said = capsys.readouterr().out
    assert all(json.loads(line)["id"] in said for line in results)

"""`pellucid baseline`: a linear model on the split of a recipe, scored as the Transformer is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.apps.cli.test_main import failed, pellucid

ROWS = "".join(
    f"text {i} {'good' if i % 2 else 'bad'}\t{'+' if i % 2 else '-'}\n" for i in range(99)
)


def test_what_labels_no_texts_has_no_baseline(tmp_path: Path) -> None:
    failed(pellucid("baseline", "g2p-demo", cwd=tmp_path), 2, "g2p-demo: gives texts no labels")
    failed(pellucid("baseline", cwd=tmp_path), 2, "which recipe or run?")


def test_it_is_scored_on_the_split_of_the_recipe(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is the extra baseline")
    (tmp_path / "f.tsv").write_text(ROWS, encoding="utf-8")
    own = ("baseline", "topics-ko", "--data.train", "f.tsv", "--data.held-out", "0.2")
    shown = pellucid(*own, cwd=tmp_path)
    failed(shown, 0)
    assert "accuracy    100.00%" in shown.stdout
    record = json.loads(pellucid(*own, "--json", cwd=tmp_path).stdout)
    assert record["f1"] == 1
    texts = sum(row["texts"] for row in record["labels"].values())
    assert 10 < texts < 30
    assert 0 < record["calibration_error"] < 0.5

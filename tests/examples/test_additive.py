"""Additive attention next to the dot product: the derivatives, and what the start says of d_k."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from additive import KINDS, check, learned, main, table

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parents[2] / "examples" / "additive.py"


@pytest.mark.parametrize("seed", [0, 1])
def test_every_derivative_equals_a_difference(seed: int) -> None:
    found = check(seed)
    assert list(found) == list(KINDS)
    for by_hand, numeric in found.values():
        assert by_hand == pytest.approx(numeric, rel=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_wide_dot_product_lets_less_through_softmax_unless_it_is_scaled(seed: int) -> None:
    passes = {
        (kind, d_k): learned(kind, d_k, 1e-3, seed, steps=0)[1]
        for kind in KINDS
        for d_k in (8, 512)
    }
    assert passes["unscaled", 512] < 0.6 * passes["unscaled", 8]
    for kind in ("additive", "scaled", "small start"):
        assert 0.8 < passes[kind, 512] / passes[kind, 8] < 1.25


@pytest.mark.parametrize("seed", [0, 1])
def test_the_score_learns_to_find_its_key(seed: int) -> None:
    assert learned("scaled", 32, 3e-2, seed, steps=150)[2] < 0.5


def test_the_table_of_the_page_is_that_of_the_stored_runs() -> None:
    stored = json.loads((ROOT / "results" / "additive.json").read_text(encoding="utf-8"))
    assert list(stored) == list(KINDS)
    english = (ROOT / "docs" / "articles.md").read_text(encoding="utf-8")
    korean = (ROOT / "docs" / "articles.ko.md").read_text(encoding="utf-8")
    for row in table(stored):
        assert f"| {row} |\n" in english
        assert f"{row.partition(' | ')[2]} |\n" in korean
    for kind in KINDS:  # what passes at the start is computed again
        for d_k in (8, 512):
            passes = [learned(kind, d_k, 1e-2, seed, steps=0)[1] for seed in (0, 1, 2)]
            assert stored[kind][str(d_k)]["passes"] == pytest.approx(sum(passes) / 3, rel=1e-6)


def test_it_prints_a_row_for_each_width_and_draws_them(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--steps", "2", "--widths", "2", "3"]
    command += ["--output", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 4 + 2 + 4 * 2
    assert (tmp_path / "additive.png").stat().st_size > 1000


def test_without_matplotlib_it_stores_the_results_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    command = ["additive.py", "--steps", "1", "--widths", "2", "--output", str(tmp_path / "new")]
    monkeypatch.setattr("sys.argv", command)
    main()
    assert "no picture: pictures need matplotlib" in capsys.readouterr().out
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["additive.json"]

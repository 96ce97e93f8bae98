"""The training loop by hand learns what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_from_python.py"


def test_a_loop_of_ones_own_learns_to_write_words_backwards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(EXAMPLE))
    *epochs, answers = capsys.readouterr().out.splitlines()
    losses = [float(line.split(": ")[1].split()[0]) for line in epochs]
    assert losses[-1] < 0.2 < 1.0 < losses[0]
    assert "edcba" in answers.split()


def test_the_loop_fits_on_a_screen() -> None:
    code = EXAMPLE.read_text(encoding="utf-8").partition("model = ")[2]
    assert len(code.strip().splitlines()) <= 16

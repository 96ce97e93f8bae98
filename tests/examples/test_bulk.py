"""Bulk inference on engines that exist: each example prints what one process answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.small import write_model

import pellucid

SOURCE = Path(pellucid.__file__).parents[1]
EXAMPLES = Path(__file__).parents[2] / "examples"
ENGINES = {"processes": None, "joblib": "joblib", "dask": "distributed", "ray": "ray"}
LINES = ["hello", "there he", "oh", "", "her eel"] * 60  # more than one part of 256


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(engine, marks=pytest.mark.oracle(package) if package else ())
        for engine, package in ENGINES.items()
    ],
)
def test_answers_equal_those_of_one_process(engine: str, tmp_path: Path) -> None:
    model = pellucid.load(write_model(tmp_path / "model"))
    (tmp_path / "texts.txt").write_text("\n".join(LINES), encoding="utf-8")
    example = EXAMPLES / f"bulk_{engine}.py"
    assert len(example.read_text(encoding="utf-8").partition("__main__")[2].splitlines()) <= 10
    assert printed(example, tmp_path, "model", "texts.txt") == model.generate(LINES)


def printed(example: Path, folder: Path, *arguments: str) -> list[str]:
    """Return the lines that an example prints, run in a folder."""
    done = subprocess.run(
        [sys.executable, str(example), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PELLUCID_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_example_of_an_engine_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("bulk_*.py")} == {f"bulk_{e}" for e in ENGINES}

"""Each example runs once for all tests, with a small model and one epoch of training."""

from __future__ import annotations

import io
import runpy
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

import lesson
from pellucid.data.pairs import Splits

ROOT = Path(__file__).parents[2]
SMALL = (
    "--model.d-model=32", "--model.ffn-dim=32", "--tokenizer.vocab-size=700",
    "--data.batch-tokens=4096",
)  # fmt: skip
"""Makes the runs of an example short; its own settings are still parsed and trained with."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples put pictures and models."""
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="session")
def printed(folder: Path, corpus: Callable[[str], Splits]) -> Iterator[Callable[[str], str]]:
    """Return what an example prints, by its name."""
    corpus("chatterbot-ko")
    real = lesson.main

    @cache
    def run(name: str) -> str:
        path = ROOT / "examples" / f"{name}.py"
        source = path.read_text(encoding="utf-8")
        small = "--output", str(folder), "--steps", "10"
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
            patch.setattr(lesson, "main", lambda arguments: real([*arguments, *SMALL]))
            patch.setattr("sys.argv", [path.name, *(small if "Lesson(" in source else ())])
            patch.chdir(ROOT)
            runpy.run_path(str(path), run_name="__main__")
        return out.getvalue()

    yield run
    run.cache_clear()

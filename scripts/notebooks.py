"""Write a Jupyter notebook from every script in examples/; `--check` only says which are stale.

article_000.ko.py is the Korean twin of article_000.py, and has a notebook of its own.
A script is in the percent format: `# %%` begins a cell of code, `# %% [markdown]` one of text,
whose lines are comments. Notebooks have no outputs, so that they hold nothing a script does not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
INSTALL = """\
# {}
#   %pip install '..[demo,lab]'
import pellucid

print("Pellucid", pellucid.__version__)"""
INSTALLED = {
    "en": "Not installed? Clone the repository, open its examples folder in Jupyter, then run:",
    "ko": "설치되어 있지 않다면 저장소를 복제하고, Jupyter에서 examples 폴더를 연 다음 실행하세요:",
}


def notebook(script: str, language: str) -> dict[str, Any]:
    """Return the notebook of a script, as nbformat 4.5 has it.

    Raises `ValueError` when the script does not begin with a cell.
    """
    head, *parts = ("\n" + script).split("\n# %%")
    if head.strip():
        raise ValueError(f"expected a script to begin with '# %%', got {head.strip()[:40]!r}")
    cells: list[dict[str, Any]] = []
    for part in parts:
        kind, _, body = part.partition("\n")
        if kind.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().split("\n")]
            cells.append(_cell("markdown", "\n".join(lines), len(cells)))
        else:
            cells.append(_cell("code", body.strip("\n"), len(cells)))
    cells.insert(1, _cell("code", INSTALL.format(INSTALLED[language]), len(cells)))
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def written(script: Path) -> str:
    """Return the text of a script's notebook file."""
    language = "ko" if script.stem.endswith(".ko") else "en"
    made = notebook(script.read_text(encoding="utf-8"), language)
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def _cell(kind: str, source: str, number: int) -> dict[str, Any]:
    lines = source.splitlines(keepends=True)
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return {**cell, "source": lines}


def main() -> int:
    """Write the notebooks, or say which are stale; return the exit code."""
    stale = []
    for script in sorted(EXAMPLES.glob("article_*.py")):
        path, text = script.with_suffix(".ipynb"), written(script)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    verb = "stale" if "--check" in sys.argv else "wrote"
    print(f"{verb}: {', '.join(stale)}" if stale else "all notebooks are up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())

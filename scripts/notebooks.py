"""Write a Jupyter notebook from every script in examples/, and one of the exercises.

    python scripts/notebooks.py              write them; cells that did not change keep their output
    python scripts/notebooks.py --check      only name those that are stale; exit with 1 if any is
    python scripts/notebooks.py --run        also run the articles' notebooks, and store what they
                                             print (trains small models: about 10 minutes)

article_000.ko.py is the Korean twin of article_000.py, and has its own notebook. A script is in the
percent format: `# %%` begins a cell of code, `# %% [markdown]` one of text, whose lines are
comments. Stored output is what the cells print and the pictures that they draw, in 64 colours.
"""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pellucid.apps.teach.exercise import EXERCISES, page, read, text
from pellucid.system.language import Language

EXAMPLES = Path(__file__).parents[1] / "examples"
INSTALL = """\
# {}
SOURCE = ""
# {}

import importlib.util
import subprocess
import sys

if SOURCE and importlib.util.find_spec("pellucid") is None:
    needed = f"pellucid[demo,lab] @ {{SOURCE}}"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", needed], check=True)
import pellucid
from pellucid.apps.teach import course_file

sys.path.append(str(course_file("lesson.py").parent))  # what the articles share
print("Pellucid", pellucid.__version__)"""
INSTALLED = {
    "en": "Not installed, as in Colab? Write its address: git+https://... or a wheel, file:///...",
    "ko": "Colab처럼 설치되어 있지 않다면 주소를 적으세요: git+https://... 또는 휠, file:///...",
}
FONT = {
    "en": "Korean words in a picture need a font: !apt-get install -y fonts-noto-cjk",
    "ko": "그림에 한글을 쓰려면 글꼴이 필요합니다: !apt-get install -y fonts-noto-cjk",
}
EXERCISE_FILES: dict[Language, str] = {"en": "exercises.ipynb", "ko": "exercises.ko.ipynb"}
EXERCISE_HEAD = {
    "en": """\
# %% [markdown]
# # Derive it yourself
#
# Fill in each function and run its cell. `check` compares gradients with central differences,
# and names a known mistake. The same exercises at the command line: `pellucid exercise`.
""",
    "ko": """\
# %% [markdown]
# # 직접 유도하기
#
# 함수를 채우고 셀을 실행하세요. `check`가 기울기를 중심 차분과 비교하고, 알려진 실수라면 무엇인지
# 알려 줍니다. 명령줄에서는 `pellucid exercise`로 같은 문제를 풀 수 있습니다.
""",
}
EXERCISE_CHECK = """
# %%
import os

import numpy as np

os.environ["PELLUCID_LANG"] = "{}"
from pellucid.apps.cli.exercise import verdict
from pellucid.apps.teach.exercise import diagnose


def check(function):
    try:
        for result in diagnose(function.__name__, function):
            print(verdict(result))
    except NotImplementedError as empty:
        print(empty)
"""
HINTS = {"en": "Hints", "ko": "힌트"}


def exercises(language: Language) -> str:
    """Write all exercises as a script in the percent format."""

    def parts() -> Iterator[str]:
        yield EXERCISE_HEAD[language]
        yield EXERCISE_CHECK.format(language)
        for name in EXERCISES:
            exercise = read(name)
            head = page(name, language).splitlines()[0].removeprefix('"""')
            hints = [f"{i}. {text(h, language)}" for i, h in enumerate(exercise["hints"], start=1)]
            equation = [f"    {line}" for line in exercise["equation"].strip().split("\n")]
            lines = (
                f"## {head}", "", *equation,
                "", f"<details><summary>{HINTS[language]}</summary>", "", *hints, "", "</details>",
            )  # fmt: skip
            yield "\n# %% [markdown]\n" + "".join(f"# {line}\n" for line in lines)
            function = page(name, language).partition("import numpy as np")[2].strip()
            yield f"\n# %%\n{function}\n\n\ncheck({name})\n"

    return "".join(parts())


def notebook(script: str, language: str) -> dict[str, Any]:
    """Convert a script in the percent format to a notebook (nbformat 4.5).

    Raises `ValueError` if the script does not begin with a cell.
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
    cells.insert(1, _cell("code", INSTALL.format(INSTALLED[language], FONT[language]), len(cells)))
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
    """Return the text of the notebook file of a script."""
    language = "ko" if script.stem.endswith(".ko") else "en"
    return dumped(notebook(script.read_text(encoding="utf-8"), language))


def bare(text: str) -> dict[str, Any]:
    """Return a notebook without outputs."""
    made: dict[str, Any] = json.loads(text)
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"execution_count": None, "outputs": []}
    return made


def outputs_of(text: str) -> dict[str, list[Any]]:
    """Return the outputs of a notebook's cells, by the code of each cell."""
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return {"".join(cell["source"]): cell["outputs"] for cell in cells}


def run(made: dict[str, Any], script: Path) -> None:
    """Run the cells of a notebook in order, and store their outputs in it.

    The first cell, which installs the package, is left out. Models are written to runs/examples.
    """
    sys.argv = [script.name]
    scope: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code[1:], start=1):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("".join(cell["source"]), script.name, "exec"), scope)
        lines = printed.getvalue().splitlines(keepends=True)
        output = {"name": "stdout", "output_type": "stream", "text": lines}
        drawn = re.findall(r"^(?:picture|그림): (.*[.]png)$", printed.getvalue(), re.MULTILINE)
        pictures = [_picture(Path(path)) for path in drawn]
        cell |= {"execution_count": number, "outputs": [output, *pictures] if lines else []}


def _picture(path: Path) -> dict[str, Any]:
    """Return a picture as a cell output; few colours keep the file small."""
    from PIL import Image

    small, adaptive = io.BytesIO(), Image.Palette.ADAPTIVE
    with Image.open(path) as picture:
        few = picture.convert("RGB").convert("P", palette=adaptive, colors=64)
        few.save(small, "PNG", optimize=True)
    data = {"image/png": base64.b64encode(small.getvalue()).decode("ascii")}
    return {"data": data, "metadata": {}, "output_type": "display_data"}


def dumped(made: dict[str, Any]) -> str:
    """Return the text of a notebook's file."""
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def _cell(kind: str, source: str, number: int) -> dict[str, Any]:
    """Make a cell without output."""
    lines = source.splitlines(keepends=True)
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return {**cell, "source": lines}


def main() -> int:
    """Write the notebooks, or list the stale ones; return the exit code."""
    stale = []
    scripts = {script.with_suffix(".ipynb"): script for script in EXAMPLES.glob("article_*.py")}
    made = {path: written(script) for path, script in sorted(scripts.items())}
    for language, name in EXERCISE_FILES.items():
        made[EXAMPLES / name] = dumped(notebook(exercises(language), language))
    for path, content in made.items():
        before = path.read_text(encoding="utf-8") if path.exists() else content
        again = "--run" in sys.argv and path in scripts
        if path.exists() and bare(before) == json.loads(content) and not again:
            continue
        stale.append(path.name)
        if "--check" in sys.argv:
            continue
        new, stored = json.loads(content), outputs_of(before)
        code = (cell for cell in new["cells"] if cell["cell_type"] == "code")
        for number, cell in enumerate(code):  # 0 installs, and is not run
            if outputs := stored.get("".join(cell["source"])):
                cell |= {"execution_count": number, "outputs": outputs}
        if again:
            arguments = sys.argv
            run(new, scripts[path])
            sys.argv = arguments
        path.write_text(dumped(new), encoding="utf-8")
    verb = "stale" if "--check" in sys.argv else "wrote"
    print(f"{verb}: {', '.join(stale)}" if stale else "all notebooks are up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.path.insert(0, str(EXAMPLES))
    sys.exit(main())

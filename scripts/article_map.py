"""Write docs/articles/map.md and map.ko.md from map.toml.

A test runs their commands. Files are found from the public API by object, so that a file that moves
needs no edit here.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from pellucid.apps.teach.pictures import PICTURES

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "articles"
LANGUAGES = ("en", "ko")
ENDINGS = {"en": "", "ko": ".ko"}
"""Language part of an example's file name, before .py and .ipynb."""
PAGES = {"en": FOLDER / "map.md", "ko": FOLDER / "map.ko.md"}

HEAD = {
    "en": """\
# From the articles to Pellucid

Pellucid began from five Korean articles, and thanks their authors. For every section: what it
says, the file that has it, a command to run, and the article's figure next to ours, which the
command prints. Where we would correct an article, [that page](../articles.md) has the reason.
[한국어](map.ko.md)

Each article has a script and a notebook in [`examples/`](../../examples): run `python
examples/article_000.py`, or open the notebook, which has stored output. Some train small models
first, as the table says; with `--model runs/chat` (from `make demo`) 000 trains nothing and 001
half a minute. On the site (`make docs`) each article is also one page to save: the notebook with
its output, figures to move, derivations and corrections, in one file that works offline; and its
cells run in [the workbench](../workbench/workbench.md), with nothing installed. Pictures need
matplotlib: `pip install -e '.[lab]'` in the repository. `pellucid view runs/chat` writes a
page that shows a trained model: all its layers, each step, and the backward.

![A Transformer as boxes: the encoder reads the source, the decoder writes the answer](\
../assets/transformer.svg)

A test runs every command, in English, and looks for our figures in its output. Of the commands
marked "trains" without minutes it checks only the names.

[transformer.py](../../examples/transformer.py) is all of it in one file: 366 lines of NumPy alone,
with the section of the article above each part. It checks its own gradient before it trains. A
test compares its loss and every gradient with Pellucid's.
""",
    "ko": """\
# 글에서 Pellucid로

Pellucid는 한국어로 쓰인 글 다섯 편에서 출발했습니다. 글을 쓴 분들께 감사드립니다. 글의 절마다
내용, 해당 코드, 실행할 명령, 글의 수치와 그 명령이 출력하는 Pellucid의 수치를 나란히 적었습니다.
바로잡을 곳은 [별도 페이지](../articles.ko.md)에 정리했습니다. [English](map.md)

글마다 스크립트와 노트북이 [`examples/`](../../examples)에 있습니다. `python
examples/article_000.ko.py`를 실행하거나 노트북을 여세요. 노트북에는 출력이 저장되어 있습니다.
`.ko`가 없는 것은 같은 코드의 영어판입니다. 표에 학습 시간이 적힌 것은 작은 모델을 먼저 학습합니다.
`--model runs/chat`(`make demo`의 결과)을 주면 000은 학습하지 않고 001은 30초쯤만 학습합니다.
사이트(`make docs`)에서는 글마다 출력이 담긴 노트북, 움직여 보는 그림, 유도 과정, 바로잡을 곳을
인터넷 없이 열리는 파일 하나로 저장할 수 있고, 셀은 설치 없이
[작업대](../workbench/workbench.ko.md)에서 실행할 수 있습니다. 그림에는 matplotlib가 필요합니다.
저장소에서 `pip install -e '.[lab]'`으로 설치하세요. `pellucid view runs/chat`은 학습한 모델의 모든
레이어와 단계, 역전파를 보여 주는 페이지를 만듭니다.

![트랜스포머의 그림: 인코더가 원문을 읽고 디코더가 답을 씁니다](../assets/transformer.ko.svg)

테스트가 모든 명령을 영어로 실행해, Pellucid의 수치가 출력에 있는지 확인합니다(한국어 스크립트는
영어판과 코드가 같은지 확인합니다). 시간 없이 '학습 필요'라고만 적힌 명령은 이름만 확인합니다.

[transformer.ko.py](../../examples/transformer.ko.py)는 이 모두를 파일 하나에 담은 것입니다.
NumPy만으로 쓴 366줄이고, 부분마다 글의 어느 절에 해당하는지 적었습니다. 학습하기 전에 기울기를
스스로 검산하며, 손실과 모든 기울기가 Pellucid와 같은지는 테스트가 확인합니다.
""",
}
WORDS: dict[str, tuple[str, str]] = {
    "article": ("Article", "글"),
    "by": ("By", "글쓴이"),
    "at": ("address in its text", "글에 나온 주소"),
    "thanks": ("Thank you.", "감사합니다."),
    "unnamed": (
        "The text names neither its author nor an address. Thank you.",
        "글에 글쓴이와 주소가 적혀 있지 않습니다. 쓰신 분께 감사드립니다.",
    ),
    "files": ("Script and notebook", "스크립트와 노트북"),
    "columns": (
        "| section | what it says | code | run it | the article's figure | ours |",
        "| 절 | 내용 | 코드 | 실행 | 글의 수치 | Pellucid의 수치 |",
    ),
    "slow": ("trains", "학습 필요"),
    "minutes": ("trains {} min", "{}분 학습"),
    "chat": ("after `make demo`", "`make demo`를 먼저 실행"),
    "picture": ("Picture: ", "그림: "),
}


def articles() -> list[dict[str, Any]]:
    """Return the articles of map.toml with their rows."""
    read: list[dict[str, Any]] = tomllib.loads((FOLDER / "map.toml").read_text("utf-8"))["article"]
    return read


def path_of(code: str) -> Path:
    """Return the file that defines "module:name", or the file of a path in the repository."""
    if ":" not in code:
        return ROOT / code
    module, _, name = code.partition(":")
    function = getattr(importlib.import_module(module), name)
    return Path(inspect.getsourcefile(inspect.unwrap(function)) or "").resolve()


def page(language: str) -> str:
    """Return the text of the page in one language."""
    which = LANGUAGES.index(language)
    word = {name: texts[which] for name, texts in WORDS.items()}
    lines = [HEAD[language]]
    minutes = {
        f"python examples/article_{article['number']}.py": article.get("minutes", 0)
        for article in articles()
    }
    for article in articles():
        number = article["number"]
        author = word["unnamed"]
        if article["author"]:
            where = f"{word['at']}: {article['address']}"
            author = f"{word['by']}: {article['author']} ({where}). {word['thanks']}"
        script = f"article_{number}{ENDINGS[language]}"
        folder = "../../examples"
        lines += [
            f"## {word['article']} {number}: {article['title']}",
            "",
            f"{author}",
            f"{word['files']}: [{script}.py]({folder}/{script}.py), "
            f"[{script}.ipynb]({folder}/{script}.ipynb).",
            "",
            word["columns"],
            "| --- | --- | --- | --- | --- | --- |",
            *(_row(row, which, word, minutes) for row in article["row"]),
            "",
        ]
        for picture in article.get("pictures", ()):
            made = f"pellucid plot {picture}"
            if picture not in PICTURES:
                made = f"python examples/{script}.py"
            translated = FOLDER / f"{picture}.{language}.png"
            file = translated.name if translated.exists() else f"{picture}.png"
            lines += [f"![{word['picture']}{made}]({file})", ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(row: dict[str, Any], which: int, word: dict[str, str], minutes: dict[str, int]) -> str:
    """Format a row of an article's table."""
    code = ", ".join(_link(name) for name in row["code"])
    command = re.sub(r"(?<=article_\d{3})\.py", f"{ENDINGS[LANGUAGES[which]]}.py", row["run"])
    notes = [word["slow"]] if row.get("slow") else []
    if needs := row.get("needs"):
        notes.append(word[needs])
    if trained := minutes.get(row["run"]):
        notes.append(word["minutes"].format(trained))
    run = f"`{command}`" + (f" ({', '.join(notes)})" if notes else "")
    figures = [row.get(name, ("–", "–"))[which] for name in ("article", "ours")]
    cells = [row["section"], row["says"][which], code, run, *figures]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _link(code: str) -> str:
    """Format a link to the file of an object."""
    path = path_of(code)
    target = Path(os.path.relpath(path, FOLDER)).as_posix()
    name = code.rpartition(":")[2] if ":" in code else path.name
    return f"[`{name}`]({target})"


def main() -> None:
    """Write both pages."""
    for language, path in PAGES.items():
        path.write_text(page(language), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

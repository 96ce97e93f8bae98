"""Write docs/articles/map.md and map.ko.md from map.toml; a test runs what they list.

Files are found from the public API by object, so that a file that moves needs no edit here.
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
"""What the names of a language's examples have before .py and .ipynb."""
PAGES = {"en": FOLDER / "map.md", "ko": FOLDER / "map.ko.md"}

HEAD = {
    "en": """\
# From the articles to Pellucid

Pellucid began from five Korean articles, and thanks their authors. For every section: what it says,
the file that has it, the command that runs it, and the article's figure next to ours. Where an
article needs a correction, [that page](../articles.md) says so. [한국어](map.ko.md)

Each article has a script and a notebook made from it, in [`examples/`](../../examples): run
`python examples/article_000.py`, or open the notebook in Jupyter. A test runs every command below
and looks for what is printed here, except where "trains" says that it takes minutes or longer.

[transformer.py](../../examples/transformer.py) is all of it in one file: 350 lines of NumPy alone,
in the order of the articles, with the section of the article above each part. A test holds its loss
and every gradient equal to Pellucid's.
""",
    "ko": """\
# 글에서 Pellucid로

Pellucid는 한국어로 쓰인 글 다섯 편에서 출발했습니다. 글을 쓴 분들께 감사드립니다. 아래 표는 글의
절마다 내용, 해당 코드, 실행할 명령, 글의 수치와 Pellucid의 수치를 나란히 보여 줍니다. 바로잡을 곳은
[별도 페이지](../articles.ko.md)에 정리했습니다. [English](map.md)

글마다 스크립트와 거기서 만든 노트북이 [`examples/`](../../examples)에 있습니다.
`python examples/article_000.ko.py`를 실행하거나 노트북을 Jupyter에서 여세요. `.ko`가 없는 것은 같은
코드의 영어판입니다. 아래 명령은 모두 테스트가 실행해 출력까지 확인합니다. '학습 필요'라고 적힌
명령만 몇 분 이상 걸리므로 이름만 확인합니다.

[transformer.ko.py](../../examples/transformer.ko.py)는 이 모두를 파일 하나에 담은 것입니다.
NumPy만으로 쓴 350줄이고, 글의 순서를 따르며, 부분마다 글의 어느 절인지 적었습니다. 손실과 모든
기울기가 Pellucid와 같은지 테스트로 확인합니다.
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
    "picture": ("Picture: ", "그림: "),
}


def articles() -> list[dict[str, Any]]:
    """Return the articles with their rows."""
    read: list[dict[str, Any]] = tomllib.loads((FOLDER / "map.toml").read_text("utf-8"))["article"]
    return read


def path_of(code: str) -> Path:
    """Return the file of "module:name" of the public API, or a path of the repository itself."""
    if ":" not in code:
        return ROOT / code
    module, _, name = code.partition(":")
    function = getattr(importlib.import_module(module), name)
    return Path(inspect.getsourcefile(function) or "").resolve()


def page(language: str) -> str:
    """Return one language's page."""
    which = LANGUAGES.index(language)
    word = {name: texts[which] for name, texts in WORDS.items()}
    lines = [HEAD[language]]
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
            *(_row(row, which, word) for row in article["row"]),
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


def _row(row: dict[str, Any], which: int, word: dict[str, str]) -> str:
    code = ", ".join(_link(name) for name in row["code"])
    command = re.sub(r"(?<=article_\d{3})\.py", f"{ENDINGS[LANGUAGES[which]]}.py", row["run"])
    run = f"`{command}`" + (f" ({word['slow']})" if row.get("slow") else "")
    figures = [row.get(name, ("–", "–"))[which] for name in ("article", "ours")]
    cells = [row["section"], row["says"][which], code, run, *figures]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _link(code: str) -> str:
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

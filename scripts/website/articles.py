"""Write each article as one HTML file that needs no network.

It has the text of the notebook with its stored output, of docs/articles.md, docs/findings.md,
docs/articles/map.md and of `pellucid explain`. Nothing is computed, and no text is written twice.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterator
from functools import cache
from mimetypes import guess_type
from pathlib import Path
from typing import Any

import pages
from markdown import Markdown
from markdown.extensions.toc import slugify_unicode
from pages import DOCS, ROOT, Language

from pellucid.apps.teach.topic import read

FIGURES: dict[str, dict[str, str]] = {
    "000": {
        "attention": "ops.attention_backward(",
        "softmax": "ops.softmax_backward(",
        "layer_norm": "ops.layer_norm_backward(",
        "gelu": "ops.gelu_backward(",
        "scaling": 'lesson.show("variance"',
    },
    "001": {
        "softmax": "scale=sharpness",
        "attention": "as_product = ",
        "masks": "nn.explain_mask(",
    },
    "002": {
        "layer_norm": "norm_first=norm_first",
        "attention": "decoder.layers[0]",
        "masks": "nn.explain_mask(",
    },
    "003": {
        "softmax": "ops.softmax(scores)",
        "cross_entropy": "final_loss(",
        "scaling": 'lesson.show("trained"',
    },
    "004": {
        "attention": "def article_test(",
        "scaling": "one_hot = ",
        "masks": "ops.attention(q, k, v, mask=none)",
        "linear": "ops.linear(",
        "relu": "ops.relu(",
    },
}
"""The interactive figures of an article: a topic, and the code of the cell that its figure
follows."""
WORDS = {
    "contents": ("Contents", "차례"),
    "derivation": ("The derivation, step by step", "유도 과정, 한 단계씩"),
    "setup": ("What the code below uses", "아래 코드가 쓰는 것"),
    "answers": ("Answers to its questions", "글의 질문에 대한 답"),
    "corrections": ("Corrections, with numbers", "바로잡을 곳, 수치로 확인하기"),
    "sections": ("Section by section", "절마다 어디에 답이 있나"),
    "next": ("Where to go on", "이어서"),
    "explain": ("each derivation with its checks", "유도 과정과 수치 검증"),
    "exercise": ("derive it yourself; mistakes are named", "직접 유도하고 채점받기"),
    "beside": ("if saved in the same folder", "같은 폴더에 저장했다면"),
    "open": ("This article on one page", "이 글을 한 장으로 보기"),
    "cells": ("run its cells in the browser", "브라우저에서 셀 실행하기"),
    "save": ("save it", "저장하기"),
    "offline": ("one file that works offline", "인터넷 없이 열리는 파일 하나"),
}
LINK = re.compile(r'<a ([^>]*)href="(?!#|https?:|article_)[^"]*"[^>]*>(.*?)</a>', re.DOTALL)
PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)]+)\)$", re.MULTILINE)
SCHEME = re.compile(r'\[data-md-color-scheme="(default|slate)"\] (\{[^}]*\})')
EXTENSIONS = [
    "attr_list",
    "md_in_html",
    "tables",
    "toc",
    "pymdownx.highlight",
    "pymdownx.superfences",
]
ASSETS = ("site.css", "figures.css", "figures.js", "site.js")
PAGE = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title} · Pellucid</title>
<style>{style}</style>
</head>
<body>
<main class="md-typeset one-page">
{body}
</main>
<script>{script}</script>
</body>
</html>
"""


def word(name: str, language: Language) -> str:
    """Return a text of this file in one language."""
    return WORDS[name][pages.LANGUAGES.index(language)]


def file_of(number: str, language: Language) -> str:
    """Return the name of an article's file, which is that of its notebook.

    >>> file_of("003", "ko")
    'article_003.ko.html'
    """
    return f"article_{number}{'' if language == 'en' else '.ko'}.html"


def links(number: str, here: str, language: Language) -> str:
    """Return the line with links to an article's file and cells, for a page of the site."""
    target = pages.relative(f"articles/{file_of(number, language)}", here)
    cells = pages.relative("workbench/workbench.html", here)
    opened, saved, offline, runs = (
        word(name, language) for name in ("open", "save", "offline", "cells")
    )
    save = f'<a href="{target}" download>{saved}</a>'
    run = f'<a href="{cells}#article={number}">{runs}</a>'
    return f'<p><a href="{target}">{opened}</a> · {save} ({offline}) · {run}</p>'


def page(number: str, language: Language) -> str:
    """Write the file of one article.

    Raises `ValueError` for a figure without its cell.
    """
    toc = {"slugify": slugify_unicode, "toc_depth": "2-2", "title": word("contents", language)}
    markdown = Markdown(extensions=EXTENSIONS, extension_configs={"toc": toc})
    body = markdown.convert("\n\n".join(_parts(number, language)))
    body = LINK.sub(r"<span \1>\2</span>", body)  # what this file does not hold
    body = body.replace("<table>", '<div class="md-typeset__scrollwrap"><table>')
    body = body.replace("</table>", "</table></div>")
    shown: set[str] = set()
    body = re.sub('<p>(<img [^>]*src=")([^"]+)("[^>]*>)</p>', lambda m: _picture(m, shown), body)
    site, figures, drawn, reach = ((DOCS / "assets" / name).read_text("utf-8") for name in ASSETS)
    title = re.sub("<[^>]+>", "", body.partition("</h1>")[0])
    own = Path(__file__).with_name("article.css").read_text("utf-8")
    style = SCHEME.sub(_scheme, site) + figures + own
    return PAGE.format(language=language, title=title, style=style, body=body, script=drawn + reach)


def write(site: Path) -> None:
    """Write the files of all articles into a built site."""
    for language in pages.LANGUAGES:
        folder = site / ("" if language == "en" else language) / "articles"
        for number in FIGURES:
            (folder / file_of(number, language)).write_text(page(number, language), "utf-8")


def _parts(number: str, language: Language) -> list[str]:
    """Return the Markdown of an article's parts, in their order."""
    suffix, name = ("", "Article") if language == "en" else (".ko", "글")
    notebook = ROOT / "examples" / f"article_{number}{suffix}.ipynb"
    first, _, setup, *cells = json.loads(notebook.read_text("utf-8"))["cells"]  # _ installs
    corrections = _text("articles", language)
    right = _found(rf"^- \*\*{number}\*\*(.*?)(?=^- |\n\n)", corrections)
    (mapped,) = _sections("articles/map", number, language)
    (corrected,) = _sections("articles", number, language)
    about, _, table = mapped.partition("\n|")
    answers = [
        re.sub(r"^## \D+\d+: (.)", lambda m: f"### {m[1].upper()}", part.partition("<details")[0])
        for part in _sections("findings", number, language)
    ]
    others = [f"[{name} {n}]({file_of(n, language)})" for n in FIGURES if n != number]
    return [
        "".join(first["source"]),
        about.partition("\n")[2],
        "[TOC]",
        _folded("setup", [_fenced("python", "".join(setup["source"]))], language),
        f"## {_found(r'^## ([^0-9]+?)$', corrections)}",
        f"**{name} {number}**{right}",
        *_lesson(number, cells, language),
        *([f"## {word('answers', language)}", *answers] if answers else []),
        f"## {word('corrections', language)}",
        _found(r"(^```.*?^```)", corrections),
        corrected.partition("\n")[2],
        f"## {word('sections', language)}",
        f"|{table}",
        f"## {word('next', language)}",
        f"- {', '.join(f'`pellucid explain {topic}`' for topic in FIGURES[number])}: "
        f"{word('explain', language)}\n"
        f"- `pellucid exercise`: {word('exercise', language)}\n"
        f"- {', '.join(others)} ({word('beside', language)})",
    ]


def _lesson(number: str, cells: list[dict[str, Any]], language: Language) -> Iterator[str]:
    """Yield a notebook's text, code, output and pictures, with the figures that follow."""
    missing = dict(FIGURES[number])
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield _fenced("python", source)
        for output in cell["outputs"]:
            if "text" in output:  # a picture is below, in the language of the page
                yield _fenced("{.text .output}", "".join(output["text"]).strip("\n"))
        for picture in re.findall(r'lesson\.show\(f?"(\w+)', source):
            for alt, path in PICTURE.findall(_text("articles/map", language)):
                if Path(path).name.partition(".")[0] == picture:
                    yield f"![{alt}]({path})"
        for topic in [topic for topic, code in missing.items() if code in source]:
            del missing[topic]
            yield from _figure(topic, language)
    if missing:
        raise ValueError(f"article {number} has no cell for {missing}")


@cache
def _text(path: str, language: Language) -> str:
    """Read a page of docs/; paths of pictures become relative to the root."""
    file = DOCS / f"{path}{'' if language == 'en' else '.ko'}.md"

    def rooted(match: re.Match[str]) -> str:
        picture = (file.parent / match[2]).resolve().relative_to(ROOT)
        return f"![{match[1]}]({picture.as_posix()})"

    text = file.read_text("utf-8").replace("```python\n>>>", "```pycon\n>>>")
    return PICTURE.sub(rooted, text)


def _sections(path: str, number: str, language: Language) -> list[str]:
    """Return the sections of a page on one article."""
    sections = re.split(r"^(?=## )", _text(path, language), flags=re.MULTILINE)
    return [s for s in sections if re.match(rf"## (?:Article|글) {number}\b", s)]


def _found(pattern: str, text: str) -> str:
    """Return the first group of a pattern in a text.

    Raises `ValueError` if it does not match.
    """
    match = re.search(pattern, text, re.DOTALL | re.MULTILINE)
    if match is None:
        raise ValueError(f"docs/articles.md has no {pattern}")
    return match[1]


def _fenced(kind: str, text: str) -> str:
    return f"````{kind}\n{text}\n````"


def _folded(name: str, lines: list[str], language: Language) -> str:
    head = f'<details markdown="1"><summary>{word(name, language)}</summary>'
    return "\n\n".join([head, *lines, "</details>"])


@cache
def _figure(topic: str, language: Language) -> list[str]:
    """Return a topic's interactive figure, and its derivation without checks and examples."""
    title, about, *blocks = read(topic, language)
    sections = [[about]]
    for block in blocks:
        if block.kind == "section":
            sections.append([])
        sections[-1].append(block)
    derived = [part for part in sections if any(block.kind == "step" for block in part)]
    lines = [
        re.sub("^## ", "#### ", line)
        for block in itertools.chain.from_iterable(derived)
        for line in pages.shown(block, f"explain/{topic}.md", language)
    ]
    drawn, start = pages.FIGURES[topic]
    return [
        f"### {pages.word('figure', language)}: {title.text}",
        about.text,
        pages.figure(drawn, language, start=start),
        _folded("derivation", lines, language),
    ]


def _picture(match: re.Match[str], shown: set[str]) -> str:
    """Embed a picture in the page; "" if the page has it already."""
    before, path, after = match.groups()
    if path in shown:
        return ""
    shown.add(path)
    data = base64.b64encode((ROOT / path).read_bytes()).decode()
    return f"<p>{before}data:{guess_type(path)[0]};base64,{data}{after}</p>"


def _scheme(match: re.Match[str]) -> str:
    """Make a colour palette of the site follow the system instead of a button."""
    if match[1] == "default":
        return f":root {match[2]}"
    return f"@media screen and (prefers-color-scheme: dark) {{ :root {match[2]} }}"

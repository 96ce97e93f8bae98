"""A report as blocks, written as Markdown with pictures beside it and as one HTML file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b2b30; background: #fff; margin: 0 auto;
       max-width: 62rem; padding: 1rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { margin-top: 2.5rem; font-size: 1.25rem; }
p, li { max-width: 46rem; }
figure { margin: 1.25rem 0; } img { max-width: 100%; height: auto; }
figcaption { color: #4a5b60; font-size: .9rem; max-width: 46rem; }
.wide { overflow-x: auto; margin: 1rem 0; } .wide img { max-width: none; }
td:first-child { min-width: 8rem; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0;
         border-bottom: 1px solid #d5dfe1; font-variant-numeric: tabular-nums; }
pre { background: #f2f6f6; padding: .7rem; overflow-x: auto; font-size: .85rem; }
"""
WIDEST = 1100
"""Pixels of a picture that may be shrunk to the page; a wider one's letters would be too small."""


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table: heads, then rows of as many cells."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A PNG with what a reader should see in it, which is its alternative text too."""

    name: str
    png: bytes
    caption: str


@dataclass(frozen=True)
class Code:
    """Something to type, or a file."""

    text: str


Block = Heading | Text | Items | Table | Picture | Code


def to_markdown(blocks: Sequence[Block]) -> str:
    """Write the blocks as Markdown; pictures are named as files beside it.

    >>> print(to_markdown([Heading("A", 1), Table(["x"], [["1|2"]])]), end="")
    # A
    <BLANKLINE>
    | x |
    | --- |
    | 1\\|2 |
    """
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Items(items):
            return "\n".join(f"- {item}" for item in items)
        case Table(heads, rows):
            lines = [heads, ["---"] * len(heads), *rows]
            return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
        case Picture(name, _, caption):
            return f"![{caption}]({name})\n\n*{caption}*"
        case Code(text):
            return f"```\n{text.rstrip()}\n```"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def to_html(blocks: Sequence[Block]) -> str:
    """Write the blocks as one HTML file that asks for nothing else: pictures are inside it."""
    title = next((b.text for b in blocks if isinstance(b, Heading)), "Report")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(map(_html, blocks))
        + "\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case Text(text):
            return f"<p>{html.escape(text)}</p>"
        case Items(items):
            return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"
        case Table(heads, rows):
            head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in heads)
            body = "".join(
                "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                for row in rows
            )
            return f'<div class="wide" tabindex="0"><table><tr>{head}</tr>{body}</table></div>'
        case Picture(_, png, caption):
            data, alt = base64.b64encode(png).decode("ascii"), html.escape(caption, quote=True)
            image = f'<img src="data:image/png;base64,{data}" alt="{alt}">'
            if int.from_bytes(png[16:20]) > WIDEST:  # where a PNG says how wide it is
                image = f'<div class="wide" tabindex="0">{image}</div>'
            return f"<figure>{image}<figcaption>{alt}</figcaption></figure>"
        case Code(text):
            return f"<pre>{html.escape(text)}</pre>"

"""Parts of a report, and how templates make Markdown and HTML of them."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pellucid.core.errors import optional

INSTALL = "reports need {}, which is not installed"


@dataclass(frozen=True)
class Table:
    """A table: column heads, then rows of as many cells."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Plot:
    """A picture as the text of an SVG file; the title is its alternative text."""

    name: str
    title: str
    svg: str
    caption: str


Block = str | Table | Plot
"""A paragraph, a table or a picture."""


@cache
def captions() -> Mapping[str, str]:
    """Return the prose of the report's pictures and tables, by name."""
    return tomllib.loads((files(__package__) / "templates" / "captions.toml").read_text("utf-8"))


def render(template: str, **values: Any) -> str:
    r"""Fill one of `lab/templates`.

    >>> render("blocks.md", blocks=[Table(["x"], [["1|2"]])]).strip()
    '| x |\n| --- |\n| 1\\|2 |'
    """
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Any:
    jinja2 = optional("jinja2", INSTALL.format("Jinja2"), extra="lab")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pellucid.apps.lab"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=lambda name: name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["cell"] = lambda text: text.replace("|", "\\|").replace("\n", " ")
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["plot"] = lambda block: isinstance(block, Plot)
    return environment


def to_html(markdown: str, title: str, pictures: Mapping[str, str]) -> str:
    """Return the report as one HTML file that loads nothing: the pictures, SVGs, are inside it.

    Each cell carries its column's head, which a narrow screen shows next to it.
    """
    parser = optional("markdown_it", INSTALL.format("markdown-it-py"), extra="lab").MarkdownIt(
        "commonmark", {"html": False}
    )
    tokens = parser.enable("table").parse(markdown)
    heads: list[str] = []
    column = 0
    for i, token in enumerate(tokens):
        if token.type == "table_open":
            heads = []
        elif token.type == "tr_open":
            column = 0
        elif token.type == "th_open":
            heads.append(tokens[i + 1].content)
        elif token.type == "td_open":
            token.attrSet("data-head", heads[column])
            column += 1
        for child in token.children or ():
            if child.type == "image":
                svg = pictures[str(child.attrs["src"])]
                data = base64.b64encode(svg.encode()).decode("ascii")
                child.attrSet("src", f"data:image/svg+xml;base64,{data}")
    body = parser.renderer.render(tokens, parser.options, {})
    return render("report.html", title=title, body=body)

"""Parts of a report, and templates that turn them into Markdown and HTML."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from pellucid.apps.lab.wording import tr
from pellucid.core.errors import optional
from pellucid.system.language import chosen_language


def lab_package(module: str, name: str) -> Any:
    """Import a package of the `lab` extra. Raises `UserError` if it is not installed."""
    return optional(module, f"reports need {name}, which is not installed", extra="lab")


@dataclass(frozen=True)
class Table:
    """A table: the column heads, then rows with one cell per column."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Plot:
    """A picture as SVG text; `name` is its file name, `title` its alternative text."""

    name: str
    title: str
    svg: str
    caption: str


Block = str | Table | Plot
"""A block of a report: a paragraph, a table or a picture."""


def render(template: str, **values: Any) -> str:
    r"""Fill in a template of lab/templates with values.

    >>> render("blocks.md", blocks=[Table(["x"], [["1|2"]])]).strip()
    '| x |\n| --- |\n| 1\\|2 |'
    """
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Any:
    """Make the Jinja2 environment: filters and tests for the templates, HTML escaped."""
    jinja2 = lab_package("jinja2", "Jinja2")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pellucid.apps.lab"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=lambda name: name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["tr"] = environment.globals["tr"] = tr
    environment.globals["language"] = chosen_language
    environment.filters["cell"] = lambda text: text.replace("|", "\\|").replace("\n", " ")
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["plot"] = lambda block: isinstance(block, Plot)
    return environment


def to_html(markdown: str, title: str, pictures: Mapping[str, str]) -> str:
    """Convert a report to one HTML file that loads nothing.

    pictures: SVG texts by file name; they are embedded. An image with any other address becomes
    text.
    """
    markdown_it = lab_package("markdown_it", "markdown-it-py")
    parser = markdown_it.MarkdownIt("commonmark", {"html": False})
    tokens = parser.enable("table").parse(markdown)
    for child in chain(*(token.children or () for token in tokens)):
        if child.type == "image" and child.attrs["src"] not in pictures:
            child.type = "text"  # a note may name one, and the file loads nothing
        elif child.type == "image":
            data = base64.b64encode(pictures[str(child.attrs["src"])].encode()).decode("ascii")
            child.attrSet("src", f"data:image/svg+xml;base64,{data}")
    body = parser.renderer.render(tokens, parser.options, {})
    return render("report.html", title=title, body=body)

"""`pellucid explain TOPIC`: the equation, the derivation next to our code, a check run now."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Literal

import numpy as np
from rich.text import Text as Prose

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import printed_language
from pellucid.apps.teach.topic import TOPIC_LINK, TOPICS, Block, measured, quoted, read, value
from pellucid.core.errors import UsageError
from pellucid.core.language import Language, Text
from pellucid.core.settings import nearest

LIMIT = Text("limit", "허용")
LIST = Text("pellucid explain TOPIC, one of:", "pellucid explain 주제. 주제 목록:")
WRONG = "WRONG"
CODE = 7
"""Spaces in front of code, which is not wrapped."""


def explain(topic: str = "", /, *, lang: Literal["auto", "en", "ko"] = "auto") -> int:
    """Explain a part of the Transformer: equation, derivation, our code, a numeric check.

    The code shown is read from the installed source, and the check runs while you wait. Exit code
    1 if a check fails. Without a topic, lists them.

    Args:
        topic: What to explain.
        lang: Language of the text; auto: the locale's.
    """
    language: Language = printed_language() if lang == "auto" else lang
    console = Output()
    if not topic:
        width = max(map(len, TOPICS))
        lines = [f"  {name:<{width}}  {read(name, language)[0].text}" for name in TOPICS]
        console.print("\n".join([LIST.to(language), *lines]), markup=False, soft_wrap=True)
        return 0
    name = topic.lower().replace("-", "_")
    if name not in TOPICS:
        raise UsageError(
            f"no topic {topic!r}{nearest(name, TOPICS)}; there are: {', '.join(TOPICS)}"
        )
    failed = False
    for line in page(name, language):
        failed |= line.startswith(f"  {WRONG}")
        _print(console, line)
    return 1 if failed else 0


def _print(console: Output, line: str) -> None:
    """Print one line of a page: headings bold, code as it is, prose wrapped at its own indent."""
    indent = len(line) - len(line.lstrip())
    wraps = indent < CODE and line.strip()
    for part in Prose(line).wrap(console, console.width - indent) if wraps else [Prose(line)]:
        text = f"{' ' * indent}{part.plain.strip()}" if wraps else line
        console.print(text, markup=False, soft_wrap=True, style="" if indent else "bold")


def page(name: str, language: Language) -> Iterator[str]:
    """Yield the page of a topic line by line; what it computes is computed as it is reached."""
    previous = Block("title")
    for block in read(name, language):
        if _apart(previous, block):
            yield ""
        yield from _lines(block, language)
        previous = block


def _apart(previous: Block, block: Block) -> bool:
    """Return whether a blank line separates two blocks."""
    kinds = (previous.kind, block.kind)
    return block.kind == "section" or "formula" in kinds or kinds == ("text", "text")


def _lines(block: Block, language: Language) -> Iterator[str]:
    """Yield the lines of one block; what belongs to a step is below its formula."""
    match block.kind:
        case "title" | "section":
            yield block.text
        case "step":
            yield f"  {block.step}. {block.text}"
        case "text":
            yield " " * (5 if block.step else 2) + TOPIC_LINK.sub(r"\2", block.text)
        case "formula":
            yield from textwrap.indent(block.text, " " * (CODE if block.step else 4)).split("\n")
        case "code":
            for line in quoted(block.of):
                yield f"       {line.file}:{line.number:<4} {line.text}"
        case "example":
            yield f"       >>> {block.text}"
            with np.printoptions(linewidth=88):
                yield from (f"       {line}" for line in repr(value(block.text)).splitlines())
        case "picture":
            yield f"  pellucid plot {block.of}"
        case _:
            error, limit = measured(block)
            verdict = "ok" if error <= limit else WRONG
            yield f"  {verdict:<5} {error:.1e} ({LIMIT.to(language)} {limit:.0e})  {block.text}"

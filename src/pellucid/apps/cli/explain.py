"""`pellucid explain TOPIC`: show equation, derivation and code, and run a check."""

import textwrap
from collections.abc import Iterator

import numpy as np

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import printed_language, wrapped
from pellucid.apps.teach.topic import TOPIC_LINK, TOPICS, Block, measured, quoted, read, value
from pellucid.core.settings import check_known
from pellucid.system.language import Language, Text

LIMIT = Text("limit", "허용")
LIST = Text("pellucid explain TOPIC, one of:", "pellucid explain 주제. 주제 목록:")
OK, WRONG = "ok", "WRONG"
FORMULA, CODE = 4, 7
"""Number of spaces before a formula, and before code."""


def explain(topic: str = "", /) -> int:
    """Explain a part of the Transformer: equation, derivation, our code, a numeric check.

    The code shown is read from the installed source, and the check runs while you wait. Exit code
    1 if a check fails. Without a topic, lists them.

    Args:
        topic: What to explain.
    """
    language, console = printed_language(), Output()
    if not topic:
        width = max(map(len, TOPICS))
        lines = [
            wrapped(
                read(name, language)[0].text,
                console.width,
                f"  {name:<{width}}  ",
                " " * (width + 4),
            )
            for name in TOPICS
        ]
        console.say("\n".join([LIST.to(language), *lines]))
        return 0
    name = topic.lower().replace("-", "_")
    check_known("topic", name, TOPICS)
    failed = False
    for line in page(name, language, console.width):
        failed |= line.startswith(f"  {WRONG}")
        _print(console, line)
    return 1 if failed else 0


def _print(console: Output, line: str) -> None:
    """Print one line of a topic, wrapped between words; headings are bold."""
    indent = len(line) - len(line.lstrip())
    further = 4 if indent == FORMULA or indent >= CODE else 0
    further += 2 if line.lstrip().startswith((OK, WRONG)) else 0
    spaces = " " * indent
    text = wrapped(line.strip(), console.width, spaces, spaces + " " * further)
    console.print(text, markup=False, soft_wrap=True, style="" if indent else "bold")


def page(name: str, language: Language, width: int = 80) -> Iterator[str]:
    """Yield the lines of a topic; numbers are computed when their line is reached.

    Arrays are printed within `width` columns.
    """
    previous = Block("title")
    for block in read(name, language):
        kinds = (previous.kind, block.kind)
        if block.kind == "section" or "formula" in kinds or kinds == ("text", "text"):
            yield ""
        yield from _lines(block, language, width)
        previous = block


def _lines(block: Block, language: Language, width: int) -> Iterator[str]:
    """Yield the lines of one block.

    Text, formula and code of a step are indented below its heading.
    """
    match block.kind:
        case "title" | "section":
            yield block.text
        case "step":
            yield f"  {block.step}. {block.text}"
        case "text":
            yield " " * (5 if block.step else 2) + TOPIC_LINK.sub(r"\2", block.text)
        case "formula":
            yield from textwrap.indent(block.text, " " * (CODE if block.step else FORMULA)).split(
                "\n"
            )
        case "code":
            for line in quoted(block.of):
                yield f"       {line.file}:{line.number:<4} {line.text}"
        case "example":
            yield f"       >>> {block.text}"
            with np.printoptions(linewidth=width - CODE):
                yield from (f"       {line}" for line in repr(value(block.text)).splitlines())
        case "picture":
            yield f"  pellucid plot {block.of}"
        case _:
            error, limit = measured(block.kind, block.of)
            verdict = OK if error <= limit else WRONG
            yield f"  {verdict:<5} {error:.1e} ({LIMIT.to(language)} {limit:.0e})  {block.text}"

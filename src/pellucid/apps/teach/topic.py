"""The topics of `pellucid explain`: Markdown in topics/, and what is computed as it is printed.

A topic is topics/NAME.md in English, topics/NAME.ko.md in Korean, and its name in `TOPICS`. Blank
lines separate its blocks. The first block is the title; the second says what the topic is about.

    title      # Title
    section    ## Section; any number of them, with any blocks
    step       ### `formula`; numbered within its section, text and code below belong to it
    formula    indented by four: one formula on each line
    example    indented by four, beginning with >>>: an expression, printed with its value
    code       {code: ops.softmax e total}: quotes the lines of a function that assign these names,
               or `return`; {code: transformer.softmax}: all of a function of transformer.py
    picture    {picture: softmax}: a picture of `pellucid plot`
    gradients  {gradients: softmax} what it is: the largest error of these rows of `pellucid check`
    check      {check: softmax_jacobian} what it is: a number that checks.py computes
    text       everything else is a paragraph; it may link to a topic: [Softmax](softmax.md)

Both languages have the same blocks, formulas, examples and {…} in the same order.
"""

import ast
import math
import re
import textwrap
from functools import cache, reduce
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from pellucid import Rng, nn, ops
from pellucid.apps.teach import course_file
from pellucid.apps.teach.checks import CHECKS
from pellucid.apps.view.backward import CodeLine, statements
from pellucid.check import TOLERANCE, cases
from pellucid.generation.sampling import kept_probabilities
from pellucid.generation.search import search_once
from pellucid.models.decoding import penalty
from pellucid.optim import schedules
from pellucid.optim.adam import Moments, adam
from pellucid.system.language import Language

TOPICS = (
    "linear", "relu", "gelu", "softmax", "attention", "scaling", "masks", "multi_head",
    "feed_forward", "layer_norm", "residual", "encoder_layer", "decoder_layer",
    "embedding", "positions", "transformer", "cross_entropy", "adam", "warm_up", "dropout",
    "generation",
)  # fmt: skip
"""In reading order: each uses the ones before it."""

NAMES: dict[str, Any] = {
    "np": np, "inf": math.inf, "ops": ops, "nn": nn, "Rng": Rng, "adam": adam, "Moments": Moments,
    "schedules": schedules, "search_once": search_once, "penalty": penalty,
    "kept_probabilities": kept_probabilities,
}  # fmt: skip
"""Names that the expressions after `>>>` and `{code: …}` may use."""

TOPIC_LINK = re.compile(r"\[([^\]]+)\]\((\w+)(?:\.ko)?\.md\)")
"""A Markdown link to a topic; groups: its title and its name."""

PROSE = r"(?P<text>(?:(?!\n[\s#{]).)+)"
"""Lines of text; a line that begins another block needs a blank line before it."""

SHAPES = {
    kind: re.compile(shape, re.DOTALL)
    for kind, shape in {
        "title": r"# (?P<text>[^\n]+)",
        "section": r"## (?P<text>[^\n]+)",
        "step": r"### `(?P<text>[^\n]+)`",
        "example": r" {4}>>> (?P<text>[^\n]+)",
        "formula": r"(?P<text>(?: {4}(?!>>>)[^\n]+\n?)+)",
        "code": r"\{code: (?P<of>[^}]+)\}",
        "picture": r"\{picture: (?P<of>\w+)\}",
        "gradients": r"\{gradients: (?P<of>[^}]+)\} " + PROSE,
        "check": r"\{check: (?P<of>\w+)\} " + PROSE,
        "text": r"(?!\s|```|[#{>|*-])" + PROSE,
    }.items()
}
"""Regular expression of each kind of block."""


class Block(NamedTuple):
    """One block of a topic: a heading, a paragraph, a formula, or something to compute."""

    kind: str
    """Kind of the block, a key of `SHAPES`."""
    text: str = ""
    of: str = ""
    """The argument inside {…}."""
    step: int = 0
    """Number of the step that the block is, or belongs to; 0 outside steps."""


def read(name: str, language: Language) -> list[Block]:
    """Read and parse a topic in one language; return its blocks in order.

    Raises `ValueError` for a block that matches no pattern of `SHAPES`.
    """
    file = f"{name}.md" if language == "en" else f"{name}.{language}.md"
    text = (files("pellucid.apps.teach") / "topics" / file).read_text(encoding="utf-8")
    blocks, step = [], 0
    for chunk in re.split(r"\n{2,}", text.strip("\n")):
        block = _block(chunk, file)
        step = 0 if block.kind == "section" else step + (block.kind == "step")
        blocks.append(block._replace(step=step))
    return blocks


def _block(chunk: str, file: str) -> Block:
    """Parse one block of a topic.

    Raises `ValueError` if no pattern of `SHAPES` matches.
    """
    for kind, shape in SHAPES.items():
        if found := shape.fullmatch(chunk):
            parts = found.groupdict()
            text = parts.get("text", "")
            text = textwrap.dedent(text) if kind == "formula" else text.replace("\n", " ")
            return Block(kind, text, parts.get("of", ""))
    raise ValueError(
        f"topics/{file}: {chunk!r} is none of {', '.join(SHAPES)}; "
        "pellucid/apps/teach/topic.py shows how each is written"
    )


def quoted(of: str) -> list[CodeLine]:
    """Return the source lines that `{code: FUNCTION NAME…}` quotes, in their order.

    They are the statements of the function that assign one of the names; of a function of
    transformer.py they are all its lines that are not empty. Raises `LookupError` if the function
    assigns no such name.

    >>> [line.text for line in quoted("ops.linear_backward dweight")]
    ['dweight = dy_rows.T @ x_rows']
    """
    path, *names = of.split()
    first, *attributes = path.split(".")
    if first == "transformer":
        return _plain(*attributes)
    function = reduce(getattr, attributes, NAMES[first])
    lines = [line for each in statements(function, *names) for line in each]
    texts = textwrap.dedent("\n".join(line.text for line in lines)).split("\n")
    return [line._replace(text=text) for line, text in zip(lines, texts, strict=True)]


def _plain(name: str) -> list[CodeLine]:
    """Return all lines of a function of examples/transformer.py."""
    text = course_file("transformer.py").read_text(encoding="utf-8")
    (node,) = (each for each in ast.parse(text).body if getattr(each, "name", "") == name)
    lines = text.split("\n")[node.lineno - 1 : node.end_lineno]
    numbered = enumerate(lines, start=node.lineno)
    return [CodeLine("transformer.py", name, n, line) for n, line in numbered if line]


def value(expression: str) -> Any:
    """Evaluate the expression of an example, in which `NAMES` are defined."""
    with np.errstate(all="ignore"):
        return eval(expression, dict(NAMES))


@cache
def measured(kind: str, of: str) -> tuple[float, float]:
    """Compute the number of a `check` or `gradients` block; return (error, limit).

    of: what follows the kind in the block: a name in `CHECKS`, or names of rows of `pellucid
    check`. The numbers are cached, because the topics in both languages show them. Raises
    `LookupError` for an unknown name.
    """
    if kind == "check":
        error, limit = CHECKS[of]
        return error(), limit
    names = set(of.split())
    rows = [case for case in cases() if case.name.partition(" (")[0] in names]
    if missing := names - {case.name.partition(" (")[0] for case in rows}:
        raise LookupError(f"pellucid check has no row {', '.join(sorted(missing))}")
    errors = [error for case in rows for error in case.errors().values()]
    return float(np.max(errors)), TOLERANCE  # not max(), which may lose a NaN

"""`pellucid explain TOPIC`: the equation, the derivation next to our code, a check run now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from rich.text import Text as Prose

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import printed_language
from pellucid.apps.teach.topic import Edge, Step, Topic
from pellucid.apps.teach.topics import TOPICS
from pellucid.core.errors import UsageError
from pellucid.core.language import Language, Text
from pellucid.core.settings import nearest

HEADS = {
    "source": Text("Source", "출처"),
    "article": Text("article", "글"),
    "forward": Text("Forward", "순전파"),
    "backward": Text("Backward", "역전파"),
    "why": Text("Properties", "성질"),
    "edges": Text("Edge cases", "경계 사례"),
    "checks": Text("Checked here and now", "지금 이 컴퓨터에서 검증"),
    "related": Text("See also", "함께 보기"),
    "limit": Text("limit", "허용"),
}
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
        lines = [f"  {name:<{width}}  {TOPICS[name].title.to(language)}" for name in TOPICS]
        console.print("\n".join([LIST.to(language), *lines]), markup=False, soft_wrap=True)
        return 0
    name = topic.lower().replace("-", "_")
    if name not in TOPICS:
        raise UsageError(
            f"no topic {topic!r}{nearest(name, TOPICS)}; there are: {', '.join(TOPICS)}"
        )
    failed = False
    for line in page(TOPICS[name], language):
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


def page(topic: Topic, language: Language) -> Iterator[str]:
    """Yield the page of a topic line by line; its checks run as they are reached."""
    yield topic.title.to(language)
    yield f"  {topic.summary.to(language)}"
    yield from ("", *(f"    {equation}" for equation in topic.equations), "")
    articles = ", ".join(f"{HEADS['article'].to(language)} {number}" for number in topic.articles)
    yield f"  {HEADS['source'].to(language)}: {topic.source}; {articles}"
    for head, steps in (("forward", topic.forward), ("backward", topic.backward)):
        if steps:
            has_code = any(step.code for step in steps)
            yield from ("", HEADS[head if has_code else "why"].to(language))
            for number, step in enumerate(steps, start=1):
                yield from _step(number, step, language)
    yield from ("", HEADS["edges"].to(language))
    for edge in topic.edges:
        yield from _edge(edge, language)
    yield from ("", HEADS["checks"].to(language))
    for check in topic.checks:
        error = check.error()
        verdict = "ok" if error <= check.limit else WRONG
        limit = f"{HEADS['limit'].to(language)} {check.limit:.0e}"
        yield f"  {verdict:<5} {error:.1e} ({limit})  {check.text.to(language)}"
    if topic.related:
        yield ""
        yield f"{HEADS['related'].to(language)}: {', '.join(topic.related)}"


def _step(number: int, step: Step, language: Language) -> Iterator[str]:
    yield f"  {number}. {step.formula}"
    yield f"     {step.text.to(language)}"
    for line in step.code.lines() if step.code else ():
        yield f"       {line.file}:{line.number:<4} {line.text}"


def _edge(edge: Edge, language: Language) -> Iterator[str]:
    yield f"  {edge.text.to(language)}"
    yield f"       >>> {edge.expression}"
    with np.printoptions(linewidth=88):
        for line in repr(edge.value()).splitlines():
            yield f"       {line}"

"""The model card: README.md of a model folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pellucid.core.settings import flat
from pellucid.data.corpora import find_corpus
from pellucid.models.quantize import WeightFormat
from pellucid.tasks import task_of
from pellucid.tasks.scores import Scores
from pellucid.training.config import RunConfig

SCORES_HEADING, NO_SCORES = "## Scores on held-out data", "None were taken."


def card(folder: Path, config: RunConfig, scores: Scores | None) -> str:
    """Return the model card of a run as Markdown, in the layout that Hugging Face shows."""
    if config.data.train:
        data = [f"Files of the user's own: {', '.join(p.name for p in config.data.train)}."]
    else:
        corpus = find_corpus(config.data.corpus)
        data = [
            f"{corpus.about}. Origin: {corpus.origin}. Licence: {corpus.licence}. "
            f"Cite: {corpus.citation}."
        ]
    if config.start is not None:
        kind = config.start.model_type or "Pellucid"
        data.append(
            f"It began from the model in {config.start.folder.resolve().name} ({kind}, SHA-256 "
            f"{config.start.sha256[:12]}…), with all that it had learnt."
        )
    template = files("pellucid.training").joinpath("card.md").read_text(encoding="utf-8")
    return template.format(
        title=folder.resolve().name,
        about=f"{task_of(config.model).about} {config.description}".strip(),
        scores="\n".join(_table("score", "value", scores.written() if scores else {})),
        data="\n".join(f"- {line}" for line in data),
        folder=shlex.quote(str(folder)),
        settings="\n".join(_table("setting", "value", flat(config.as_mapping()))),
    )


def with_scores(card: str, scores: Mapping[str, str]) -> str:
    """Return a card with these scores in its table, in place of those of the same names.

    The rest stays as it is, a user's own text included. A card without the table gets one, under
    its heading or, without that too, at the end.
    """
    if SCORES_HEADING not in card.split("\n"):
        card = card.rstrip("\n") + f"\n\n{SCORES_HEADING}\n"
    lines = card.split("\n")
    begin = lines.index(SCORES_HEADING) + 1
    end = _end_of_section(lines, begin)
    tables = (i for i in range(begin, end) if lines[i].startswith("|") or lines[i] == NO_SCORES)
    if (start := next(tables, None)) is None:
        lines[begin:begin] = ["", NO_SCORES, *([""] if any(lines[begin : begin + 1]) else [])]
        start = begin + 1
    if lines[start] == NO_SCORES:
        lines[start : start + 1] = _table("score", "value", scores)
        return "\n".join(lines)
    stop = next((i for i in range(start, end) if not lines[i].startswith("|")), end)
    made = dict(zip(scores, _table("score", "value", scores)[2:], strict=True))
    rows = [made.pop(row.split("|")[1].strip(), row) for row in lines[start + 2 : stop]]
    lines[start + 2 : stop] = [*rows, *made.values()]
    return "\n".join(lines)


def note_quantized(card: str, weights: WeightFormat) -> str:
    """Return a card with a note that the weights were quantized after they were scored.

    A card without scores stays as it is, and so does every card where nothing is rounded.
    """
    note = (
        f"Training scored the weights before they were stored as {weights}; `pellucid evaluate` "
        "scores them as they are stored."
    )
    lines = card.split("\n")
    if weights == "float32" or SCORES_HEADING not in lines or note in lines:
        return card
    begin = lines.index(SCORES_HEADING) + 1
    end = _end_of_section(lines, begin)
    if rows := [i for i in range(begin, end) if lines[i].startswith("|")]:
        lines[rows[-1] + 1 : rows[-1] + 1] = ["", note]
    return "\n".join(lines)


def _end_of_section(lines: Sequence[str], begin: int) -> int:
    return next((i for i in range(begin, len(lines)) if lines[i].startswith("#")), len(lines))


def _table(first: str, second: str, rows: Mapping[str, Any]) -> list[str]:
    if not rows:
        return [NO_SCORES]
    body = [
        f"| {name} | {str(value).replace('|', chr(92) + '|')} |" for name, value in rows.items()
    ]
    return [f"| {first} | {second} |", "|---|---|", *body]

"""The model card: README.md of a model folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pellucid.core.settings import flat
from pellucid.models.quantize import WeightFormat

SCORES_HEADING, NO_SCORES = "## Scores on held-out data", "None were taken."


def model_card(
    title: str,
    *,
    about: str,
    data: Sequence[str],
    scores: Mapping[str, str],
    settings: Mapping[str, Any],
    usage: Sequence[str],
    limits: str,
) -> str:
    """Return a model card as Markdown, in the layout that Hugging Face shows.

    about: what it does. data: what it learnt from, one line a set, licence included. scores: held
    out, by name, already written out. settings: nested tables as in config.toml. usage: commands.
    limits: what not to expect of it.

    >>> card = model_card("Toy", about="Reverses.", data=["Random strings."],
    ...     scores={"loss": "0.5 nats/token"}, settings={"model": {"d_model": 8}},
    ...     usage=["pellucid generate runs/toy/model abc"], limits="Short strings only.")
    >>> "| loss | 0.5 nats/token |" in card and "| model.d_model | 8 |" in card
    True
    """
    return "\n".join(
        [
            "---",
            "library_name: pellucid",
            "---",
            "",
            f"# {title}",
            "",
            about,
            "",
            SCORES_HEADING,
            "",
            *_table("score", "value", scores),
            "",
            "## Data",
            "",
            *(f"- {line}" for line in data),
            "",
            "## Use",
            "",
            "```sh",
            *usage,
            "```",
            "",
            "## Limits",
            "",
            limits,
            "",
            "## Settings",
            "",
            *_table("setting", "value", flat(settings)),
            "",
        ]
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

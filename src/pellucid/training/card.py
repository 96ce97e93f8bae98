"""The model card: README.md of a model folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


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
            "## Scores on held-out data",
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
            *_table("setting", "value", _flat(settings)),
            "",
        ]
    )


def _table(first: str, second: str, rows: Mapping[str, Any]) -> list[str]:
    if not rows:
        return ["None were taken."]
    body = [
        f"| {name} | {str(value).replace('|', chr(92) + '|')} |" for name, value in rows.items()
    ]
    return [f"| {first} | {second} |", "|---|---|", *body]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            rows.update(_flat(value, f"{prefix}{key}."))
        else:
            rows[f"{prefix}{key}"] = value
    return rows

"""`pellucid data FILE`: report what is in a file of pairs, before training on it."""

import json as json_format
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from pellucid.apps.cli.console import Output, table
from pellucid.apps.cli.language import tr
from pellucid.core.errors import UsageError, UserError
from pellucid.data.files import read_either
from pellucid.data.pairs import TextPair, entry, split_by_hash
from pellucid.data.quality import FAULTS, LATER, faults
from pellucid.system.command import command
from pellucid.training.config import DataConfig

MOST_LABELS = 100
"""The most different targets that count as labels, if each has ten pairs or more on average."""
WIDEST = 40
"""The most characters of an example."""


def data(
    files: tuple[Path, ...],
    /,
    *,
    columns: tuple[str, ...] | None = None,
    json: bool = False,
) -> int:
    """Report what is in a file of pairs: lengths, characters, labels, duplicates, suspicious rows.

    Nothing is changed. The last line is a command that trains on it.

    Args:
        files: One file of pairs (.tsv, .csv, .jsonl, also .gz), or two parallel text files.
        columns: Names of the source's and the target's column, or numbers of columns, from 1; of
            three the source is a pair of texts, or a text and its features.
        json: Print the report as one line of JSON.
    """
    if not files:
        raise UsageError("which file? Use `pellucid data FILE`, a file of pairs")
    try:
        pairs = read_either(files, DataConfig(columns=columns).columns)
    except UserError as error:
        raise UserError(str(error).replace("`data.columns`", "`columns`")) from None
    found = report(pairs)
    if json:
        print(json_format.dumps(found, ensure_ascii=False))
        return 0
    console = Output()
    for name, value in found.items():
        if not isinstance(value, dict):
            console.say(f"{tr(name):22} {value:,}" if isinstance(value, int) else f"{value}")
    sides = table(tr("characters"), tr("median"), "95 %", tr("most"), tr("different"), tr("new"))
    for side, row in found["characters"].items():
        new = "".join(row["new"])
        sides.add_row(tr(side), *(f"{row[k]:,}" for k in row if k != "new"), shorten(new, WIDEST))
    console.print(sides)
    console.say(
        tr("new: characters of the {:.0%} that would be held out that the others do not have")
        .format(DataConfig.held_out)
    )  # fmt: skip
    if found["labels"]:
        labels = table(tr("label"), tr("pairs"))
        for label, count in found["labels"].items():
            labels.add_row(label, f"{count:,}")
        console.print(labels)
    suspicious = table(tr("suspicious"), tr("pairs"), tr("which"), tr("for example"))
    about = {name: text for name, (text, _) in FAULTS.items()} | LATER
    for name, row in found["suspicious"].items():
        suspicious.add_row(name, f"{row['pairs']:,}", tr(about[name]), row["example"])
    if found["suspicious"]:
        console.print(suspicious)
    recipe, options = suggested(pairs, found)
    named = ["--data.columns", *columns] if columns else []
    words = ["train", recipe, "--data.train", *files, *named, *options]
    console.say(f"{tr('train on it:')} {command(*words)}")
    return 0


def report(pairs: Sequence[TextPair]) -> dict[str, Any]:
    """Compute statistics of pairs, of which there is at least one, as JSON values.

    "twins" counts sources that differ from another only in appearance, such as case: of several
    such sources, all but one.

    >>> found = report([TextPair("ab", ("x",)), TextPair("AB", ("x",))])
    >>> found["pairs"], found["sources"], found["twins"], found["characters"]["source"]["median"]
    (2, 2, 1, 2)
    """
    sources = {pair.source for pair in pairs}
    split = split_by_hash(pairs, valid=DataConfig.held_out)
    targets = Counter(pair.target for pair in pairs)
    labelled = len(targets) <= min(MOST_LABELS, len(pairs) // 10)
    suspicious: dict[str, Any] = {}
    for pair, names in zip(pairs, faults(pairs), strict=True):
        for name in names:
            row = suspicious.setdefault(name, {"pairs": 0, "example": _shown(pair)})
            row["pairs"] += 1
    if labelled:  # a label is as long as it is, and comes with many texts
        suspicious.pop("lengths", None)
    return {
        "pairs": len(pairs),
        "sources": len(sources),
        "twins": len(sources) - len({entry(source) for source in sources}),
        "characters": {
            "source": _side(*([p.source for p in some] for some in (split.train, split.valid))),
            "target": _side(*([p.target for p in some] for some in (split.train, split.valid))),
        },
        "labels": dict(targets.most_common()) if labelled else {},
        "suspicious": suspicious,
    }


def _side(train: Sequence[str], held_out: Sequence[str]) -> dict[str, Any]:
    """Compute statistics of the source or target texts: lengths and characters."""
    lengths = [len(text) for text in (*train, *held_out)]
    middle, far, most = np.percentile(lengths, (50, 95, 100)).astype(int).tolist()
    known, other = set("".join(train)), set("".join(held_out))
    return {
        "median": middle, "95": far, "most": most, "different": len(known | other),
        "new": sorted(other - known),
    }  # fmt: skip


def _shown(pair: TextPair) -> str:
    """Format a pair as a short example."""
    return " → ".join(shorten(text, WIDEST, placeholder="…") for text in (pair.source, pair.target))


def suggested(pairs: Sequence[TextPair], found: dict[str, Any]) -> tuple[str, list[str]]:
    """Suggest a recipe for pairs, and options: those that leave out suspicious pairs.

    For sentences those are all kinds of faults, for labels and words only duplicates: a word may be
    its own answer. Words with answers without blanks also get a tokenizer of characters.
    """

    def most(having: str, side: str) -> bool:
        """Return whether more than half of the texts on a side contain a character."""
        return bool(np.mean([having in getattr(pair, side).strip() for pair in pairs]) > 0.5)

    sentences = most(" ", "source") and not found["labels"]
    left = [name for name in found["suspicious"] if sentences or name == "duplicates"]
    options = ["--data.leave-out", *left] if left else []
    if found["labels"]:
        return "topics-ko", options
    if most("\t", "source"):
        return "inflect", options
    if sentences:
        return "multi30k-de-en-small", options
    spaced = most(" ", "target")
    return "g2p-small", options if spaced else [*options, "--tokenizer.target-kind", "char"]

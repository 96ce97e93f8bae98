"""A measure of studies of many languages: each one's error beside what others have published.

Studies read this file by their setting `imports`. Their variants are languages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from pellucid.apps.lab.document import Block, Table, lab_package
from pellucid.apps.lab.measures import MEASURES, Measure
from pellucid.apps.lab.wording import tr

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings

Figures = tuple[float | None, ...]
OTHERS = ("official ensemble", "a Transformer", "Phonetisaurus")
NONE: Figures = (None,) * len(OTHERS)
PUBLISHED: Mapping[str, Figures] = {
    "arm_e": (7.0, 8.9, 8.1),
    "bul": (18.3, 20.1, 23.2),
    "dut": (14.7, 16.9, 20.2),
    "fre": (8.5, 10.2, 10.6),
    "geo": (0.0, 0.1, None),
    "hbs": (32.1, 47.7, 64.2),
    "hun": (1.8, 1.9, 3.4),
    "jpn_hira": (5.2, 8.5, 10.7),
    "kor": (16.3, 30.2, 20.8),
    "vie_hanoi": (2.5, 6.0, None),
}
"""WER in % on the test words of SIGMORPHON 2021, task 1, medium: the official baseline, a majority
of ten neural transducers (Ashby et al. 2021); a Transformer of fairseq's, 7.4 M parameters
(juletx); Phonetisaurus 0.3.0 with its defaults on letters in NFD (one outside trial)."""
INTERVAL = (
    "The interval says how far other random seeds would move the mean (Student's t). Other test "
    "words would move it too: with 1,000 of them an error rate of 2 % by 0.9, one of 20 % by 2.5."
)
SOURCE = "The other systems' figures are those of SIGMORPHON 2021, task 1, medium."


def show(findings: Findings) -> Sequence[Block]:
    """Return a row for each language and one for their mean; nothing for a study of one data set.

    A study without [files] is of one.
    """
    wer = {
        name: {s: 100 * v for s, v in findings.values(name, "wer").items() if v is not None}
        for name in findings.study.variants
        if name in findings.study.points
    }
    known = {name: seeds for name, seeds in wer.items() if seeds}
    if not known:
        return []
    others = PUBLISHED if findings.study.plan.recipe == "g2p-small" else {}
    rows = [
        [name, *_cells(list(seeds.values())), *_published(others, [name])]
        for name, seeds in known.items()
    ]
    every = set.intersection(*(set(seeds) for seeds in known.values()))
    if len(known) > 1 and every:
        means = [mean(seeds[seed] for seeds in known.values()) for seed in sorted(every)]
        rows.append([tr("mean"), *_cells(means), *_published(others, list(known))])
    heads = ["language", "seeds", "WER, %", "95 % over seeds", *(OTHERS if others else ())]
    return [tr(INTERVAL), *([tr(SOURCE)] if others else ()), Table(heads, rows)]


def _cells(values: Sequence[float]) -> list[str]:
    """Return how many values there are, their mean, and its interval, which takes two."""
    interval = "–"
    if len(values) > 1:
        t = lab_package("scipy.stats", "SciPy").t.ppf(0.975, len(values) - 1)
        half = t * stdev(values) / len(values) ** 0.5
        interval = f"{max(mean(values) - half, 0):.2f} to {mean(values) + half:.2f}"
    return [str(len(values)), f"{mean(values):.2f}", interval]


def _published(others: Mapping[str, Figures], names: Sequence[str]) -> list[str]:
    """Return the mean of every other system, where it has a figure for each of these languages."""
    if not others:
        return []
    columns = list(zip(*(others.get(name, NONE) for name in names), strict=True))
    known = [[value for value in column if value is not None] for column in columns]
    return [f"{mean(values):.1f}" if len(values) == len(names) else "–" for values in known]


MEASURES["languages"] = Measure("languages", "Languages", show=show)

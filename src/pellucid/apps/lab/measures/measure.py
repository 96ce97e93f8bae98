"""What a measure is: something recorded inside a model while it trains, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pellucid.apps.lab.document import Block
from pellucid.apps.lab.plots import Curves, Points
from pellucid.core.batch import Batch
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn.recorder import AttentionMap

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings
    from pellucid.apps.lab.results import Line

Array = np.ndarray
Probe = Mapping[str, Any]
"""What the measures recorded after one step."""
KINDS = ("encoder", "decoder", "cross")
"""Of attention: `kind_of` returns a layer's."""
MOST = 8
"""Variants that one panel shows."""
DIGITS = 4


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass over the probe's batch, without dropout.

    The model's parameters hold the gradients of the mean loss per token.
    """

    model: Seq2Seq
    batch: Batch
    maps: Mapping[str, AttentionMap]


@dataclass(frozen=True)
class Measure:
    """A row of the registry `MEASURES`."""

    name: str
    title: str
    """The heading of its section in the report."""
    about: str
    """What it computes."""
    unit: str = ""
    better: Literal["", "lower", "higher"] = ""
    record: Callable[[Pass], dict[str, Any]] | None = None
    """Return what a probe keeps of a pass, by name."""
    show: Callable[[Findings], Sequence[Block]] | None = None
    """Return its section of the report; empty where no run recorded it."""


def kind_of(layer: str) -> str:
    """Return which kind of attention a layer's name means.

    >>> kind_of("decoder.layers.1.multihead_attn")
    'cross'
    """
    if layer.startswith("encoder"):
        return "encoder"
    return "cross" if layer.endswith("multihead_attn") else "decoder"


def head_values(probe: Probe, kind: str, statistic: str) -> list[float]:
    """Return a statistic of every head of a kind of attention, by layer and head.

    Empty where there is no such layer, or where the line is older than the statistic.
    """
    layers = probe.get("attention", {}).items()
    return [v for name, seen in layers if kind_of(name) == kind for v in seen.get(statistic, ())]


def lines_with(findings: Findings, key: str) -> dict[str, list[Line]]:
    """Return the lines whose last probe has `key`, by variant: of the first `MOST` variants."""
    found = {
        name: [x for x in lines.values() if x["probes"] and key in x["probes"][-1]]
        for name, lines in findings.done.items()
    }
    names = [name for name, lines in found.items() if lines][:MOST]
    return {name: found[name] for name in names}


def over_steps(
    lines: Mapping[str, Sequence[Line]], take: Callable[[Probe], float | None]
) -> Curves:
    """Return a value of each probe over steps, a curve for each run."""
    return {
        name: [as_points((p["step"], take(p)) for p in line["probes"]) for line in runs]
        for name, runs in lines.items()
    }


def as_points(pairs: Iterator[tuple[float, float | None]]) -> Points:
    """Return a curve of the pairs (x, y) that have a finite y.

    >>> as_points(iter([(1, 0.5), (2, None)]))
    ([1.0], [0.5])
    """
    both = [(float(x), y) for x, y in pairs if y is not None and math.isfinite(y)]
    return [x for x, _ in both], [y for _, y in both]


TIMES: Mapping[str, int | None] = {"at first": 0, "after 100 steps": 100, "at the end": None}
"""When a table shows a value: the heading, and the step; None for the last."""


def probes_at(lines: Sequence[Line], step: int | None) -> list[Probe]:
    """Return each run's probe after this step, or its last for None, where there is one."""
    return [
        probe
        for line in lines
        for probe in [p for p in line["probes"] if step is None or p["step"] == step][-1:]
    ]


def rounded(value: Any) -> float:
    """Return a number with the four digits that results files keep."""
    return float(f"{float(value):.{DIGITS}g}")

"""Measures: numbers recorded inside a model while it trains, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.apps.lab.document import Block, Plot
from pellucid.apps.lab.metrics import format_spread
from pellucid.apps.lab.plots import Curves, Points, draw_grid
from pellucid.apps.lab.wording import captions, tr
from pellucid.core.batch import Batch
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn.recorder import AttentionMap

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings
    from pellucid.apps.lab.results import Line

Array = np.ndarray
Probe = Mapping[str, Any]
"""The values that the measures recorded after one step."""
Lines = Mapping[str, Sequence["Line"]]
"""The lines of finished runs, by variant."""
KINDS = ("encoder", "decoder", "cross")
"""Kinds of attention; `kind_of` returns the kind of a layer."""
TIMES: Mapping[str, int | None] = {"at first": 0, "after 100 steps": 100, "at the end": None}
"""When a table shows a value: the heading, and the step; None for the last."""
MOST = 8
"""Variants that one panel shows."""


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
    """Return the lines whose last probe has `key`, by variant: of the first `MOST` variants.

    Without the probes that lack it: of a run that was resumed with more measures.
    """
    found: dict[str, list[Line]] = {
        name: [
            {**line, "probes": [p for p in line["probes"] if key in p]}
            for line in lines.values()
            if line["probes"] and key in line["probes"][-1]
        ]
        for name, lines in findings.done.items()
    }
    names = [name for name, lines in found.items() if lines][:MOST]
    return {name: found[name] for name in names}


def panels(
    lines: Lines,
    rows: Sequence[str],
    columns: Sequence[str],
    curve: Callable[[Line, str, str], Points],
) -> dict[tuple[str, str], Curves]:
    """Return what `draw_grid` draws: in each row and column a curve of every run."""
    return {
        (row, column): {
            name: [curve(run, row, column) for run in runs] for name, runs in lines.items()
        }
        for row in rows
        for column in columns
    }


def draw_over_steps(
    name: str,
    title: str,
    lines: Lines,
    rows: Sequence[str],
    columns: Sequence[str],
    take: Callable[[Probe, str, str], float | None],
    marks: Mapping[str, tuple[float, str]] | None = None,
) -> Plot:
    """Draw a value of each probe over steps, in each row and column; marks as in `draw_grid`.

    name: of the picture's file, and of its caption.
    """

    def curve(run: Line, row: str, column: str) -> Points:
        return as_points((p["step"], take(p, row, column)) for p in run["probes"])

    title, curves = tr(title), panels(lines, rows, columns, curve)
    svg = draw_grid(rows, columns, curves, title, "step", lines=marks)
    return Plot(f"{name}.svg", title, svg, captions()[name])


def as_points(pairs: Iterable[tuple[float, float | None]]) -> Points:
    """Return a curve of the pairs (x, y) that have a finite y.

    >>> as_points(iter([(1, 0.5), (2, None)]))
    ([1.0], [0.5])
    """
    both = [(float(x), y) for x, y in pairs if y is not None and math.isfinite(y)]
    return [x for x, _ in both], [y for _, y in both]


def probes_at(line: Line, step: int | None) -> list[Probe]:
    """Return a run's probe at a step, or the last one for None; empty where there is none."""
    return [p for p in line["probes"] if step in (None, p["step"])][-1:]


def spreads(
    lines: Sequence[Line], take: Callable[[Probe], Iterable[float]], form: str = ".3g"
) -> list[str]:
    """Return the values of some runs' probes at each of `TIMES`, as a table shows them."""
    cells = []
    for step in TIMES.values():
        at = [p for line in lines for p in probes_at(line, step)]
        cells.append(format_spread([v for p in at for v in take(p)], form))
    return cells


def rounded(value: Any) -> float:
    """Return a number with the four digits that results files keep."""
    return float(f"{float(value):.4g}")

"""The pictures of a report: matplotlib figures as SVG.

The legend of a panel lists its lines in the order in which they end. Colours are safe for
colour-blind readers; from the eighth line on, where they repeat, lines differ by their dashes.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median, median_high
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pellucid.apps.lab.metrics import find_metric
from pellucid.apps.lab.statistics import Comparison, signed
from pellucid.apps.lab.wording import tr

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = tuple[Sequence[float], Sequence[float]]
"""One curve: its x and its y values."""
Curves = Mapping[str, Sequence[Points]]
"""One curve per seed, by variant."""


class Mark(NamedTuple):
    """A labelled point in a panel, in the colour of a variant's curves."""

    name: str
    x: float
    y: float
    shape: str
    label: str


INK = "#1b2b30"
# Okabe and Ito's palette without its yellow, which is too pale for lines.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", INK)
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
WIDTH = 8.6
FAR = 10.0
"""A comparison whose median exceeds the usual difference by this factor is drawn as an arrow."""


def as_points(pairs: Iterable[tuple[float, float | None]]) -> Points:
    """Make a curve of the pairs (x, y) with finite y.

    >>> as_points(iter([(1, 0.5), (2, None)]))
    ([1.0], [0.5])
    """
    both = [(float(x), y) for x, y in pairs if y is not None and math.isfinite(y)]
    return [x for x, _ in both], [y for _, y in both]


@contextmanager
def new_figure(title: str, width: float, height: float) -> Iterator[Figure]:
    """Make a figure with a title; save it inside the `with`, where the style applies."""
    import matplotlib
    from matplotlib.figure import Figure

    style = Path(__file__).with_name("templates") / "report.mplstyle"
    with matplotlib.rc_context(fname=style), warnings.catch_warnings():
        # Text stays text: what shows the picture has the fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(title, fontsize=10, x=0.01, ha="left", fontweight="bold")
        yield figure


def to_svg(figure: Figure) -> str:
    """Convert a figure to SVG text, reproducible and with coordinates of at most two decimals."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)
    return svg[svg.index("<svg") :].replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Assign a colour and a dash pattern to each variant; the first 28 all differ."""
    pairs = cycle([{"color": c, "linestyle": d} for d in DASHES for c in COLOURS])
    return dict(zip(names, pairs, strict=False))


def draw_bands(axes: Axes, curves: Curves, marker: str = "") -> None:
    """Draw each variant's median over seeds, and a band from minimum to maximum.

    marker: shape of every point, in the notation of matplotlib.
    """
    style = styles(list(curves))
    opacity = round(min(0.18, 0.6 / max(len(curves), 1)), 2)  # many bands hide the lines
    for name, seeds in curves.items():
        xs, columns = _columns(seeds)
        # A line and a band of one point alone would be invisible.
        shape, size, edge = (marker, 3.0, 0.0) if len(xs) > 1 else ("o", 4.5, 4.0)
        axes.plot(
            xs,
            [median(column) for column in columns],
            **style[name],
            marker=shape,
            markersize=size,
            label=name,
        )
        if len(seeds) > 1:
            low, high = [min(c) for c in columns], [max(c) for c in columns]
            colour = style[name]["color"]
            axes.fill_between(xs, low, high, color=colour, alpha=opacity, linewidth=edge)
    axes.grid()


def _columns(seeds: Sequence[Points]) -> tuple[list[float], list[list[float]]]:
    """Return all x of some curves, and for each x the list of their y values."""
    tables = [dict(zip(x, y, strict=True)) for x, y in seeds]
    xs = sorted({x for table in tables for x in table})
    return xs, [[table[x] for table in tables if x in table] for x in xs]


def add_legend(axes: Axes, curves: Curves, marks: Sequence[Mark] = ()) -> None:
    """Add a legend next to a panel: variants with their number of seeds, then marks.

    Variants are sorted by where they end, highest first; those without a finite end are left out.
    Each label of a mark is listed once.
    """
    last = {name: _columns(seeds)[1][-1:] for name, seeds in curves.items()}
    ends = {name: median(column) for name, columns in last.items() for column in columns}
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    finite = [name for name, end in ends.items() if math.isfinite(end)]
    ordered = sorted(finite, key=lambda name: -ends[name])
    labels = [f"{name} ({len(curves[name])})" for name in ordered]
    lines = [handles[name] for name in ordered]
    for label, shape in {mark.label: mark.shape for mark in marks}.items():
        lines += axes.plot([], [], shape, color="none", markersize=8, markeredgecolor=INK)
        labels.append(label)
    axes.legend(lines, labels, loc="center left", bbox_to_anchor=(1.0, 0.5))


def points_of(panels: Iterable[Curves]) -> list[tuple[float, float]]:
    """Return all points of all curves."""
    curves = [curve for panel in panels for seeds in panel.values() for curve in seeds]
    return [point for xs, ys in curves for point in zip(xs, ys, strict=True)]


def set_log_if_wide(axes: Axes, panels: Iterable[Curves]) -> None:
    """Use a logarithmic y axis for positive values that span more than a factor of 20."""
    finite = [y for _, y in points_of(panels) if math.isfinite(y)]
    if finite and min(finite) > 0 and max(finite) > 20 * min(finite):
        from matplotlib.ticker import LogLocator

        axes.set_yscale("log")
        decades = math.log10(max(finite) / min(finite))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 3 else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.minorticks_off()


def _limits(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    """Return the limits of a linear axis that shows the differences of comparisons.

    Comparisons whose median is more than `FAR` times the usual one are ignored.
    """
    finite = [[d for d in c.differences if math.isfinite(d)] for c in comparisons]
    usual = [max(map(abs, values)) for values in finite if any(values)]
    most = FAR * median_high(usual) if usual else math.inf
    pairs = zip(comparisons, finite, strict=True)
    near = [0.0, *(d for c, values in pairs if abs(c.median or 0.0) <= most for d in values)]
    margin = 0.08 * (max(near) - min(near)) or 1.0
    return min(near) - margin, max(near) + margin


def draw_curves(
    panels: Mapping[str, Curves],
    title: str,
    xlabel: str,
    ylabel: str,
    *,
    marker: str = "",
    marks: Sequence[Mark] = (),
) -> str:
    """Draw one panel of curves per group of variants, with common axes; return SVG.

    marker: shape of every point. marks: further points of the first panel, listed in its legend.
    """
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    most = max(len(curves) for curves in panels.values())
    every = points_of(panels.values())
    with new_figure(title, WIDTH, 0.4 + rows * max(2.7, 0.21 * most)) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        shown = list(zip(grid.flat, panels.items(), strict=False))
        for axes, (name, curves) in shown:
            draw_bands(axes, curves, marker)
            if len(panels) > 1:
                axes.set_title(name)
        first, curves = shown[0][0], shown[0][1][1]
        for mark in marks:
            colour = styles(list(curves))[mark.name]["color"]
            first.plot(mark.x, mark.y, mark.shape, color=colour, markersize=8, markeredgecolor=INK)
        set_log_if_wide(first, panels.values())
        if every:  # an x without a finite value keeps its place
            low, high = min(x for x, _ in every), max(x for x, _ in every)
            margin = 0.05 * (high - low) or 0.05
            first.set_xlim(low - margin, high + margin)
        for axis, values in zip((first.xaxis, first.yaxis), zip(*every, strict=True), strict=False):
            whole = all(value == round(value) for value in values if math.isfinite(value))
            if whole and axis.get_scale() == "linear":
                axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        for axes, (_, curves) in shown:
            add_legend(axes, curves, marks if axes is first else ())
        figure.supxlabel(xlabel, fontsize=9)
        figure.supylabel(ylabel, fontsize=9)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes in grid.flat[len(panels) - columns :]:  # the lowest panel of each column
            axes.tick_params(labelbottom=True)
        return to_svg(figure)


def draw_forest(comparisons: Sequence[Comparison]) -> str:
    """Draw each comparison's median difference, interval and pairs, by metric; return SVG."""
    metrics = list(dict.fromkeys(c.contrast.metric for c in comparisons))
    groups = [[c for c in comparisons if c.contrast.metric == m] for m in metrics]
    heights = [len(group) + 1.9 for group in groups]
    with new_figure(tr("Differences, seed by seed"), WIDTH, 0.27 * sum(heights) + 0.4) as figure:
        grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights).ravel()
        for axes, metric, group in zip(grid, metrics, groups, strict=True):
            ends = _limits(group)
            for i, comparison in enumerate(reversed(group)):
                _forest_row(axes, i, comparison, ends)
            record = find_metric(metric)
            axes.axvline(0, color=INK, linewidth=0.9)
            axes.set(xlim=ends, ylim=(-0.7, len(group) - 0.3))
            names = [f"{'★ ' * c.primary}{c.name}  (n = {len(c.seeds)})" for c in reversed(group)]
            axes.set_yticks(range(len(group)), names)
            axes.set_xlabel(f"{record.label}: {tr(f'{record.better} is better')}", fontsize=8)
            axes.grid(axis="x")
            axes.spines.left.set_visible(False)
            axes.tick_params(axis="y", length=0)
        return to_svg(figure)


def _forest_row(axes: Axes, y: int, comparison: Comparison, ends: tuple[float, float]) -> None:
    """Draw one comparison at height y.

    Values outside `ends` become arrows at the edge.
    """
    colour = COLOURS[0] if comparison.primary else INK

    def draw(x: float, height: float, marker: str, **style: Any) -> None:
        shape = "<" if x < ends[0] else ">" if x > ends[1] else marker
        at = float(np.clip(x, *ends))
        axes.plot(at, height, shape, color=colour, clip_on=False, **style)

    for d in comparison.differences:
        draw(d, y + 0.24, "o", alpha=0.5, markersize=3.5, markeredgewidth=0)
    if comparison.interval is not None:
        axes.plot(np.clip(comparison.interval, *ends), [y, y], color=colour, linewidth=2.2)
    if comparison.median is not None:
        draw(comparison.median, y, "D" if comparison.interval is not None else "x", markersize=5)
        axes.annotate(
            signed(comparison.median),
            (1.02, y),
            xycoords=("axes fraction", "data"),
            fontsize=8,
            va="center",
        )

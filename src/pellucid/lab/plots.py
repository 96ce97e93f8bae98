"""The report's pictures: matplotlib, colours that the colour-blind can tell apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pellucid.core.errors import optional
from pellucid.lab.metrics import unit
from pellucid.lab.pixels import drawable, plain_text, to_png
from pellucid.lab.statistics import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# Okabe & Ito's palette without its yellow, which is too pale for lines; each with its own dashes.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
INK = "#1b2b30"
WIDE = 9.6
LETTERS = 84  # of a panel's title across a picture
LENGTH = 3.4  # of a legend's handle: under a marker, dashes show on a longer one only
Points = tuple[Sequence[float], Sequence[float]]
"""One curve: x and y."""
Curves = Mapping[str, Sequence[Points]]
"""By variant, a curve for each seed."""


def as_points(pairs: Sequence[tuple[float, float]]) -> Points:
    """Return a curve of these pairs (x, y).

    >>> as_points([(1, 0.5), (2, 0.25)])
    ([1, 2], [0.5, 0.25])
    """
    return [x for x, _ in pairs], [y for _, y in pairs]


class Mark(NamedTuple):
    """A point: of which group's colour, of which kind's shape."""

    group: str
    kind: str
    x: float
    y: float


def require_matplotlib() -> None:
    """Raise `UserError` saying what to install where matplotlib is missing."""
    optional(
        "matplotlib",
        "the report's pictures need matplotlib",
        extra="lab",
    )


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each variant's colour and dashes: no two of the first 28 share both."""
    pairs = zip(cycle(COLOURS), _repeated(DASHES, len(COLOURS)), strict=False)
    return {
        name: {"color": colour, "linestyle": dashes}
        for name, (colour, dashes) in zip(names, pairs, strict=False)
    }


def _repeated(items: Sequence[Any], times: int) -> Any:
    return (item for item in cycle(items) for _ in range(times))


@plain_text()
def draw_curves(
    panels: Sequence[tuple[str, Curves]],
    differences: Sequence[tuple[str, Curves]],
    xlabel: str,
    ylabel: str,
) -> bytes:
    """Draw the median over seeds of each variant, band from least to most, a panel for each group.

    Differences have panels of their own after these: what sets variants apart is often a hundredth
    of what all of them learn.
    """
    from matplotlib.figure import Figure

    both = [*panels, *differences]
    columns = 2 if len(panels) == 1 and differences else min(len(panels), 3)
    rows = math.ceil(len(both) / columns)
    names = 1 if columns == 3 else 2  # beside each other in a legend
    lines = math.ceil(max(len(curves) for _, curves in both) / names)
    figure = Figure(figsize=(WIDE, (3.4 + 0.17 * lines) * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for i, (axes, (title, curves)) in enumerate(zip(grid, both, strict=False)):
        draw_bands(axes, curves)
        said = ""
        if i < len(panels):
            _log_if_wide(axes, curves)
        else:
            said = _show_the_ends(axes, curves)
        axes.set(xlabel=xlabel, ylabel=ylabel + said)
        if len(panels) > 1 or i >= len(panels):
            axes.set_title(fill(drawable(title), LETTERS // columns), fontsize=10)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.legend(
            frameon=False,
            fontsize=8,
            handlelength=LENGTH,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.14),
            ncols=names,
        )
    for axes in grid[len(both) :]:
        axes.set_visible(False)
    return to_png(figure)


def draw_bands(axes: Axes, curves: Curves, marker: str = "", count: bool = True) -> None:
    """Draw each variant's median, and its band where two seeds or more are there.

    count: say in the legend how many seeds there are.
    """
    style = styles(list(curves))
    pale = min(0.18, 0.6 / max(len(curves), 1))  # many bands upon each other would be mud
    for name, seeds in curves.items():
        xs = sorted({x for points, _ in seeds for x in points})
        tables = [dict(zip(x, y, strict=True)) for x, y in seeds]
        columns = [[t[x] for t in tables if x in t] for x in xs]
        middle = [float(np.median(column)) for column in columns]
        label = drawable(name)
        if count:
            label += f" ({len(seeds)} seed{'s' if len(seeds) > 1 else ''})"
        # A line and a band of one point alone would not be seen.
        shape, size, edge = (marker, 3.0, 0.0) if len(xs) > 1 else ("o", 4.5, 4.0)
        axes.plot(
            xs, middle, **style[name], marker=shape, markersize=size, linewidth=1.6, label=label
        )
        if len(seeds) > 1:
            low, high = [min(c) for c in columns], [max(c) for c in columns]
            colour = style[name]["color"]
            axes.fill_between(xs, low, high, color=colour, alpha=pale, linewidth=edge)
    axes.grid(color="#dde5e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _show_the_ends(axes: Axes, curves: Curves) -> str:
    """Draw differences by their logarithm where most of those at the end would be lost.

    Return what is to be said of it: they look larger than they are.
    """
    values = [abs(y) for seeds in curves.values() for _, ys in seeds for y in ys]
    last = [[ys[-1] for _, ys in seeds if ys] for seeds in curves.values()]
    ends = [abs(end) for ys in last if ys and (end := float(np.median(ys)))]
    if not ends or max(values) <= 20 * (usual := float(np.median(ends))):
        return ""
    near = _decade(usual, max(values))
    axes.set_yscale("symlog", linthresh=near)
    _plain_ticks(axes.yaxis)
    return f";\nlogarithmic beyond ±{near:g}"


def _decade(least: float, most: float) -> float:
    """Return the power of 10 below the least that a logarithm is to show beside the most."""
    return 10.0 ** math.floor(math.log10(max(least, 1e-4 * most)))


def _plain_ticks(axis: Axis) -> None:
    from matplotlib.ticker import NullLocator

    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def _log_if_wide(axes: Axes, curves: Curves) -> None:
    values = [y for seeds in curves.values() for _, ys in seeds for y in ys if math.isfinite(y)]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_yscale("log")
        decades = math.log10(max(values) / min(values))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 3 else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


SHAPES = "D^vs"


@plain_text()
def draw_exponents(curves: Curves, marks: Sequence[Mark], ylabel: str) -> bytes:
    """Draw a metric against the exponent, one curve for each group; `marks` are learned scales."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(WIDE, 4.4), layout="constrained")
    axes = figure.subplots()
    draw_bands(axes, curves, "o")
    _log_if_wide(axes, curves)
    shapes = dict(zip(dict.fromkeys(mark.kind for mark in marks), SHAPES, strict=False))
    for mark in marks:
        colour = styles(list(curves))[mark.group]["color"]
        axes.plot(mark.x, mark.y, shapes[mark.kind], color=colour, markersize=8, mec=INK)
    for kind, shape in shapes.items():
        label = f"learned, {kind}"
        axes.plot([], [], shape, color="none", markersize=8, mec=INK, label=label)
    every = [points for seeds in curves.values() for points in seeds]
    points = [(x, y) for xs, ys in every for x, y in zip(xs, ys, strict=True)]
    if any(math.isinf(y) for _, y in points):
        ylabel += "; no point: never"
    if all(y == round(y) for _, y in points if math.isfinite(y)):  # counted in whole epochs
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if points:  # those without a point, too, have their place
        ends = min(x for x, _ in points), max(x for x, _ in points)
        margin = 0.05 * (ends[1] - ends[0])
        axes.set_xlim(ends[0] - margin, ends[1] + margin)
    axes.set(xlabel="exponent p: scores / d_k^p", ylabel=ylabel)
    axes.legend(frameon=False, fontsize=8, handlelength=LENGTH)
    return to_png(figure)


@plain_text()
def draw_forest(comparisons: Sequence[Comparison]) -> bytes:
    """Draw, metric by metric, each contrast's median difference, its interval and its pairs."""
    from matplotlib.figure import Figure

    metrics = list(dict.fromkeys(c.contrast.metric for c in comparisons))
    groups = [[c for c in comparisons if c.contrast.metric == m] for m in metrics]
    heights = [len(group) + 1.6 for group in groups]
    figure = Figure(figsize=(WIDE, 0.36 * sum(heights) + 0.4), layout="constrained")
    grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights).ravel()
    for axes, metric, group in zip(grid, metrics, groups, strict=True):
        ends = _ends(group)
        for i, comparison in enumerate(reversed(group)):
            _forest_row(axes, i, comparison, ends)
        endless = any(math.isinf(d) for c in group for d in c.differences)
        said = (unit(metric) or "score") + ("; arrows: one side never gets there" * endless)
        sizes = [abs(c.median) for c in group if c.median and math.isfinite(c.median)]
        if sizes and max(sizes) > 50 * float(np.median(sizes)):  # most would stand upon the zero
            near = _decade(min(sizes), max(sizes))
            axes.set_xscale("symlog", linthresh=near)
            _plain_ticks(axes.xaxis)
            said += f"; logarithmic beyond ±{near:g}"
        axes.axvline(0, color=INK, linewidth=0.9)
        axes.set_ylim(-0.7, len(group) - 0.3)
        axes.set_yticks(range(len(group)), [_name(c) for c in reversed(group)], fontsize=8)
        axes.set_xlabel(f"{metric}: change minus what it is compared with ({said})")
        axes.grid(axis="x", color="#dde5e6", linewidth=0.6)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    return to_png(figure)


def _ends(group: Sequence[Comparison]) -> tuple[float, float]:
    """Return where infinite differences are drawn: beyond all that are not."""
    finite = [0.0, *(d for c in group for d in c.differences if math.isfinite(d))]
    margin = 0.1 * (max(finite) - min(finite)) or 1.0
    return min(finite) - margin, max(finite) + margin


def _forest_row(axes: Axes, y: int, comparison: Comparison, ends: tuple[float, float]) -> None:
    colour = COLOURS[0] if comparison.primary else "#5f7378"

    def draw(x: float, height: float, marker: str, **style: Any) -> None:
        shape = marker if math.isfinite(x) else "<" if x < 0 else ">"
        axes.plot(float(np.clip(x, *ends)), height, shape, color=colour, **style)

    for d in comparison.differences:
        draw(d, y + 0.24, "o", alpha=0.5, markersize=4, markeredgewidth=0)
    if comparison.interval is not None:
        axes.plot(np.clip(comparison.interval, *ends), [y, y], color=colour, linewidth=2.2)
    if comparison.median is not None:
        draw(comparison.median, y, "D" if comparison.interval is not None else "x", markersize=6)


def _name(comparison: Comparison) -> str:
    c = comparison.contrast
    star = "★ " if comparison.primary else ""
    return drawable(f"{star}{c.change} − {c.against}  (n = {len(comparison.seeds)})")


@plain_text()
def draw_grid(
    rows: Sequence[str],
    columns: Sequence[str],
    curves: Mapping[tuple[str, str], Curves],
    xlabel: str,
    lines: Mapping[str, tuple[float, str]] | None = None,
    base: int = 10,
    count: bool = True,
) -> bytes:
    """Draw a grid of panels; `lines` marks a value in every panel of a column.

    x runs in powers of `base`: of 2 strictly, of 10 with a linear part that holds 0.
    """
    from matplotlib.figure import Figure

    size = (max(WIDE, 2.2 * len(columns) + 0.5), 2.15 * len(rows) + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex="col")
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes, panel = grid[i, j], curves.get((row, column), {})
            draw_bands(axes, panel, "o", count)
            _log_if_wide(axes, panel)
            if lines and column in lines:
                value, label = lines[column]
                axes.axhline(value, color=INK, linewidth=0.9, linestyle=":")
                axes.annotate(
                    label,
                    (0.3, value),  # after the first steps, before most of what happens
                    xytext=(0, 2),
                    xycoords=("axes fraction", "data"),
                    textcoords="offset points",
                    fontsize=7,
                    ha="center",
                    va="bottom",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
                )
            if base == 2:
                axes.set_xscale("log", base=2)
                axes.set_xticks(_doublings(panel))
                axes.xaxis.set_major_formatter("{x:g}")
            else:
                axes.set_xscale("symlog", linthresh=10)
                axes.set_xlim(left=-1)
                axes.set_xticks(
                    [0, *10 ** np.arange(1, 6)], ["0", "10", "100", "1k", "10k", "100k"]
                )
                axes.set_xlim(right=max(_last(panel) * 1.3, 11))
            axes.tick_params(labelsize=7)
            if i == 0:
                axes.set_title(drawable(column), fontsize=9)
            if j == 0:
                axes.set_ylabel(drawable(row), fontsize=9)
            if i == len(rows) - 1:
                axes.set_xlabel(xlabel, fontsize=8)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(4, max(len(labels), 1)),
        frameon=False,
        fontsize=8,
        handlelength=LENGTH,
    )
    return to_png(figure)


def _doublings(curves: Curves) -> list[float]:
    """Return the powers of 2 that the curves span, and what lies between where these are few."""
    xs = [x for seeds in curves.values() for points, _ in seeds for x in points]
    if not xs:
        return []
    exponents = np.arange(math.floor(math.log2(min(xs))), math.ceil(math.log2(max(xs))) + 1)
    ticks = [2.0**k for k in exponents]
    if len(ticks) < 5:
        ticks = sorted([*ticks, *(1.5 * t for t in ticks)])
    return [t for t in ticks if min(xs) <= t <= max(xs)]


def _last(curves: Curves) -> float:
    return max((x for seeds in curves.values() for xs, _ in seeds for x in xs), default=0.0)

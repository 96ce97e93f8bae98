"""Shared by the measures of studies: kinds of attention, and a grid of panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pellucid.apps.lab import plots
from pellucid.apps.lab.wording import tr

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Probe = Mapping[str, Any]
"""The values that the measures recorded after one step."""
KINDS = ("encoder", "decoder", "cross")
"""Kinds of attention; `kind_of` returns the kind of a layer."""


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


def draw_grid(
    rows: Sequence[str],
    columns: Sequence[str],
    curves: Mapping[tuple[str, str], plots.Curves],
    title: str,
    xlabel: str,
    *,
    lines: Mapping[str, tuple[float, str]] | None = None,
    base: int = 10,
) -> str:
    """Draw a grid of small panels with one legend; each row has one y axis.

    lines: a value to mark in every panel of a row, with its name. x runs in powers of `base`: of 2
    strictly, of 10 with a linear part that holds 0.
    """
    size = (plots.WIDTH, 1.3 * len(rows) + 1.1)
    with plots.new_figure(title, *size) as figure:
        grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey="row")
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                axes, panel = grid[i, j], curves.get((row, column), {})
                plots.draw_bands(axes, panel)
                axes.tick_params(labelsize=7)
                if lines and row in lines:
                    value, label = lines[row]
                    axes.axhline(value, color=plots.INK, linewidth=0.9, linestyle=":")
                    axes.annotate(label, (0.99, value), (0, 2), fontsize=7, ha="right",
                                  xycoords=("axes fraction", "data"),
                                  textcoords="offset points")  # fmt: skip
                if i == 0:
                    axes.set_title(tr(column), fontsize=8, loc="center")
            plots.set_log_if_wide(grid[i, 0], [curves.get((row, column), {}) for column in columns])
            grid[i, 0].set_ylabel(tr(row).replace(": ", ":\n"), fontsize=7)
        xs = [x for x, _ in plots.points_of(curves.values())]
        _scale_x(grid[0, 0], xs, base)
        figure.supxlabel(tr(xlabel), fontsize=8)
        handles, labels = next(
            (found for axes in grid.flat if (found := axes.get_legend_handles_labels())[0]),
            ([], []),
        )
        if len(labels) > 1 or lines is None:
            figure.legend(handles, labels, loc="outside lower center", ncols=4)
        return plots.to_svg(figure)


def _scale_x(axes: Axes, xs: Sequence[float], base: int) -> None:
    if base == 2:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        return
    axes.set_xscale("symlog", linthresh=10)
    axes.xaxis.minorticks_off()
    ticks = {0: "0", 10: "10", 100: "100", 1000: "1k", 10_000: "10k", 100_000: "100k"}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlim(-1, max(1.3 * max(xs, default=0.0), 11))

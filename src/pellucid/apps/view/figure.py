"""Draw attention as a matplotlib figure: all layers and heads small, or one large."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.apps.view.record import TITLES, Kind, Map, Record, select_maps
from pellucid.apps.view.tokens import Label
from pellucid.core.errors import optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELLED = 60
"""The most tokens on a side of a single map that are labelled."""
LABELLED_SMALL = 24
"""The same for the small maps of an overview."""
TITLE = 80
"""The most characters of the text above the maps."""
LABEL = 20
"""The most characters of a token's label."""
INK = "#12414a"
COLOURS = ("#ffffff", "#c9e6e6", "#63b3b8", "#1f7f8c", "#0b4a5c", "#04222e")


def draw_figure(
    record: Record, kind: Kind | None = None, layer: int | None = None, head: int | None = None
) -> Figure:
    """Draw the maps of a kind, layers down and heads across, or a selected one.

    kind: default, the last that the model has. Layers and heads are counted from 1. A weight w is
    drawn √w of the way from white to dark, so that small weights are visible. Raises `UserError` if
    matplotlib is missing, `UsageError` for a kind, layer or head that the model lacks.
    """
    optional(
        "matplotlib",
        "figures need matplotlib, which is not installed; the page (.html) and the drawing in the "
        "terminal need nothing more",
        extra="lab",
    )
    from matplotlib import rc_context

    from pellucid.apps.view.fonts import families_for

    kind, layers, heads = select_maps(record, kind, layer, head)
    words = "".join(label.text for label in (*record.queries(kind), *record.keys(kind)))
    inked = ("axes.edgecolor", "text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: Any = {"font.family": families_for(words + record.title), **dict.fromkeys(inked, INK)}
    with rc_context(settings):
        return _draw(record, kind, layers, heads)


def _draw(record: Record, kind: Kind, layers: Sequence[Map], heads: range) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.figure import Figure

    rows, columns = record.queries(kind), record.keys(kind)
    single = len(layers) == len(heads) == 1
    cell = 0.3 if single else 0.17
    shape = np.array([max(len(columns), 4), max(len(rows), 4)])
    panel = np.clip(shape * cell, 1.5, 9.0 if single else 2.6)
    margin = np.array([1.6, 1.9]) if single else np.array([1.3, 1.2])
    size = panel * [len(heads), len(layers)] + margin
    figure = Figure(figsize=tuple(np.maximum(size, [4.8, 2.8])), layout="constrained", dpi=144)
    axes = figure.subplots(len(layers), len(heads), squeeze=False, sharex=True, sharey=True)
    most = LABELLED if single else LABELLED_SMALL
    colours = LinearSegmentedColormap.from_list("pellucid", COLOURS)
    for row, m in zip(axes, layers, strict=True):
        for axis, head in zip(row, heads, strict=True):
            axis.imshow(
                m.probabilities[head],
                cmap=colours,
                norm=PowerNorm(0.5, 0.0, 1.0),
                aspect="auto",
                interpolation="nearest",
            )
            axis.set_title(f"layer {m.layer}, head {head + 1}", fontsize=8 if single else 6, pad=3)
            _label(axis, rows, columns, most, 8 if single else 5)
    title = _shortened(" ".join(record.title.split()), TITLE)
    figure.suptitle(f"{TITLES[kind]}\n{title}", fontsize=9)
    image = axes[0, 0].images[0]
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, ticks=[0, 0.05, 0.25, 0.5, 1])
    bar.ax.tick_params(labelsize=6)
    bar.set_label("weight", fontsize=7)
    with missing_glyphs_named():
        figure.draw_without_rendering()
    return figure


@contextmanager
def missing_glyphs_named() -> Iterator[None]:
    """Silence matplotlib's warnings about missing glyphs.

    `families_for` has already logged those characters by name.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def _label(
    axis: Any, rows: Sequence[Label], columns: Sequence[Label], most: int, size: int
) -> None:
    """Label the rows and columns of a map if there are at most `most` tokens."""
    for labels, at in ((columns, axis.xaxis), (rows, axis.yaxis)):
        if len(labels) <= most:
            at.set_ticks(range(len(labels)), [_shortened(label.text, LABEL) for label in labels])
    axis.tick_params(labelsize=size, length=0, pad=1)
    axis.xaxis.set_tick_params(rotation=90 if any(len(c.text) > 2 for c in columns) else 0)


def _shortened(text: str, most: int) -> str:
    """Shorten a text to `most` characters, and escape matplotlib's math mode."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")

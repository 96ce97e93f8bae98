"""Pictures: linear axes for differences, labels as they are, the same SVG every time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest

import measuring
from pellucid.apps.lab import plots
from pellucid.apps.lab.plots import COLOURS, Curves
from pellucid.apps.lab.statistics import compare
from pellucid.apps.lab.study import Contrast

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text


def curves(names: list[str], points: int = 7, seeds: int = 3) -> Curves:
    rng = np.random.default_rng(0)
    xs = [float(x) for x in range(1, points + 1)]
    return {
        name: [(xs, [i + float(y) for y in rng.random(points)]) for _ in range(seeds)]
        for i, name in enumerate(names)
    }


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Keep the figures instead of writing them."""
    found: list[Figure] = []

    def keep(figure: Figure) -> str:
        figure.draw_without_rendering()
        found.append(figure)
        return "<svg/>"

    monkeypatch.setattr(plots, "to_svg", keep)
    return found


def every_text(figure: Figure) -> list[Text]:
    from matplotlib.text import Text

    return [text for text in figure.findobj(Text) if isinstance(text, Text)]


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for text in every_text(figure)}


def test_the_svg_is_whole_and_the_same_again() -> None:
    def picture() -> str:
        return plots.draw_curves({"": curves(["v0", "v1"])}, "Loss", "epoch", "nats")

    svg = picture()
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    found = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Loss", "epoch", "nats", "v0 (3)", "v1 (3)"} <= found
    assert all(colour in svg for colour in COLOURS[:2])
    assert svg == picture()


def test_a_curve_of_one_point_is_seen(drawn: list[Figure]) -> None:
    plots.draw_curves({"": curves(["v1"], points=1, seeds=1)}, "", "epoch", "loss")
    (line,) = drawn[0].axes[0].lines
    assert line.get_marker() == "o"


def test_the_legend_names_lines_in_the_order_in_which_they_end(drawn: list[Figure]) -> None:
    plots.draw_curves({"": curves(["v0", "v1", "v2"])}, "", "epoch", "loss")
    legend = drawn[0].axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["v2 (3)", "v1 (3)", "v0 (3)"]
    colours = [line.get_color() for line in legend.get_lines()]
    assert colours == list(COLOURS[:3])[::-1]


def test_effects_are_not_lost_next_to_one_that_is_far_larger(drawn: list[Figure]) -> None:
    effects = {"a": -0.078, "b": 0.036, "c": -0.049, "d": 7.8}
    plots.draw_forest(
        [
            compare(Contrast(n, "train_loss", "z"), True, {0: d}, {0: 0.0})
            for n, d in effects.items()
        ]
    )
    (axes,) = drawn[0].axes
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim()[1] < 0.1
    assert {"+7.8", "−0.078"} <= texts(drawn[0])
    assert ">" in {line.get_marker() for line in axes.lines}
    assert axes.get_xlabel() == "train_loss (nats per answer): lower is better"


@pytest.mark.parametrize("name", ["p_0.5 $x_{$", "$\\alpha$", "a$b$c"])
def test_a_name_is_drawn_literally(drawn: list[Figure], name: str) -> None:
    two = curves([name, "v2"])
    plots.draw_curves({f"minus {name}": two, "b": two}, name, "epoch", "loss")
    measuring.draw_grid([name], ["column"], {(name, "column"): two}, name, "step")
    plots.draw_forest([compare(Contrast(name, "bleu", "b"), False, {0: 1.0}, {0: 2.0})])
    wanted = [
        {f"{name} (3)", f"minus {name}", name},
        {name, "v2"},
        {f"{name} − b  (n = 1)"},
    ]
    for figure, expected in zip(drawn, wanted, strict=True):
        assert expected <= texts(figure)
        assert not any(text.get_parse_math() for text in every_text(figure))


def test_the_legend_names_each_shape_of_the_marks_once(drawn: list[Figure]) -> None:
    two = curves(["v0", "v1"])
    marks = [plots.Mark(name, 1.0, 1.0, "D", "learned: encoder") for name in two]
    plots.draw_curves({"": two}, "", "p", "loss", marks=marks)
    legend = drawn[0].axes[0].get_legend()
    assert legend is not None
    named = [text.get_text() for text in legend.get_texts()]
    assert named[2:] == ["learned: encoder"]


def test_text_of_any_script_stays_text() -> None:
    svg = plots.draw_curves({"": curves(["없음"])}, "", "epoch", "loss")
    assert "없음 (3)</text>" in svg


def test_a_grid_has_one_legend_and_one_axis_for_each_row(drawn: list[Figure]) -> None:
    panels = {
        (row, column): curves([f"{column}1", "v2"], points=i + 3)
        for i, row in enumerate("ab")
        for column in "cd"
    }
    measuring.draw_grid("ab", "cd", panels, "", "step", lines={"a": (1.0, "one")})
    (figure,) = drawn
    assert len(figure.legends) == 1
    assert all(axes.get_legend() is None for axes in figure.axes)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim() != figure.axes[2].get_ylim()


def test_a_difference_without_end_is_an_arrow_at_the_edge(drawn: list[Figure]) -> None:
    never = {0: math.inf, 1: math.inf, 2: 5.0}
    some = {0: 3.0, 1: 4.0, 2: 4.5}
    names = [("a", never, some), ("c", some, never)]
    plots.draw_forest([compare(Contrast(n, "epochs_to_1", "b"), True, x, y) for n, x, y in names])
    (axes,) = drawn[0].axes
    at: dict[str, set[float]] = {}
    for line in axes.lines:
        at.setdefault(str(line.get_marker()), set()).update(map(float, np.ravel(line.get_xdata())))
    low, high = axes.get_xlim()
    assert at["o"] == {0.5, -0.5}
    assert at[">"] == {high}
    assert at["<"] == {low}
    assert {"+∞", "−∞"} <= texts(drawn[0])

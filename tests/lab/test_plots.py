"""Pictures: every colour and every name as it is meant, and nothing that is drawn unseen."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pellucid.lab import pixels, plots
from pellucid.lab.plots import COLOURS, INK, Curves, Mark
from pellucid.lab.statistics import compare
from pellucid.lab.study import Contrast

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
image = pytest.importorskip("PIL.Image")

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

PAIRS = compare(Contrast("a", "train_loss", "b"), True, {0: 1.0, 1: 3.0}, {0: 0.0, 1: 0.5})


def curves(names: list[str], points: int = 7, seeds: int = 3) -> Curves:
    rng = np.random.default_rng(0)
    xs = [float(x) for x in range(1, points + 1)]
    return {
        name: [(xs, [i + float(y) for y in rng.random(points)]) for _ in range(seeds)]
        for i, name in enumerate(names)
    }


def colours_of(png: bytes) -> set[str]:
    pixels = np.asarray(image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, 3)
    return {f"#{r:02x}{g:02x}{b:02x}" for r, g, b in np.unique(pixels, axis=0)}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Keep the figures instead of writing them."""
    found: list[Figure] = []

    def keep(figure: Figure) -> bytes:
        figure.draw_without_rendering()
        found.append(figure)
        return b""

    monkeypatch.setattr(plots, "to_png", keep)
    return found


def every_text(figure: Figure) -> list[Text]:
    from matplotlib.text import Text

    return [text for text in figure.findobj(Text) if isinstance(text, Text)]


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for text in every_text(figure)}


def test_every_colour_that_is_drawn_is_in_the_picture_to_the_byte() -> None:
    for count in (2, 14):
        names = [f"v{i}" for i in range(count)]
        wanted = {*COLOURS[:count], "#ffffff", "#000000"}
        assert wanted <= colours_of(
            plots.draw_curves([("", curves(names, 23))], [], "epoch", "loss")
        )
        panels = {(row, column): curves(names) for row in "abc" for column in "de"}
        grid = plots.draw_grid(list("abc"), list("de"), panels, "step", {"d": (1.0, "one")})
        assert {*wanted, INK} <= colours_of(grid)
    assert {COLOURS[0], INK} <= colours_of(plots.draw_forest([PAIRS]))
    mark = [Mark("v1", "cross", 0.5, 1.5)]
    assert set(COLOURS[:2]) <= colours_of(plots.draw_exponents(curves(["v0", "v1"]), mark, "loss"))


def test_few_colours_are_kept_all_and_the_file_is_the_same_again() -> None:
    from matplotlib.figure import Figure

    def picture() -> bytes:
        figure = Figure(figsize=(1, 1))
        figure.add_axes((0.0, 0.0, 1.0, 1.0)).imshow(np.arange(11 * 13).reshape(11, 13))
        return pixels.to_png(figure)

    figure = Figure(figsize=(1, 1))
    figure.add_axes((0.0, 0.0, 1.0, 1.0)).imshow(np.arange(11 * 13).reshape(11, 13))
    whole = io.BytesIO()
    figure.savefig(whole, format="png", dpi=pixels.DOTS)
    assert len(colours_of(whole.getvalue())) > 100
    assert colours_of(picture()) == colours_of(whole.getvalue())
    assert picture() == picture()


def test_a_curve_of_one_point_is_seen() -> None:
    one = plots.draw_curves([("", curves(["v1", "v2"], points=1, seeds=1))], [], "epoch", "loss")
    none = plots.draw_curves([("", {"v1": [([], [])], "v2": [([], [])]})], [], "epoch", "loss")

    def count(png: bytes, colour: str) -> int:
        rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        return int((np.asarray(image.open(io.BytesIO(png)).convert("RGB")) == rgb).all(-1).sum())

    for colour in COLOURS[:2]:
        assert count(one, colour) > count(none, colour) + 10


@pytest.mark.parametrize(("end", "scale"), [(0.03, "symlog"), (-0.7, "linear"), (0.0, "linear")])
def test_differences_at_the_end_are_not_lost_beside_those_at_first(
    drawn: list[Figure], end: float, scale: str
) -> None:
    both: Curves = {"a": [([1, 2, 3], [0.0, 0.0, 0.0])], "b": [([1, 2, 3], [-5.0, 1.0, end])]}
    plots.draw_curves([("", curves(["a", "b"]))], [("minus a", both)], "epoch", "loss")
    assert drawn[0].axes[1].get_yscale() == scale
    assert ("logarithmic beyond ±0.01" in drawn[0].axes[1].get_ylabel()) == (scale == "symlog")


def test_one_seed_that_ends_near_the_base_does_not_magnify_the_rest(drawn: list[Figure]) -> None:
    noisy = {"b": [([1, 2], [-5.0, end]) for end in (0.001, -0.4, -0.6)]}
    plots.draw_curves([("", curves(["b"]))], [("minus a", noisy)], "epoch", "loss")
    assert drawn[0].axes[1].get_yscale() == "linear"


def test_an_exponent_where_nothing_arrives_has_its_place_and_epochs_are_whole(
    drawn: list[Figure],
) -> None:
    plots.draw_exponents({"d_k = 4": [([0.0, 0.5, 1.0], [math.inf, 3.0, 4.0])]}, [], "epochs")
    (axes,) = drawn[0].axes
    low, high = axes.get_xlim()
    assert low < 0 < 1 < high
    assert all(tick == round(tick) for tick in axes.get_yticks())


@pytest.mark.parametrize(("far", "scale"), [(7.8, "symlog"), (0.3, "linear"), (math.inf, "linear")])
def test_effects_are_not_lost_beside_one_that_is_far_larger(
    drawn: list[Figure], far: float, scale: str
) -> None:
    effects = {"a": -0.078, "b": 0.036, "c": -0.049, "d": far}
    plots.draw_forest(
        [
            compare(Contrast(n, "train_loss", "z"), True, {0: d}, {0: 0.0})
            for n, d in effects.items()
        ]
    )
    assert drawn[0].axes[0].get_xscale() == scale


@pytest.mark.parametrize("panels", [1, 2, 3, 5])
def test_no_title_is_cut_off_or_runs_into_the_next(drawn: list[Figure], panels: int) -> None:
    names = [f"positions_and_d_k^{i}" for i in range(panels)]
    plots.draw_curves(
        [(f"against {name}", curves([name, "v2"])) for name in names],
        [(f"minus {name}, seed by seed", curves([name, "v2"])) for name in names],
        "epoch",
        "loss",
    )
    (figure,) = drawn
    boxes = [axes.title.get_window_extent() for axes in figure.axes if axes.get_title()]
    assert len(boxes) == (2 * panels if panels > 1 else 1)
    for i, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])


@pytest.mark.parametrize("name", ["p_0.5 $x_{$", "$\\alpha$", "a$b$c"])
def test_a_name_is_drawn_as_it_stands(drawn: list[Figure], name: str) -> None:
    two = curves([name, "v2"])
    plots.draw_curves([(f"against {name}", two), ("b", two)], [], "epoch", "loss")
    plots.draw_grid([name], ["column"], {(name, "column"): two}, "step")
    plots.draw_exponents(two, [Mark(name, "cross", 0.5, 1.5)], "loss")
    plots.draw_forest([compare(Contrast(name, "bleu", "b"), False, {0: 1.0}, {0: 2.0})])
    wanted = [
        {f"{name} (3 seeds)", f"against {name}"},
        {name, f"{name} (3 seeds)"},
        {f"{name} (3 seeds)", "learned, cross"},
        {f"{name} − b  (n = 1)"},
    ]
    for figure, said in zip(drawn, wanted, strict=True):
        assert said <= texts(figure)
        assert not any(text.get_parse_math() for text in every_text(figure))


@pytest.fixture
def one_font(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the machine with the font that comes with matplotlib, which has no Hangul."""
    monkeypatch.setattr(pixels, "FONTS", pixels.FONTS[:1])
    pixels._fonts.cache_clear()
    yield
    pixels._fonts.cache_clear()


@pytest.mark.usefixtures("one_font")
def test_characters_that_no_font_has_are_code_points_and_said_once(
    drawn: list[Figure], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        plots.draw_curves([("", curves(["없음", "d_k^2"]))], [], "epoch", "loss")
    said = {"\\uc5c6\\uc74c (3 seeds)", "d_k^2 (3 seeds)"}
    assert all(said <= texts(figure) for figure in drawn)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "lettered in has 없음, so they show code points; install one" in caplog.text


def test_hangul_is_drawn_where_a_font_has_it(
    drawn: list[Figure], caplog: pytest.LogCaptureFixture
) -> None:
    if pixels.drawable("없음") != "없음":
        pytest.skip("no font with Hangul")
    plots.draw_curves([("", curves(["없음"]))], [], "epoch", "loss")
    assert "없음 (3 seeds)" in texts(drawn[0])
    assert not caplog.records


def test_a_difference_without_end_is_an_arrow_at_the_edge(drawn: list[Figure]) -> None:
    never = {0: math.inf, 1: math.inf, 2: 5.0}
    some = {0: 3.0, 1: 4.0, 2: 4.5}
    names = [("a", never, some), ("c", some, never)]
    plots.draw_forest([compare(Contrast(n, "epochs_to_1", "b"), True, x, y) for n, x, y in names])
    (axes,) = drawn[0].axes
    at: dict[str, set[float]] = {}
    for line in axes.lines:
        at.setdefault(str(line.get_marker()), set()).update(map(float, np.ravel(line.get_xdata())))
    assert at["o"] == {0.5, -0.5}
    assert at[">"] == {0.6}
    assert at["<"] == {-0.6}
    assert "arrows: one side never gets there" in axes.get_xlabel()

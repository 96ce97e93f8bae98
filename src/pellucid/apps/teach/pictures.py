"""The pictures of the articles: matplotlib figures of numbers computed here."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid import ops
from pellucid.core.errors import optional
from pellucid.system.language import Language

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray

INK = "#12414a"
COLOURS = ("#0b7285", "#d9480f", "#5f3dc4", "#2b8a3e", "#a61e4d", "#e67700")
DRAWS = 2000
"""Number of random queries behind every mean."""

ACTIVATIONS: dict[str, tuple[Callable[[Array], Any], Callable[..., Array]]] = {
    "ReLU": (ops.relu, ops.relu_backward),
    "leaky ReLU (0.1)": (lambda x: ops.leaky_relu(x, 0.1), ops.leaky_relu_backward),
    "SiLU": (ops.silu, ops.silu_backward),
    "GELU": (ops.gelu, ops.gelu_backward),
}
"""Forward and backward of the activations to draw, by label."""


def curve(name: str, x: Array) -> tuple[Array, Array]:
    """Compute an activation f(x) and its derivative f′(x).

    Both come from the forward and backward of `ops`.

    >>> curve("ReLU", np.array([-1.0, 2.0]))
    (array([0., 2.]), array([0., 1.]))
    """
    forward, backward = ACTIVATIONS[name]
    y, saved = forward(x)
    return y, backward(np.ones_like(x), saved)


def gelu_minimum() -> tuple[float, float]:
    """Return (x, GELU(x)) at the minimum of GELU on a grid of step 1e-5.

    >>> tuple(round(number, 4) for number in gelu_minimum())
    (-0.7518, -0.17)
    """
    x = np.linspace(-2.0, 0.0, 200_001)
    y, _ = curve("GELU", x)
    return float(x[y.argmin()]), float(y.min())


@cache
def scores(d_k: int, keys: int) -> Array:
    """Return q·k of random queries and keys of unit variance, (DRAWS, keys).

    The array is cached, so it is read-only.
    """
    generator = np.random.default_rng([0, d_k, keys])
    q = generator.standard_normal((DRAWS, 1, d_k))
    k = generator.standard_normal((DRAWS, keys, d_k))
    products: Array = (q @ k.swapaxes(1, 2))[:, 0]
    products.flags.writeable = False
    return products


def top_weight(d_k: int, keys: int, power: float) -> float:
    """Return the mean of the largest weight in softmax(q·k / d_k^power).

    The mean is over `DRAWS` random queries.

    >>> round(top_weight(64, 1, 0.5), 3)
    1.0
    """
    return float(ops.softmax(scores(d_k, keys) / d_k**power)[0].max(axis=-1).mean())


def softmax(language: Language = "en") -> Figure:
    """Draw one query's weights over 10 keys at d_k = 64, with and without 1 / √d_k."""
    row = scores(64, 10)[3]
    with _picture("softmax", language, 9.0, 3.9, 2) as (figure, axes, words):
        for ax, title, power in zip(axes, ("plain", "scaled"), (0.0, 0.5), strict=True):
            weights, _ = ops.softmax(row / 64**power)
            bars = ax.bar(np.arange(10), weights, color=COLOURS[0])
            ax.bar_label(bars, [f"{w:.2f}" if w >= 0.005 else "" for w in weights], fontsize=8)
            below = words["mean"].format(DRAWS, top_weight(64, 10, power))
            ax.set(
                title=words[title], ylim=(0, 1.1), xticks=range(10),
                xlabel=f"{words['key']}\n{below}", ylabel=words["weight"],
            )  # fmt: skip
    return figure


def activations(language: Language = "en") -> Figure:
    """Draw activations, their derivatives, and the error of GELU's tanh form."""
    x = np.linspace(-4.0, 4.0, 1601)
    with _picture("activations", language, 12.0, 4.2, 3) as (figure, axes, words):
        for colour, name in zip(itertools.cycle(COLOURS), ACTIVATIONS, strict=False):
            y, slope = curve(name, x)
            axes[0].plot(x, y, color=colour, label=name)
            axes[1].plot(x, slope, color=colour, label=name)
        at, least = gelu_minimum()
        axes[0].plot(at, least, "o", color=COLOURS[3], markersize=5)
        axes[0].annotate(
            words["lowest"].format(at, least), (at, least), (-3.7, 1.1), fontsize=9,
            arrowprops={"arrowstyle": "-", "color": INK},
        )  # fmt: skip
        axes[0].legend(loc="upper left", fontsize=9)
        error = ops.gelu(x, "tanh")[0] - ops.gelu(x)[0]
        axes[2].plot(x, error, color=COLOURS[3])
        axes[2].set_title(words["error"])
        axes[2].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        axes[2].text(
            0.5, 0.95, words["largest"].format(np.abs(error).max()),
            transform=axes[2].transAxes, ha="center", va="top", fontsize=9,
        )  # fmt: skip
        axes[0].set(title=words["functions"], ylim=(-0.6, 4.0), ylabel="f(x)")
        axes[1].set(title=words["derivatives"], ylabel="f′(x)")
        for ax in axes:
            ax.set_xlabel("x")
            ax.axhline(0.0, color=INK, linewidth=0.5)
    return figure


def positions(language: Language = "en") -> Figure:
    """Draw the sinusoidal positions, and their products against the distance."""
    table = ops.sinusoidal(100, 64)
    with _picture("positions", language, 11.0, 4.2, 2) as (figure, axes, words):
        from matplotlib.colors import LinearSegmentedColormap  # once it is known to be installed

        signed = LinearSegmentedColormap.from_list("signed", (COLOURS[0], "#ffffff", COLOURS[1]))
        image = axes[0].imshow(table.T, aspect="auto", cmap=signed, vmin=-1, vmax=1)
        axes[0].set(title=words["table"], xlabel=words["position"], ylabel=words["channel"])
        figure.colorbar(image, ax=axes[0], ticks=[-1, 0, 1])
        for width, colour, t in zip((7, 4, 1.2), COLOURS, (0, 20, 40), strict=False):
            products = table[t : t + 60] @ table[t]
            axes[1].plot(products, color=colour, linewidth=width, alpha=0.6, label=f"t = {t}")
        axes[1].set(title=words["products"], ylim=(0, 33), xlabel=words["distance"])
        axes[1].legend(fontsize=9)
    return figure


def variance(language: Language = "en") -> Figure:
    """Draw Var[q·k] against d_k, and the largest weight against the number of keys."""
    widths, counts = [2**n for n in range(2, 10)], [2**n for n in range(1, 8)]
    with _picture("variance", language, 11.0, 4.3, 2) as (figure, axes, words):
        axes[0].plot(widths, widths, color=INK, linestyle=":", zorder=3, label="Var = $d_k$")
        powers = {words["plain"]: 0.0, r"/ $\sqrt{d_k}$": 0.5, "/ $d_k$": 1.0}
        for colour, (label, power) in zip(COLOURS, powers.items(), strict=False):
            spread = [float((scores(d, 8) / d**power).var()) for d in widths]
            axes[0].plot(widths, spread, "o-", color=colour, label=label)
            tops = [top_weight(64, n, power) for n in counts]
            axes[1].plot(counts, tops, "o-", color=colour, label=label)
        even = [1 / n for n in counts]
        axes[1].plot(counts, even, color=INK, linestyle=":", label=words["even"])
        axes[0].set(title=words["spread"], xlabel="$d_k$", ylabel="Var[q·k · s]", yscale="log")
        axes[1].set(title=words["largest"], xlabel=words["keys"], ylim=(0, 1.03))
        for ax, ticks in zip(axes, (widths, counts), strict=True):
            ax.set_xscale("log", base=2)
            ax.set_xticks(ticks, [str(n) for n in ticks])
            ax.legend(fontsize=9)
    return figure


def curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], language: Language = "en") -> Figure:
    """Draw losses against the step, and a panel for each other validation score.

    runs: the records of metrics.jsonl of each run, by the name of the run. Raises `UserError` if
    matplotlib is missing, as all functions do that draw a picture.
    """
    scored = {
        run: [(r["step"], {"loss": r["loss"], **r["scores"]}) for r in records if "best" in r]
        for run, records in runs.items()
    }
    found = [name for points in scored.values() for _, scores in points for name in scores]
    panels = list(dict.fromkeys(["loss", *found]))
    with _picture("curves", language, 5.5 * len(panels), 4.3, len(panels)) as (figure, axes, words):
        for colour, (run, records) in zip(itertools.cycle(COLOURS), runs.items(), strict=False):
            losses = [(r["step"], r["loss"]) for r in records if r["event"] == "trained"]
            axes[0].plot(*_columns(losses), color=colour, linewidth=1, alpha=0.5)
            for ax, name in zip(axes, panels, strict=True):
                points = [(at, by[name]) for at, by in scored[run] if by.get(name) is not None]
                ax.plot(*_columns(points), "o-", color=colour, markersize=4, label=run)
        for ax, name in zip(axes, panels, strict=True):
            ax.set(title=name.upper() if len(name) <= 4 else name, xlabel=words["step"])
        axes[0].set(title=words["loss"], ylabel=words["nats"])
        axes[0].legend(fontsize=9)
    return figure


def confused(labels: Sequence[str], confusion: np.ndarray, language: Language = "en") -> Figure:
    """Draw a confusion matrix of counts (true, predicted).

    Colours are shares of each true label.
    """
    size = max(4.5, 0.45 * len(labels) + 2)
    with _picture("confusion", language, size, size, 1) as (figure, (ax,), words):
        shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
        ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        ax.set(xlabel=words["predicted"], ylabel=words["true"])
        ax.set_xticks(range(len(labels)), labels, rotation=90)
        ax.set_yticks(range(len(labels)), labels)
        for (row, column), count in np.ndenumerate(confusion):
            shade = "white" if shares[row, column] > 0.5 else "black"
            if count:
                ax.text(column, row, f"{count}", ha="center", va="center", color=shade, size=8)
    return figure


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


PICTURES: dict[str, Callable[[Language], Figure]] = {
    "softmax": softmax,
    "activations": activations,
    "positions": positions,
    "variance": variance,
}
"""The pictures of `pellucid plot`, by name."""


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the path's suffix, without font warnings.

    Raises `ValueError` for a suffix that matplotlib does not know.
    """
    from pellucid.apps.view.figure import missing_glyphs_named

    with missing_glyphs_named():
        figure.savefig(path)


def new_figure(width: float, height: float, columns: int) -> tuple[Figure, list[Axes]]:
    """Make a figure of `columns` panels side by side, `width` × `height` inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=120)
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


@contextmanager
def _picture(
    name: str, language: Language, width: float, height: float, columns: int
) -> Iterator[tuple[Figure, list[Axes], Mapping[str, str]]]:
    """Make a figure with its style, texts and heading.

    Yield figure, axes and texts for the drawing.
    """
    texts = tomllib.loads(files(__package__).joinpath("pictures.toml").read_text("utf-8"))[name]
    drawn = labels_in(language)
    words = {key: text[drawn] for key, text in texts.items()}
    with style("".join(words.values())):
        figure, axes = new_figure(width, height, columns)
        yield figure, axes, words
        figure.suptitle(words["heading"])


@contextmanager
def style(text: str) -> Iterator[None]:
    """Set colours, and fonts for every character of a text, as far as installed, in the `with`.

    Raises `UserError` if matplotlib is missing.
    """
    fonts: Any = {"font.family": _fonts().families_for(text + "·√′−")}
    from matplotlib import rc_context

    with rc_context(fonts, Path(__file__).with_name("pictures.mplstyle")):
        yield


def labels_in(language: Language) -> Language:
    """Return the language for labels: English if no font has Korean letters.

    Otherwise it is `language`. Logs a warning for English instead of Korean. Raises `UserError` if
    matplotlib is missing.
    """
    drawn: Language = _fonts().labels_in(language)
    return drawn


def _fonts() -> Any:
    optional("matplotlib", "pictures need matplotlib, which is not installed", extra="lab")
    from pellucid.apps.view import fonts

    return fonts

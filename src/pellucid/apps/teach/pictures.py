"""The pictures that the articles draw: matplotlib figures from numbers computed here."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid import ops
from pellucid.core.errors import optional
from pellucid.core.language import Language, Text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray

INK = "#12414a"
COLOURS = ("#0b7285", "#d9480f", "#5f3dc4", "#2b8a3e", "#a61e4d", "#e67700")
DRAWS = 2000
"""Random queries behind every mean."""

ACTIVATIONS: dict[str, tuple[Callable[[Array], Any], Callable[..., Array]]] = {
    "ReLU": (ops.relu, ops.relu_backward),
    "leaky ReLU (0.1)": (lambda x: ops.leaky_relu(x, 0.1), ops.leaky_relu_backward),
    "SiLU": (ops.silu, ops.silu_backward),
    "GELU": (ops.gelu, ops.gelu_backward),
}


def curve(name: str, x: Array) -> tuple[Array, Array]:
    """Return an activation and its derivative at x, from our own forward and backward.

    >>> curve("ReLU", np.array([-1.0, 2.0]))
    (array([0., 2.]), array([0., 1.]))
    """
    forward, backward = ACTIVATIONS[name]
    y, saved = forward(x)
    return y, backward(np.ones_like(x), saved)


def gelu_minimum() -> tuple[float, float]:
    """Return (x, GELU(x)) at the lowest point of GELU, where its derivative is 0.

    >>> tuple(round(number, 4) for number in gelu_minimum())
    (-0.7518, -0.17)
    """
    low, high = -2.0, 0.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        _, slope = curve("GELU", np.array([middle]))
        low, high = (middle, high) if slope[0] < 0 else (low, middle)
    return middle, float(curve("GELU", np.array([middle]))[0][0])


@cache
def scores(d_k: int, keys: int) -> Array:
    """Return q·k of random queries and keys of unit variance, (DRAWS, keys), read-only."""
    generator = np.random.default_rng([0, d_k, keys])
    q = generator.standard_normal((DRAWS, 1, d_k))
    k = generator.standard_normal((DRAWS, keys, d_k))
    products: Array = (q @ k.swapaxes(1, 2))[:, 0]
    products.flags.writeable = False
    return products


def top_weight(d_k: int, keys: int, power: float) -> float:
    """Return the mean of the largest of the weights softmax(q·k / d_k^power).

    >>> round(top_weight(64, 1, 0.5), 3)
    1.0
    """
    return float(ops.softmax(scores(d_k, keys) / d_k**power)[0].max(axis=-1).mean())


def softmax(language: Language = "en") -> Figure:
    """Draw the weights of one query over 10 keys at d_k = 64, without and with the scale."""
    titles = (
        Text("softmax(q·k): not scaled", "softmax(q·k): 스케일링 없음"),
        Text("softmax(q·k / √d_k)", "softmax(q·k / √d_k)"),
    )
    mean = Text("mean of the largest weight over {:,} queries: {:.2f}",
                "쿼리 {:,}개에서 최대 가중치의 평균: {:.2f}")  # fmt: skip
    words = (Text("key", "키"), Text("weight", "가중치"))
    heading = Text(
        "Article 000: one query, 10 keys, d_k = 64", "글 000: 쿼리 하나, 키 10개, d_k = 64"
    )
    row = scores(64, 10)[3]
    with _style(language, titles + words + (mean, heading)):
        figure, axes = _figure(9.0, 3.9, 2)
        for ax, title, power in zip(axes, titles, (0.0, 0.5), strict=True):
            weights, _ = ops.softmax(row / 64**power)
            bars = ax.bar(np.arange(10), weights, color=COLOURS[0])
            ax.bar_label(bars, [f"{w:.2f}" if w >= 0.005 else "" for w in weights], fontsize=8)
            below = mean.to(language).format(DRAWS, top_weight(64, 10, power))
            ax.set(
                title=title.to(language), ylim=(0, 1.1), xticks=range(10),
                xlabel=f"{words[0].to(language)}\n{below}", ylabel=words[1].to(language),
            )  # fmt: skip
        figure.suptitle(heading.to(language))
    return figure


def activations(language: Language = "en") -> Figure:
    """Draw the activations and their derivatives, and the error of GELU's tanh form."""
    titles = (
        Text("The functions", "함수"),
        Text("Their derivatives", "도함수"),
        Text("GELU: tanh form − exact", "GELU: tanh 근사 − 정확한 값"),
    )
    lowest = Text("GELU's minimum\n({:.3f}, {:.3f})", "GELU의 최솟값\n({:.3f}, {:.3f})")
    largest = Text("largest: {:.1e}", "최대 차이: {:.1e}")
    heading = Text("Article 000: activations, from our own forward and backward",
                   "글 000: 활성화 함수 (Pellucid의 순전파·역전파로 계산)")  # fmt: skip
    x = np.linspace(-4.0, 4.0, 1601)
    with _style(language, (*titles, lowest, largest, heading)):
        figure, axes = _figure(12.0, 4.2, 3)
        for colour, name in zip(itertools.cycle(COLOURS), ACTIVATIONS, strict=False):
            y, slope = curve(name, x)
            axes[0].plot(x, y, color=colour, label=name)
            axes[1].plot(x, slope, color=colour, label=name)
        at, least = gelu_minimum()
        axes[0].plot(at, least, "o", color=COLOURS[3], markersize=5)
        axes[0].annotate(
            lowest.to(language).format(at, least), (at, least), (-3.7, 1.1), fontsize=9,
            arrowprops={"arrowstyle": "-", "color": INK},
        )  # fmt: skip
        axes[0].legend(loc="upper left", fontsize=9)
        error = ops.gelu(x, "tanh")[0] - ops.gelu(x)[0]
        axes[2].plot(x, error, color=COLOURS[3])
        axes[2].set_title(titles[2].to(language))
        axes[2].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        axes[2].text(
            0.5, 0.95, largest.to(language).format(np.abs(error).max()),
            transform=axes[2].transAxes, ha="center", va="top", fontsize=9,
        )  # fmt: skip
        axes[0].set(title=titles[0].to(language), ylim=(-0.6, 4.0), ylabel="f(x)")
        axes[1].set(title=titles[1].to(language), ylabel="f′(x)")
        for ax in axes:
            ax.set_xlabel("x")
            ax.axhline(0.0, color=INK, linewidth=0.5)
        figure.suptitle(heading.to(language))
    return figure


def positions(language: Language = "en") -> Figure:
    """Draw the sinusoidal table, and how the product of two positions depends on their distance."""
    titles = (
        Text("P[t, channel]", "P[t, 채널]"),
        Text("P[t]·P[t + k] for t = 0, 20, 40", "t = 0, 20, 40일 때 P[t]·P[t + k]"),
    )
    words = (
        Text("position t", "위치 t"), Text("channel", "채널"), Text("distance k", "거리 k"),
        Text("the curves coincide: only the distance counts",
             "세 곡선이 겹칩니다: 내적은 거리에만 의존"),
    )  # fmt: skip
    heading = Text("Sinusoidal positions, width 64", "사인·코사인 위치 인코딩, 폭 64")
    table = ops.sinusoidal(100, 64)
    with _style(language, (*titles, *words, heading)):
        figure, axes = _figure(11.0, 4.2, 2)
        image = axes[0].imshow(table.T, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1)
        axes[0].set(title=titles[0].to(language), xlabel=words[0].to(language),
                    ylabel=words[1].to(language))  # fmt: skip
        figure.colorbar(image, ax=axes[0], ticks=[-1, 0, 1])
        for width, colour, t in zip((7, 4, 1.2), COLOURS, (0, 20, 40), strict=False):
            products = table[t : t + 60] @ table[t]
            axes[1].plot(products, color=colour, linewidth=width, alpha=0.6, label=f"t = {t}")
        axes[1].set(title=titles[1].to(language), ylim=(0, 33),
                    xlabel=f"{words[2].to(language)}\n{words[3].to(language)}")  # fmt: skip
        axes[1].legend(fontsize=9)
        figure.suptitle(heading.to(language))
    return figure


def variance(language: Language = "en") -> Figure:
    """Draw Var[q·k] against d_k, and the largest weight against the number of keys."""
    titles = (
        Text("Variance of the scores", "점수의 분산"),
        Text("Mean of the largest weight, d_k = 64", "최대 가중치의 평균, d_k = 64"),
    )
    words = (
        Text("not scaled", "스케일링 없음"), Text("/ √d_k", "/ √d_k"), Text("/ d_k", "/ d_k"),
        Text("number of keys", "키의 개수"), Text("even: 1 / keys", "균등: 1 / 키의 개수"),
        Text("Var = d_k", "Var = d_k"),
    )  # fmt: skip
    heading = Text(
        "Articles 000 and 003: the width of a head sets the variance, the number of keys the mean",
        "글 000, 003: 헤드의 폭은 분산을, 키의 개수는 평균 가중치를 정합니다",
    )
    widths, counts = [2**n for n in range(2, 10)], [2**n for n in range(1, 8)]
    powers = dict(zip(words[:3], (0.0, 0.5, 1.0), strict=True))
    with _style(language, (*titles, *words, heading)):
        figure, axes = _figure(11.0, 4.3, 2)
        axes[0].plot(
            widths, widths, color=INK, linestyle=":", zorder=3, label=words[5].to(language)
        )
        for colour, (word, power) in zip(COLOURS, powers.items(), strict=False):
            spread = [float((scores(d, 8) / d**power).var()) for d in widths]
            axes[0].plot(widths, spread, "o-", color=colour, label=word.to(language))
            tops = [top_weight(64, n, power) for n in counts]
            axes[1].plot(counts, tops, "o-", color=colour, label=word.to(language))
        axes[1].plot(
            counts, [1 / n for n in counts], color=INK, linestyle=":", label=words[4].to(language)
        )
        axes[0].set(title=titles[0].to(language), xlabel="d_k", ylabel="Var[q·k · s]", yscale="log")
        axes[1].set(title=titles[1].to(language), xlabel=words[3].to(language), ylim=(0, 1.03))
        for ax, ticks in zip(axes, (widths, counts), strict=True):
            ax.set_xscale("log", base=2)
            ax.set_xticks(ticks, [str(n) for n in ticks])
            ax.legend(fontsize=9)
        figure.suptitle(heading.to(language))
    return figure


def score_map(weights: Array, queries: Sequence[str], keys: Sequence[str], title: str) -> Figure:
    """Draw an attention map (L, S) with its tokens: a row is a query, dark is a large weight."""
    label = Text(title, "".join((title, *queries, *keys)))
    with _style("ko", (label,)):
        figure, (ax,) = _figure(0.5 * len(keys) + 2.8, 0.4 * len(queries) + 1.9, 1)
        image = ax.imshow(weights, cmap="GnBu", vmin=0, vmax=1, aspect="auto")
        ax.set_xticks(range(len(keys)), keys, rotation=60, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(queries)), queries)
        ax.set(xlabel="key", ylabel="query")
        figure.suptitle(title, fontsize=11)
        figure.colorbar(image, ax=ax, label="weight")
    return figure


PICTURES: dict[str, Callable[[Language], Figure]] = {
    "softmax": softmax,
    "activations": activations,
    "positions": positions,
    "variance": variance,
}


def save(figure: Figure, path: Path) -> None:
    """Write a figure as the suffix says; characters that no font has were already named."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(path)


def _figure(width: float, height: float, columns: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes next to each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=120)
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


@contextmanager
def _style(language: Language, texts: Sequence[Text]) -> Iterator[None]:
    """Set colours, and fonts that have every character of the texts.

    Raises `UserError` when matplotlib is missing.
    """
    optional("matplotlib", "pictures need matplotlib, which is not installed", extra="lab")
    from matplotlib import rc_context

    from pellucid.apps.view.fonts import families_for

    settings: Any = {
        "font.family": families_for("".join(text.to(language) for text in texts) + "·√′−"),
        "axes.edgecolor": INK,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
    }
    with rc_context(settings):
        yield

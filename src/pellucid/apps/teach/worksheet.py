"""Worksheets: a backward pass on paper, in small integers, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pellucid import ops
from pellucid.apps.teach.pictures import COLOURS, save, style
from pellucid.ops.attention import Saved as AttentionSaved
from pellucid.ops.attention import attention_backward
from pellucid.ops.rule import EVERYTHING
from pellucid.ops.softmax import Saved as SoftmaxSaved
from pellucid.system.language import Language

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray
Draw = np.random.Generator

LARGEST = 40
"""Largest number on a sheet, so that it can be worked out by hand."""
QUARTERS = np.array([0.5, 0.25, 0.25])
"""Softmax weights of three keys: powers of 2, so that no exp has to be computed by hand."""


class Sheet(NamedTuple):
    """One worksheet: the steps of a backward, the given matrices, and those to fill in."""

    steps: tuple[str, ...]
    given: dict[str, Array]
    asked: dict[str, Array]


def linear(draw: Draw) -> Sheet:
    """Draw a worksheet for y = x Wᵀ + b: compute the gradients of x, W and b."""
    x, w, dy = (draw.integers(-3, 4, shape).astype(float) for shape in ((2, 3), (2, 3), (2, 2)))
    dx, dw, _ = ops.linear_backward(dy, ops.linear(x, w)[1])
    steps = ("dx = dy W", "dW = dyᵀ x", "db = Σ dy")
    asked = {"dx": dx, "dW": dw, "db": dy.sum(axis=0, keepdims=True)}
    return Sheet(steps, {"x": x, "W": w, "dy": dy}, asked)


def softmax(draw: Draw) -> Sheet:
    """Draw a worksheet for the gradient of x in p = softmax(x); p is drawn, and there is no x."""
    p, dp = draw.permuted([QUARTERS] * 2, axis=1), 4.0 * draw.integers(-2, 3, (2, 3))
    total = (p * dp).sum(axis=1, keepdims=True)
    dx = ops.softmax_backward(dp, SoftmaxSaved(p))
    steps = ("s = Σ p ⊙ dp", "dx = p ⊙ (dp − s)")
    return Sheet(steps, {"p": p, "dp": dp}, {"s": total, "dx": dx})


def layer_norm(draw: Draw) -> Sheet:
    """Draw a worksheet for y = γ ⊙ x̂ + β: dx through the mean and the variance."""
    signs, sigma = draw.permuted([[1.0, 1.0, -1.0, -1.0]] * 2, axis=1), draw.integers(1, 3, (2, 1))
    gamma, dy = draw.permuted([1.0, 2.0, 2.0, 3.0]), draw.integers(-3, 4, (2, 4)).astype(float)
    x = draw.integers(-3, 4, (2, 1)) + sigma * signs
    dx = ops.layer_norm_backward(dy, ops.layer_norm(x, gamma, np.zeros(4), eps=0.0)[1])[0]
    g = dy * gamma
    mean_g = g.mean(axis=1, keepdims=True)
    mean_gx = (g * signs).mean(axis=1, keepdims=True)
    steps = ("g = dy ⊙ γ", "a = mean g", "b = mean (g ⊙ x̂)", "dx = (g − a − x̂ ⊙ b) / σ")
    given = {"x̂": signs, "σ": 1.0 * sigma, "γ": gamma[None], "dy": dy}
    return Sheet(steps, given, {"g": g, "a": mean_g, "b": mean_gx, "dx": dx})


def attention(draw: Draw) -> Sheet:
    """Draw a worksheet for dV, dQ and dK in Z = softmax(Q Kᵀ / 2) V, with head width 4.

    The weights W are drawn too, and not computed from Q and K.
    """
    q, k, v = (2.0 * draw.integers(-2, 3, shape) for shape in ((2, 4), (3, 4), (3, 4)))
    w, dz = draw.permuted([QUARTERS] * 2, axis=1), 2.0 * draw.integers(-1, 2, (2, 4))
    saved = AttentionSaved(q, k, v, 0.5, w, None, w, ops.dropout(w, 0.0, None)[1], EVERYTHING, [])
    dq, dk, dv = attention_backward(dz, saved)
    dw = dz @ v.T
    da = ops.softmax_backward(dw, SoftmaxSaved(w))
    steps = ("dV = Wᵀ dZ", "dW = dZ Vᵀ", "dA = W ⊙ (dW − Σ dW ⊙ W)", "dQ = ½ dA K", "dK = ½ dAᵀ Q")
    given = {"Q": q, "K": k, "V": v, "W": w, "dZ": dz}
    return Sheet(steps, given, {"dV": dv, "dW": dw, "dA": da, "dQ": dq, "dK": dk})


SHEETS: dict[str, Callable[[Draw], Sheet]] = {
    sheet.__name__: sheet for sheet in (linear, softmax, layer_norm, attention)
}
"""Functions that draw a worksheet, by name."""


def sheet(name: str, seed: int) -> Sheet:
    """Return a worksheet; the same name and seed give the same one.

    It is drawn again until all answers are integers from −`LARGEST` to `LARGEST`, and no matrix of
    answers is all zeros.

    >>> {name: matrix.shape for name, matrix in sheet("softmax", 7).asked.items()}
    {'s': (2, 1), 'dx': (2, 3)}
    """
    draw = np.random.default_rng([seed, list(SHEETS).index(name)])
    while True:
        drawn = SHEETS[name](draw)
        if all(
            np.array_equal(m, np.rint(m)) and 0 < np.abs(m).max() <= LARGEST
            for m in drawn.asked.values()
        ):
            return drawn


WORDS = {
    "en": ("Backward of {}, by hand (sheet {})", "Fill in the empty boxes.", "Answers"),
    "ko": ("{}의 역전파를 손으로 (문제지 {})", "빈칸을 채워 보세요.", "정답"),
}
NOTES = {
    "en": {"attention": "W is not computed from Q and K here: it is chosen so that all is whole."},
    "ko": {"attention": "W는 Q와 K로 계산한 것이 아니라, 모두 정수가 되도록 정한 값입니다."},
}


def pages(name: str, seed: int, language: Language = "en") -> list[Figure]:
    """Return two A4 figures: the worksheet, and the same with its answers filled in.

    Raises `UserError` if matplotlib is missing.
    """
    drawn, (title, task, answers) = sheet(name, seed), WORDS[language]
    head, note = title.format(name, seed), NOTES[language].get(name, "")
    with style(head + task + answers + note + "ᵀ⊙Σ½x̂σγ"):
        return [
            _page(drawn, f"{head}\n{below}\n{note}", shown)
            for below, shown in ((task, False), (answers, True))
        ]


def _page(drawn: Sheet, title: str, answered: bool) -> Figure:
    """Draw one page of a worksheet; `answered` fills in the answers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.27, 11.69))
    axes = figure.add_axes((0.07, 0.04, 0.86, 0.92), xlim=(0, 16), ylim=(24, 0))
    axes.set_axis_off()
    axes.text(0, 0.2, title, fontsize=13, va="top", linespacing=1.6)
    axes.text(0, 3.0, "\n".join(drawn.steps), fontsize=13, va="top", linespacing=1.8)
    top = 3.9 + 0.8 * len(drawn.steps)
    for matrices, shown, colour in (
        (drawn.given, True, "black"),
        (drawn.asked, answered, COLOURS[1]),
    ):
        top = _boxes(axes, matrices, top, colour if shown else None) + 1.2
    return figure


def _boxes(axes: Axes, matrices: dict[str, Array], top: float, colour: str | None) -> float:
    """Draw matrices as rows of boxes; return the height below them.

    colour: of the numbers; None leaves the boxes empty.
    """
    from matplotlib.patches import Rectangle

    left, below = 0.0, top
    for name, matrix in matrices.items():
        rows, columns = matrix.shape
        if left + columns > 16:
            left, top = 0.0, below + 1.2
        axes.text(left, top - 0.2, name, fontsize=13)
        for (row, column), number in np.ndenumerate(matrix):
            place = left + column, top + row
            axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor="grey", linewidth=0.8))
            if colour:
                axes.text(
                    place[0] + 0.5, place[1] + 0.5, written(number),
                    color=colour, fontsize=12, ha="center", va="center",
                )  # fmt: skip
        left, below = left + columns + 1.2, max(below, top + rows)
    return below


def written(number: float) -> str:
    """Format a number as an integer or a fraction, with the sign −.

    >>> written(-3.0), written(0.25)
    ('−3', '1/4')
    """
    above, below = float(number).as_integer_ratio()
    return f"{above}/{below}".removesuffix("/1").replace("-", "−")


def write(figures: list[Figure], path: Path) -> list[Path]:
    """Write the two pages: one PDF, or two pictures, the second named `…-answers`.

    Return the paths.
    """
    if path.suffix.lower() == ".pdf":
        from matplotlib.backends.backend_pdf import PdfPages

        with PdfPages(path, metadata={"CreationDate": None}) as book:
            for figure in figures:
                book.savefig(figure)
        return [path]
    paths = [path, path.with_stem(f"{path.stem}-answers")]
    for figure, each in zip(figures, paths, strict=True):
        save(figure, each)
    return paths

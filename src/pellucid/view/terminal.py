"""An attention map in a terminal: one row per output token, darker blocks where it looks harder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

SHADES = " ░▒▓█"


def attention_map(weights: np.ndarray, outputs: Sequence[str], sources: Sequence[str]) -> str:
    """Draw weights (L, S): outputs down the side, sources across the top.

    A weight w is shown by the shade round(4 w), twice as wide as high so that cells look square.
    Raises `ValueError` when the labels do not fit the weights.

    >>> print(attention_map(np.eye(2), ["b", "a"], ["x", "y"]))
      x y
    b ██
    a   ██
    """
    if weights.shape != (len(outputs), len(sources)):
        raise ValueError(
            f"weights of shape {weights.shape} need as many labels, got {len(outputs)} outputs "
            f"and {len(sources)} sources"
        )
    side = max(map(cell_len, outputs), default=0)
    width = max(2, *(cell_len(source) + 1 for source in sources)) if sources else 2
    lines = [" " * (side + 1) + "".join(_fit(source, width) for source in sources)]
    shades = np.rint(weights * (len(SHADES) - 1)).astype(int)
    for output, row in zip(outputs, shades, strict=True):
        cells = "".join(SHADES[shade] * width for shade in row)
        lines.append(f"{_fit(output, side)} {cells}")
    return "\n".join(line.rstrip() for line in lines)


def _fit(text: str, width: int) -> str:
    """Pad to a width in terminal cells (a Hangul syllable takes two)."""
    return text + " " * (width - cell_len(text))

"""Draw an attention map in a terminal: a row per query, darker for larger weights."""

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

SHADES = " ░▒▓█"


def attention_map(
    weights: np.ndarray, outputs: Sequence[str], sources: Sequence[str], width: int | None = None
) -> str:
    """Draw attention weights (L, S) as text.

    outputs, sources: labels of the rows and columns. A weight w gets the shade number round(4 √w)
    of 5: the square root makes weights above 1/64 visible. A cell is at least two characters
    wide, so that it looks square. A map wider than `width` characters is split into blocks of
    columns, one below the other. Raises `ValueError` if the number of labels does not match the
    weights.

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
    cell = max(2, *(cell_len(source) + 1 for source in sources)) if sources else 2
    shades = np.rint(np.sqrt(weights) * (len(SHADES) - 1)).astype(int)
    columns = len(sources) if width is None else max(1, (width - side - 1) // cell)
    blocks = []
    for start in range(0, max(len(sources), 1), max(columns, 1)):
        part = slice(start, start + columns)
        lines = [" " * (side + 1) + "".join(_fit(source, cell) for source in sources[part])]
        for output, row in zip(outputs, shades[:, part], strict=True):
            lines.append(f"{_fit(output, side)} " + "".join(SHADES[s] * cell for s in row))
        blocks.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(blocks)


def _fit(text: str, width: int) -> str:
    """Pad a text to a width in terminal cells (a Hangul syllable takes two)."""
    return text + " " * (width - cell_len(text))

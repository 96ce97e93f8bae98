"""How a picture is lettered and written: text as it stands, colours exact, the same bytes again."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_log = logging.getLogger(__name__)

DOTS = 110  # an inch
SHADES = 256  # of a PNG with a palette, which takes a third of the bytes of one without
FONTS = (
    "DejaVu Sans",  # matplotlib's own: Latin, Greek, Cyrillic, mathematics
    "Noto Sans CJK KR",
    "Noto Sans KR",
    "NanumGothic",
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "Arial Unicode MS",
)
"""Tried in this order for every character."""


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw text as it stands, a $ too, with whichever of `FONTS` this machine has."""
    import matplotlib

    with matplotlib.rc_context({"text.parse_math": False, "font.family": list(_fonts())}):
        yield


def drawable(text: str) -> str:
    r"""Return a text as a picture can show it: a character that no font has, as its code point.

    >>> drawable("d_k^2"), drawable("\uf8fe_2")
    ('d_k^2', '\\uf8fe_2')
    """
    lacking = {
        c for c in text if not any(font.get_char_index(ord(c)) for font in _fonts().values())
    }
    if lacking:
        _say_lacking("".join(sorted(lacking)))
    return "".join(
        c.encode("ascii", "backslashreplace").decode() if c in lacking else c for c in text
    )


@cache
def _say_lacking(characters: str) -> None:
    """Say it once for each text's characters, however often it is drawn."""
    _log.warning(
        "no font of this machine that pictures are lettered in has %s, so they show code points; "
        "install one that has, such as Noto Sans CJK, and make the report again",
        characters,
    )


@cache
def _fonts() -> Mapping[str, Any]:
    """Return those of `FONTS` that are here, opened."""
    from matplotlib.font_manager import findfont, get_font

    found = {}
    for name in FONTS:
        try:
            found[name] = get_font(findfont(name, fallback_to_default=False))
        except ValueError:
            continue
    return found


def to_png(figure: Figure) -> bytes:
    """Return the figure as a PNG of few colours, without the date that would make it differ.

    The colours of all lines and markers are kept to the byte, then the commonest; what is left are
    mixtures at edges, and each gets the nearest of these. (Median cut, the usual way, would mix a
    thin line's colour with others like it, and a variant would look like another.)
    """
    from matplotlib.colors import to_hex
    from matplotlib.lines import Line2D
    from PIL import Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DOTS)
    pixels = np.asarray(Image.open(drawn).convert("RGB")).astype(np.int64)
    codes = (pixels[..., 0] << 16) + (pixels[..., 1] << 8) + pixels[..., 2]
    lines = [int(to_hex(line.get_color())[1:], 16) for line in figure.findobj(Line2D)]
    found, place, count = np.unique(codes, return_inverse=True, return_counts=True)
    kept = np.lexsort((-count, ~np.isin(found, lines)))[:SHADES]
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    palette = colours[kept]
    # |colour − entry|² without |colour|², which is the same for every entry
    nearest = np.argmin((palette**2).sum(axis=1) - 2 * colours @ palette.T, axis=1)
    image = Image.fromarray(nearest.astype(np.uint8)[place].reshape(codes.shape))
    image.putpalette(palette.astype(np.uint8).tobytes())
    image.save(small, "PNG", optimize=True)
    return small.getvalue()

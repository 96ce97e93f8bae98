"""A text too long for a model, cut where sentences end."""

from __future__ import annotations

import re
from collections.abc import Callable

# White space after a mark that ends a sentence and any closing quotes or brackets; the marks of
# Chinese and Japanese need none after them.
_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+|(?<=[。！？])")


def split_sentences(text: str, count: Callable[[str], int], longest: int) -> list[str] | None:
    """Return the text in as few pieces of at most `longest` tokens as whole sentences allow.

    `count` says how many tokens a piece has. None: a sentence by itself is too long. A text that is
    short enough comes back as it is; white space between pieces is left out, and a text of nothing
    else comes back empty.

    >>> split_sentences("It rains. Does it? Yes!", len, 18)
    ['It rains. Does it?', 'Yes!']
    """
    if count(text) <= longest:
        return [text]
    pieces: list[str] = []
    start = 0
    for stop in [*(match.end() for match in _END.finditer(text)), len(text)]:
        if pieces and count((pieces[-1] + text[start:stop]).strip()) <= longest:
            pieces[-1] += text[start:stop]
        elif text[start:stop].strip():
            pieces.append(text[start:stop])
        start = stop
    pieces = [piece.strip() for piece in pieces] or [""]
    return pieces if all(count(piece) <= longest for piece in pieces) else None

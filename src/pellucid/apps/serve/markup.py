"""Translate the texts in HTML and keep its tags."""

from collections.abc import Callable
from html import escape, unescape
from html.parser import HTMLParser
from itertools import groupby
from typing import Any

from pellucid.core.errors import UserError
from pellucid.tasks.generation import TooLongError
from pellucid.tasks.passage import Passage

VOID = "area base br col embed hr img input link meta source track wbr"
"""Elements without an end tag."""


class _Reader(HTMLParser):
    """Finds where the parts of an HTML document begin.

    They are then copied from the document.
    """

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=False)
        self.starts = [(0, False)]
        """(Offset, whether it is translated) of each part."""
        self._kept, self._open = "", 0
        """Tag of an element that is not translated, and how many of this tag are open."""
        self._lines = [0, *(i + 1 for i, c in enumerate(document) if c == "\n")]
        self.feed(document)
        self.close()

    def _begin(self, text: bool = False) -> None:
        """Note the beginning of a part."""
        line, column = self.getpos()
        in_script = self.cdata_elem is not None
        translated = text and not (in_script or self._open)
        self.starts.append((self._lines[line - 1] + column, translated))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a start tag, and whether its element is to be kept."""
        self._begin()
        own = {name: (value or "").lower() for name, value in attrs}
        if tag == self._kept == "p":  # it ends the one before
            self._open = 0
        if self._open:
            self._open += tag == self._kept
        elif own.get("translate") == "no" or "notranslate" in own.get("class", "").split():
            self._kept, self._open = tag, int(tag not in VOID.split())

    def _text(self, *_: Any, **__: Any) -> None:
        self._begin(text=True)

    def _mark(self, *_: Any, **__: Any) -> None:
        self._begin()

    handle_data = handle_entityref = handle_charref = _text
    handle_decl = handle_comment = handle_pi = unknown_decl = _mark

    def handle_endtag(self, tag: str) -> None:
        """Note an end tag, and whether it ends a kept element."""
        self._begin()
        self._open -= self._open > 0 and tag == self._kept


def spans(document: str) -> list[tuple[str, bool]]:
    """Split an HTML document into parts: (text, whether it is translated).

    Character references in translated parts are replaced by their characters. Not translated are
    tags with their attributes, comments, scripts, styles, and everything in an element with
    `translate="no"` or the class `notranslate`.

    >>> spans("<p>Ja &amp; nein</p>")
    [('<p>', False), ('Ja & nein', True), ('</p>', False)]
    """
    starts = _Reader(document).starts
    ends = [*(start for start, _ in starts[1:]), len(document)]
    found: list[tuple[str, bool]] = []
    for text, parts in groupby(zip(starts, ends, strict=True), key=lambda part: part[0][1]):
        each = [document[start:end] for (start, _), end in parts]
        found += [(unescape("".join(each)), True)] if text else [(own, False) for own in each]
    return [part for part in found if part[0]]


def shown(document: str) -> str:
    """Return the texts of an HTML document that are translated, joined by newlines."""
    return "\n".join(text for text, translated in spans(document) if translated)


def passage_of(document: str, split: Callable[[str], Passage]) -> Passage:
    """Split an HTML document into pieces to translate and markup between them.

    An answer must be `escaped` before it is put in place of its piece.

    split: splits a text into pieces, or raises `UserError` for one that the model cannot answer,
    which is then copied. Raises `TooLongError` for a text that is too long.
    """
    found = Passage([], [""])
    for text, translated in spans(document):
        own, core = Passage([], [text]), text.strip() if translated else ""
        if core:
            before, _, behind = text.partition(core)
            try:
                own = split(core)
            except TooLongError:
                raise
            except UserError:
                own = Passage([], [core])
            own.kept[:] = map(escaped, own.kept)
            own.kept[0] = before + own.kept[0]
            own.kept[-1] += behind
        found.kept[-1] += own.kept[0]
        found.kept.extend(own.kept[1:])
        found.pieces.extend(own.pieces)
    return found


def escaped(text: str) -> str:
    """Escape `&`, `<` and `>` in a text for HTML; quotes stay as they are."""
    return escape(text, quote=False)

"""A picture of one sentence: its record, and all ways to draw it."""

from __future__ import annotations

import html
import io
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pellucid.apps.view import page
from pellucid.apps.view.record import TITLES, Kind, Language, Record, select_maps
from pellucid.core.errors import UsageError
from pellucid.system.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTEBOOK_HEIGHT = 860
DRAWINGS: dict[str, Literal["page", "figure", "text"]] = {
    ".html": "page",
    ".png": "figure",
    ".svg": "figure",
    ".pdf": "figure",
    ".txt": "text",
}
"""How to draw a picture, by the suffix of its file."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Picture:
    """The attention of one sentence; a notebook displays it as the HTML page."""

    record: Record
    model: Mapping[str, Any] | None = None
    """Description of the model (`runnable`), for a page that computes."""
    other: Record | None = None
    """Another record, to compare with the first on one page."""

    def beside(self, other: Picture, names: tuple[str, str] = ("", "")) -> Picture:
        """Return a picture that compares this one with another, under a common cursor.

        They may be of two models or of two texts. The page compares −log p too, so give two models
        the same answer. names: the page's names of this picture and the other. Only the HTML page
        shows both; all other drawings show this picture alone.
        """
        return replace(
            self,
            record=replace(self.record, name=names[0]),
            other=replace(other.record, name=names[1]),
        )

    def html(
        self,
        kind: Kind | None = None,
        layer: int | None = None,
        head: int | None = None,
        *,
        language: Language | None = None,
    ) -> str:
        """Return the HTML page: one file that works offline and makes no network requests.

        It opens on the map named; by default on the whole model, and on the head whose keys depend
        most on the query. language: of the page; default, Korean in a Korean browser, else English.
        With a `model` the reader can type other texts and switch parts off. Numbers have float32's
        precision if the file stays below 15 MB, else less; the page states the error of its
        weights. Layers and heads are counted from 1. Raises `UsageError` for a kind, layer or head
        that the model lacks.
        """
        record, model = self.record, self.model
        computed = model is not None and model["text"]  # by the page itself
        own = page.as_json(record, (kind, layer, head), language, numbers=not computed)
        other = None if self.other is None else page.as_json(self.other)
        whole = page.filled(record.title, page.dumps(own), run=model, other=other)
        if len(whole) > page.LARGEST:
            _log.warning("the page is %.1f MB, too large for many mailboxes", len(whole) / 1e6)
        return whole

    def figure(
        self, kind: Kind | None = None, layer: int | None = None, head: int | None = None
    ) -> Figure:
        """Return a matplotlib figure of all layers and heads of a kind, or of some.

        kind: default, the last that the model has. Layers and heads are counted from 1. Raises
        `UserError` if matplotlib is missing, `UsageError` for a kind, layer or head that the model
        lacks.
        """
        from pellucid.apps.view.figure import draw_figure

        return draw_figure(self.record, kind, layer, head)

    def terminal(
        self,
        kind: Kind | None = None,
        layer: int | None = None,
        head: int | None = None,
        *,
        width: int = 100,
    ) -> str:
        """Draw one map as text: by default the last layer, and the mean of its heads.

        kind: default, the last that the model has. Layers and heads are counted from 1; `width` is
        in characters. Raises `UsageError` for a kind, layer or head that the model lacks.
        """
        record = self.record
        kind, (*_, m), heads = select_maps(record, kind, layer, head)
        weights, entropy = m.probabilities[heads].mean(axis=0), m.entropies[heads].mean()
        of = f"mean of {len(heads)} heads" if head is None else f"head {head}"
        from pellucid.apps.view.terminal import attention_map  # with rich, which nothing else needs

        title = f"{TITLES[kind]}, layer {m.layer}, {of}; entropy {entropy:.2f} nats"
        rows = [label.text for label in record.queries(kind)]
        columns = [label.text for label in record.keys(kind)]
        return f"{title}\n{attention_map(weights, rows, columns, width)}"

    def save(
        self,
        path: str | Path,
        kind: Kind | None = None,
        layer: int | None = None,
        head: int | None = None,
        *,
        language: Language | None = None,
    ) -> Path:
        """Write the picture to a file in the format of its suffix.

        The suffixes are .html, .png, .svg, .pdf and .txt. language: of an HTML page. Returns the
        path. Raises as `html`, `figure` or `terminal` does, `UsageError` for another suffix, and
        `UserError` if the file cannot be written; an existing file is then unchanged.
        """
        path = Path(path)
        drawing = drawable(path)
        if drawing == "page":
            content = self.html(kind, layer, head, language=language).encode("utf-8")
        elif drawing == "figure":
            from pellucid.apps.view.figure import missing_glyphs_named

            figure, drawn = self.figure(kind, layer, head), io.BytesIO()
            with missing_glyphs_named():
                figure.savefig(drawn, format=path.suffix[1:].lower())
            content = drawn.getvalue()
        else:
            content = f"{self.terminal(kind, layer, head)}\n".encode()
        write_atomically(path, content)
        return path

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that a notebook's styles and its own stay apart."""
        return (
            f'<iframe srcdoc="{html.escape(self.html())}" title="{html.escape(self.record.title)}" '
            f'sandbox="allow-scripts" style="width:100%;height:{NOTEBOOK_HEIGHT}px;border:0">'
            "</iframe>"
        )


def drawable(path: Path) -> Literal["page", "figure", "text"]:
    """Return how to draw a picture into a file.

    Raises `UsageError` for an unknown suffix.
    """
    if path.suffix.lower() not in DRAWINGS:
        raise UsageError(
            f"{path}: a picture's name ends in .html (the page), .png, .svg or .pdf (a figure) or "
            ".txt (the drawing for a terminal)"
        )
    return DRAWINGS[path.suffix.lower()]

"""`pellucid view MODEL TEXT`: a model's attention for one text, drawn."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.options import named_model, parse
from pellucid.apps.view import attention
from pellucid.apps.view.picture import drawable
from pellucid.core.errors import UsageError
from pellucid.core.language import Language
from pellucid.generation import SearchConfig
from pellucid.tasks import Task
from pellucid.tasks.folder import find_model

USE = 'which model, and what text? Use `pellucid view MODEL "TEXT"`'
PAGE = Path("attention.html")


def run(arguments: list[str]) -> int:
    """Run the command: the model named first gives the search its defaults."""
    name, rest, trained = named_model(arguments, USE)
    saved = getattr(trained, "search", SearchConfig())
    page = _page(Path(name)) if name is not None else PAGE

    def view(
        text: str = "",
        /,
        *,
        answer: str | None = None,
        output: tuple[Path, ...] = (page,),
        kind: Literal["encoder", "decoder", "cross"] | None = None,
        layer: int | None = None,
        head: int | None = None,
        lang: Language | None = None,
        open: bool = False,
        accept_changes: bool = False,  # was read above, with the model
        search: Annotated[SearchConfig, tyro.conf.arg(name="")] = saved,
    ) -> int:
        """Draw a trained model's attention while it reads a text and generates its answer.

        Draws one map in the terminal and writes all of them as a page for a browser: one file,
        which works offline. With --beam above 1 the page has the tree of the search. A decoder
        alone continues the text, an encoder alone fills [MASK] in it.

        Args:
            text: What the model reads; quote a text with spaces.
            answer: Use this answer instead of the model's own; for [MASK], a token for each.
            output: Files to write: .html (the page), .png, .svg or .pdf (a figure), .txt. Unset:
                attention.html in the run's folder; for a model that is in no run, here.
            kind: Kind of attention to draw; unset: the last that the model has.
            layer: Layer to draw, from 1; unset: the last in the terminal, all in a figure.
            head: Head to draw, from 1; unset: the mean in the terminal, all in a figure.
            lang: Language of the page; unset: that of the browser. The page has a switch, too.
            open: Open the page in the browser.
            accept_changes: Take a model whose files were changed after it was saved.
        """
        try:
            for path in output:
                drawable(path)
        except UsageError as error:
            raise UsageError(f"{error}; --answer gives the model an answer") from None
        if trained is None or not text:
            raise UsageError(USE)
        if search != saved and not trained.generates:
            raise UsageError("this model fills [MASK] without a search: leave out its options")
        if open and not any(drawable(path) == "page" for path in output):
            raise UsageError("--open shows a page, but --output names no .html file; add one")
        return _view(trained, text, answer, output, (kind, layer, head), search, lang, open)

    return parse(view, f"view {name or 'MODEL'}", rest, lists=["--output"])


def _page(model: Path) -> Path:
    """Return where a model's page goes: into its run, or here where there is none to write to."""
    run = find_model(model).parent
    return run / PAGE if (run / "config.toml").is_file() and os.access(run, os.W_OK) else PAGE


def _view(
    trained: Task,
    text: str,
    answer: str | None,
    output: tuple[Path, ...],
    which: tuple[Literal["encoder", "decoder", "cross"] | None, int | None, int | None],
    search: SearchConfig,
    language: Language | None,
    shown: bool,
) -> int:
    picture = attention(trained, text, answer, search=search)
    # Files before the drawing, whose output may be closed; pages first: a drawing may be refused.
    ordered = sorted(output, key=lambda path: drawable(path) != "page")
    for path in ordered:
        picture.save(path, *which, language=language)
    console = Output()
    drawing = picture.terminal(*which, width=console.width)
    for note in picture.record.notes:
        print(f"pellucid: {note.en}", file=sys.stderr)
    written = "\n".join(f"wrote {path}" for path in output)
    drawn = f"{picture.record.title}\n\n{drawing}\n\n{written}"
    console.print(drawn, markup=False, soft_wrap=True)
    if shown:
        webbrowser.open(ordered[0].resolve().as_uri())
    return 0

"""`pellucid view MODEL TEXT`: draw the attention of one sentence."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pellucid.cli.console import Output
from pellucid.cli.options import refuse_repeated
from pellucid.core.errors import UsageError
from pellucid.generation import SearchConfig
from pellucid.pipelines import MaskedLMPipeline, Pipeline
from pellucid.pipelines.folder import load_any
from pellucid.view import attention
from pellucid.view.page import Language
from pellucid.view.picture import drawable

USE = 'which model, and what text? Run `pellucid view MODEL "TEXT"`'


def run(arguments: list[str]) -> int:
    """Run the command; the model, named first, gives the search its defaults."""
    named = bool(arguments) and not arguments[0].startswith("-")
    if not arguments:
        raise UsageError(USE)
    refuse_repeated(arguments, "--save")
    trained = load_any(Path(arguments[0])) if named else None
    saved = SearchConfig()
    if trained is not None and not isinstance(trained, MaskedLMPipeline):
        saved = trained.search

    def view(
        text: tyro.conf.Positional[str] = "",
        /,
        *,
        output: str | None = None,
        save: tuple[Path, ...] = (Path("attention.html"),),
        kind: Literal["encoder", "decoder", "cross"] | None = None,
        layer: int | None = None,
        head: int | None = None,
        lang: Language | None = None,
        open: bool = False,
        search: Annotated[SearchConfig, tyro.conf.arg(name="")] = saved,
    ) -> int:
        """Draw a trained model's attention while it reads a text and generates its answer.

        Draws one map here and writes a page for a browser: one file, which works offline and can be
        sent by mail. With --beam above 1 the page has a tree of the search. A causal language model
        continues the text, a masked one fills [MASK] in it.

        Args:
            text: What to read; quote a text that holds spaces.
            output: The answer to draw, instead of the model's own; one token for each [MASK].
            save: Files to write: .html (the page), .png, .svg or .pdf (a figure), .txt.
            kind: Draw this kind of attention rather than the last that the model has.
            layer: Draw this layer, counted from 1; else the last here, and all in a figure.
            head: Draw this head, counted from 1; else the mean here, and all in a figure.
            lang: Language of the page; else that of the browser. The page has a switch, too.
            open: Open the page in the browser.
        """
        for path in save:
            drawable(path)
        if trained is None or not text:
            raise UsageError(USE)
        if open and not any(drawable(path) == "page" for path in save):
            raise UsageError("--open shows a page, but --save names no .html file; add one")
        return _view(trained, text, output, save, (kind, layer, head), search, lang, open)

    name = arguments[0] if named else "MODEL"
    return tyro.cli(view, prog=f"pellucid view {name}", args=arguments[1 if named else 0 :])


def _view(
    trained: Pipeline,
    text: str,
    output: str | None,
    save: tuple[Path, ...],
    which: tuple[Literal["encoder", "decoder", "cross"] | None, int | None, int | None],
    search: SearchConfig,
    language: Language | None,
    shown: bool,
) -> int:
    picture = attention(trained, text, output, search=search)
    # Files before the terminal's drawing, pages first: a figure may be refused.
    ordered = sorted(save, key=lambda path: drawable(path) != "page")
    for path in ordered:
        picture.save(path, *which, language=language)
    console = Output()
    drawing = picture.terminal(*which, width=console.width)
    for note in picture.record.notes:
        print(f"pellucid: {note.en}", file=sys.stderr)
    wrote = "\n".join(f"wrote {path}" for path in save)
    said = f"{picture.record.title}\n\n{drawing}\n\n{wrote}"
    console.print(said, markup=False, soft_wrap=True)
    if shown:
        webbrowser.open(ordered[0].resolve().as_uri())
    return 0

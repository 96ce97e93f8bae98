"""`pellucid view MODEL TEXT`: what attention did with one sentence, drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pellucid.cli.console import Output
from pellucid.cli.options import refuse_repeated
from pellucid.core.errors import UsageError
from pellucid.families.folder import load_model
from pellucid.generation import SearchConfig
from pellucid.pipelines import Pipeline
from pellucid.view import attention
from pellucid.view.picture import drawable

USE = 'which model, and what text? Say `pellucid view MODEL "TEXT"`'


def run(arguments: list[str]) -> int:
    """Run the verb: the model named first gives the search its defaults."""
    named = bool(arguments) and not arguments[0].startswith("-")
    if not arguments:
        raise UsageError(USE)
    refuse_repeated(arguments, "--save")
    trained = load_model(Path(arguments[0])) if named else None
    saved = getattr(trained, "search", SearchConfig())

    def view(
        text: tyro.conf.Positional[str] = "",
        /,
        *,
        output: str | None = None,
        save: tuple[Path, ...] = (Path("attention.html"),),
        kind: Literal["encoder", "decoder", "cross"] | None = None,
        layer: int | None = None,
        head: int | None = None,
        search: Annotated[SearchConfig, tyro.conf.arg(name="")] = saved,
    ) -> int:
        """Look at a trained model's attention while it reads a text and says its answer.

        Draws one map here and writes the whole as a page for a browser: one file, which works
        offline and can be sent by mail. A --beam above 1 gives the page a tree of the search. A
        decoder alone continues the text, an encoder alone fills [MASK] in it.

        Args:
            text: What to read; quote a text that holds spaces.
            output: What to say, instead of the model's own answer; a token for each [MASK].
            save: Files to write: .html (the page), .png, .svg or .pdf (a figure), .txt.
            kind: Draw this kind of attention rather than the last that the model has.
            layer: Draw this layer, counted from 1; else the last here, and all in a figure.
            head: Draw this head, counted from 1; else the mean here, and all in a figure.
        """
        for path in save:
            drawable(path)
        if trained is None or not text:
            raise UsageError(USE)
        return _view(trained, text, output, save, (kind, layer, head), search)

    name = arguments[0] if named else "MODEL"
    return tyro.cli(view, prog=f"pellucid view {name}", args=arguments[1 if named else 0 :])


def _view(
    trained: Pipeline,
    text: str,
    output: str | None,
    save: tuple[Path, ...],
    which: tuple[Literal["encoder", "decoder", "cross"] | None, int | None, int | None],
    search: SearchConfig,
) -> int:
    picture = attention(trained, text, output, search=search)
    # Files first, for nobody may read the rest; pages first of all, for a drawing may be refused.
    for path in sorted(save, key=lambda path: drawable(path) != "page"):
        picture.save(path, *which)
    console = Output()
    drawing = picture.terminal(*which, width=console.width)
    for note in picture.record.notes:
        print(f"pellucid: {note}", file=sys.stderr)
    wrote = "\n".join(f"wrote {path}" for path in save)
    said = f"{picture.record.title}\n\n{drawing}\n\n{wrote}"
    console.print(said, markup=False, soft_wrap=True)
    return 0

"""`pellucid view MODEL TEXT`: draw a model's attention while it reads a text."""

import os
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import printed_language, tr, warn
from pellucid.apps.cli.options import Flat, accepts_changes, named, parse
from pellucid.apps.view import attention
from pellucid.apps.view.film import film_page, film_text, frames
from pellucid.apps.view.picture import drawable
from pellucid.apps.view.record import Record
from pellucid.apps.view.runnable import runnable
from pellucid.core.errors import UsageError
from pellucid.data.tokenizers import Tokenizer
from pellucid.generation import SearchConfig
from pellucid.models.walk import UnsupportedError
from pellucid.system.files import write_atomically
from pellucid.system.language import Language, plural
from pellucid.tasks import GenerationTask, Task
from pellucid.tasks.folder import find_model, load_model

USE = 'which model, and what text? Use `pellucid view MODEL "TEXT"`'
PAGE, FILM_PAGE = Path("attention.html"), "film.html"


def run(arguments: list[str]) -> int:
    """Run `pellucid view` with its arguments; return the exit code.

    The model, its first argument, gives the defaults of the search.
    """
    name, rest = named(arguments, USE)
    folder = Path(name or "")
    filmed = name is not None and bool(frames(folder))
    trained = None
    if name is not None and (not filmed or (folder / "model").is_dir()):
        trained = load_model(folder, accepts_changes(rest))
    saved = getattr(trained, "search", SearchConfig())
    page = _page(folder) if trained is not None else PAGE

    def view(
        text: str = "",
        /,
        *,
        answer: str | None = None,
        output: tuple[Path, ...] = (page,),
        with_: Annotated[Path | None, tyro.conf.arg(name="with")] = None,
        with_text: str | None = None,
        kind: Literal["encoder", "decoder", "cross"] | None = None,
        layer: int | None = None,
        head: int | None = None,
        lang: Language | None = None,
        run: bool = True,
        open: bool = False,
        accept_changes: bool = False,  # was read above, with the model
        search: Flat[SearchConfig] = saved,
    ) -> int:
        """Draw a trained model's attention while it reads a text and generates its answer.

        Draws one map in the terminal and writes all of them as a page for a browser: one file,
        which works offline. With --beam above 1 the page has the tree of the search. A decoder
        alone continues the text, an encoder alone fills [MASK] in it or labels it. Without a text:
        the page of a run's film (`pellucid train --film`), while it trains and after.

        Args:
            text: What the model reads; quote a text with spaces.
            answer: Use this answer instead of the model's own; for [MASK], a token for each.
            output: Files to write: .html (the page), .png, .svg or .pdf (a figure), .txt. Unset:
                attention.html in the run's folder, film.html for a film; for a model that is in no
                run, here.
            with_: Another model, whose maps the page shows beside this one's, under one cursor; it
                is given this model's answer.
            with_text: Another text to compare with, in this model or that of --with.
            kind: Kind of attention to draw; unset: the last that the model has.
            layer: Layer to draw, from 1; unset: the last in the terminal, all in a figure.
            head: Head to draw, from 1; unset: the mean in the terminal, all in a figure.
            lang: Language of the page; unset: that of the browser. The page has a switch, too.
            run: Put the model into the page, where it reads what you type and can be taken apart,
                if it has at most 4 million parameters.
            open: Open the page in the browser.
            accept_changes: Take a model whose files were changed after it was saved.
        """
        try:
            pages = [path for path in output if drawable(path) == "page"]
        except UsageError as error:
            raise UsageError(f"{error}; --answer gives the model an answer") from None
        if filmed and not text:
            given = (answer, with_, with_text, kind, layer, head)
            if any(one is not None for one in given) or search != saved:
                raise UsageError(
                    "a film has its text and answer: leave all but --output, "
                    "--lang, --run and --open out, or give a text"
                )
            if len(pages) < len(output):
                raise UsageError("a film is a page, .html; give a text for a picture of it")
            pages = [folder / FILM_PAGE] if output == (page,) else pages
            model = _model(trained, film_text(folder)) if trained is not None and run else None
            content = film_page(folder, lang, model).encode("utf-8")
            for path in pages:
                write_atomically(path, content)
            steps = len(frames(folder))
            size = f"{steps} {plural(steps, 'step')} of the training, "
            return shown(pages, pages, f"{size}{len(content) / 1e6:.1f} MB", open)
        if filmed:
            find_model(folder)  # raises while the run has no model yet
        if trained is None or not text:
            raise UsageError(USE)
        if search != saved and not trained.generates:
            raise UsageError("this model answers without a search: leave out its options")
        if open and not pages:
            raise UsageError("--open shows a page, but --output names no .html file; add one")
        picture = attention(trained, text, answer, search=search)
        if with_ is not None or with_text is not None:
            other = trained if with_ is None else load_model(with_, accept_changes)
            # The same text has the same answer in both, so that their rows are of the same tokens.
            same: str | Sequence[int] | None = answer
            if with_text is not None:
                same = None
            elif answer is None:
                same = _own_answer(picture.record, trained, other)
            compared = attention(
                other,
                text if with_text is None else with_text,
                same,
                search=search if with_ is None else None,
                ends=answer is not None or picture.record.ended,
            )
            picture = picture.beside(compared, (name or "", "" if with_ is None else str(with_)))
        model = _model(trained, text) if run and pages else None
        picture = replace(picture, model=model)
        # Files before the drawing, whose output may be closed; pages first: a drawing may be
        # refused.
        for path in sorted(output, key=lambda path: path not in pages):
            picture.save(path, kind, layer, head, language=lang)
        drawing = picture.terminal(kind, layer, head, width=Output().width)
        for note in picture.record.notes:
            warn(note.to(printed_language()))
        Output().say(f"{picture.record.title}\n\n{drawing}\n")
        more = ""
        if model is not None:
            size = f"{pages[0].stat().st_size / 1e6:.1f} MB"
            more = tr("The model runs in the page ({}); --no-run leaves it out.").format(size)
        return shown(output, pages, more, open)

    return parse(view, f"view {name or 'MODEL'}", rest)


def _own_answer(record: Record, trained: Task, other: Task) -> str | Sequence[int] | None:
    """Return a model's answer in a form that another model can read.

    It is its tokens if both have the same tokenizer, else its text.
    """
    mine, theirs = trained.target, other.target
    if (
        isinstance(mine, Tokenizer)
        and isinstance(theirs, Tokenizer)
        and mine.to_json() == theirs.to_json()
    ):
        return record.answer
    encode = trained.answer_ids if isinstance(trained, GenerationTask) else mine.encode
    if record.answer is not None and encode(record.own) != list(record.answer):
        warn("the other model may be shown another answer: this one's text is of other tokens")
    return record.own or None


def shown(written: Sequence[Path], pages: Sequence[Path], more: str, open: bool) -> int:
    """Print the paths that were written, and open the page if asked to."""
    wrote = [tr("wrote {}").format(path) for path in written]
    Output().say("\n".join([*wrote, *filter(None, [more])]))
    if open:
        webbrowser.open(pages[0].resolve().as_uri())
    return 0


def _page(model: Path) -> Path:
    """Return the path of a model's page: in its run folder if possible, else here."""
    run = find_model(model).parent
    return run / PAGE if (run / "config.toml").is_file() and os.access(run, os.W_OK) else PAGE


def _model(trained: Task, text: str) -> dict[str, Any] | None:
    """Describe a model for the page; print the reason if it cannot run there."""
    try:
        return runnable(trained, text)
    except UnsupportedError as error:
        warn(f"the page shows this text only: {error}")
        return None

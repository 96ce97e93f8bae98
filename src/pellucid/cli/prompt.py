"""A conversation at a terminal: history and editing, and answers that appear as they are made."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from pellucid.cli.answers import obstacle, report_unknown, written
from pellucid.generation import Decodes
from pellucid.pipelines.base import GenerationPipeline


def typed() -> Iterator[str]:
    """Yield what is typed at a prompt, without spaces around it, until its end or Ctrl-C.

    What is not UTF-8 is asked for again.
    """
    with contextlib.suppress(ImportError):  # absent on Windows; editing is then the terminal's
        import readline  # noqa: F401 - importing it gives `input` history and editing

    while True:
        try:
            text = input("> ").strip()
            text.encode("utf-8")  # in some locales Python lets other bytes pass, as surrogates
        except (EOFError, KeyboardInterrupt):
            print()
            return
        except (UnicodeDecodeError, UnicodeEncodeError) as fault:
            print(f"That is not {fault.encoding.upper()}; type it again.")
        else:
            yield text


def converse(trained: GenerationPipeline, scores: bool = False) -> int:
    """Ask at a prompt until the end of input; Ctrl-C ends an answer, or the conversation."""
    print("Type a text and press Enter; Ctrl-D ends.")
    speaker = functools.cache(trained.speaker)  # made ready at the first answer, for all
    number = 0  # a text asked twice is not drawn the same answer twice
    for text in typed():
        if not text:
            continue
        if (fault := obstacle(trained, text)) is not None:
            print(f"That is {fault}.")
            continue
        report_unknown(trained, text, "that text")
        with contextlib.suppress(KeyboardInterrupt):
            _say(trained, text, number, scores, speaker)
        number += 1
    return 0


def _say(
    trained: GenerationPipeline,
    text: str,
    number: int,
    scores: bool,
    speaker: Callable[[], Decodes],
) -> None:
    searched = trained.sampling is None and trained.search.beam > 1
    if scores or searched:  # only the end of the search says which answer it is
        print(written(trained.answers([text], [number], speaker)[0], scores))
        return
    try:
        for piece in trained.stream(text, number, speaker):
            print(piece.replace("\n", " "), end="", flush=True)
    finally:
        print()

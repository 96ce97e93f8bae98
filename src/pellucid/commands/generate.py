"""`pellucid generate MODEL`: text in, text out: arguments, lines on standard input, or a prompt."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from pellucid.decoding import SearchConfig
from pellucid.errors import UsageError, UserError
from pellucid.model_folder import load_model
from pellucid.trained import Answer, Trained

LINES_AT_ONCE = 64


def run(arguments: list[str]) -> int:
    """Run the verb: the model named first gives the search its defaults."""
    named = bool(arguments) and not arguments[0].startswith("-")
    if not named and not {"-h", "--help"} & set(arguments):
        raise UsageError("which model? Say `pellucid generate MODEL [TEXT ...]`")
    trained = load_model(Path(arguments[0])) if named else None
    saved = trained.search if trained else SearchConfig()

    def generate(
        text: tyro.conf.Positional[tuple[str, ...]] = (),
        /,
        *,
        search: Annotated[SearchConfig, tyro.conf.arg(name="")] = saved,
        scores: bool = False,
    ) -> int:
        """Give a trained model (its folder, or its run's) text and print its answers.

        One line for each text, in order; several answers to one are separated by tabs. Without
        TEXT, lines are read from standard input; at a terminal a prompt opens. The defaults are
        those saved with the model.

        Args:
            text: What to answer; quote a text that holds spaces.
            scores: Put each answer's log-probability before it.
        """
        assert trained is not None
        return _generate(replace(trained, search=search), text, scores)

    name = arguments[0] if named else "MODEL"
    return tyro.cli(generate, prog=f"pellucid generate {name}", args=arguments[1 if named else 0 :])


def _generate(trained: Trained, texts: tuple[str, ...], scores: bool) -> int:
    if texts:
        return _answer_each(trained, enumerate(texts, 1), "text", scores, at_once=len(texts))
    if sys.stdin.isatty():
        return _converse(trained, scores)
    return _answer_each(trained, _lines(), "line", scores, at_once=LINES_AT_ONCE)


def _answer_each(
    trained: Trained,
    texts: Iterable[tuple[int, str | UserError]],
    unit: str,
    scores: bool,
    at_once: int,
) -> int:
    """Answer numbered texts, a few at once so that a pipe of any length runs in constant memory.

    A text that cannot be answered gives an empty line and a message; the others go on.
    """
    failed = False
    stream = iter(texts)
    while some := list(itertools.islice(stream, at_once)):
        asked = []
        for number, text in some:
            fault = text if isinstance(text, UserError) else obstacle(trained, text)
            if fault is not None:
                print(f"pellucid: {unit} {number}: {fault}", file=sys.stderr)
            failed = failed or fault is not None
            asked.append("" if isinstance(text, UserError) or fault is not None else text)
            _report_unknown(trained, asked[-1], f"{unit} {number}")
        for answers in trained.answers(asked):
            print(_written(answers, scores))
        sys.stdout.flush()
    return 1 if failed else 0


def obstacle(trained: Trained, text: str) -> UserError | None:
    """Return why a text cannot be answered, or None."""
    tokens = len(trained.source.encode(text))
    if tokens > trained.longest:
        return UserError(
            f"{tokens} tokens, more than the {trained.longest} that this model can read; split it"
        )
    return None


def _report_unknown(trained: Trained, text: str, where: str) -> None:
    if unknown := trained.source.unknown_characters([text]):
        print(
            f"pellucid: {where}: never seen in training: {' '.join(map(repr, unknown))}",
            file=sys.stderr,
        )


def _lines() -> Iterator[tuple[int, str | UserError]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield number, line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield number, UserError(f"not UTF-8 (byte 0x{line[error.start]:02x}); line left out")


def _converse(trained: Trained, scores: bool) -> int:
    """Ask at a prompt until the end of input."""
    with contextlib.suppress(ImportError):  # absent on Windows; editing is then the terminal's
        import readline  # noqa: F401 - importing it gives `input` history and editing

    print("Type a text and press Enter; Ctrl-D ends.")
    while True:
        try:
            text = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if not text:
            continue
        if (fault := obstacle(trained, text)) is not None:
            print(f"That is {fault}.")
            continue
        _report_unknown(trained, text, "that text")
        print(_written(trained.answers([text])[0], scores))


def _written(answers: list[Answer], scores: bool) -> str:
    """Write a text's answers on one line."""
    return "\t".join(
        (f"{answer.log_p:.3f}\t" if scores else "") + answer.text.replace("\n", " ")
        for answer in answers
    )

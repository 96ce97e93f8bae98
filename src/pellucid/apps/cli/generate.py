"""`pellucid generate MODEL`: answers to texts: arguments, a file, a pipe, or a prompt."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from pellucid.apps.cli.answers import answer_parts, converse, print_answers, split, typed
from pellucid.apps.cli.language import tr
from pellucid.apps.cli.lines import Line, given, standard_input, windows
from pellucid.apps.cli.options import SamplingOptions, named_model, parse
from pellucid.core.device import CPU, place
from pellucid.core.errors import UsageError, UserError
from pellucid.generation import SearchConfig
from pellucid.tasks import Blank, ClassifierTask, Guess, MaskedLMTask


def run(arguments: list[str]) -> int:
    """Run the command: the model named first decides which options there are, and defaults."""
    name, rest, trained = named_model(
        arguments, "which model? Use `pellucid generate MODEL [TEXT ...]`"
    )
    fills = trained is not None and not trained.generates
    command = _fill(trained) if fills else _generate(trained)
    return parse(command, f"generate {name or 'MODEL'}", rest)


def _generate(trained: Any) -> Callable[..., int]:
    """Return the command for a model that generates; its help alone if there is no model."""
    saved = trained.search if trained else SearchConfig()

    def generate(
        text: tuple[str, ...] = (),
        /,
        *,
        search: Annotated[SearchConfig, tyro.conf.arg(name="")] = saved,
        sampling: Annotated[SamplingOptions, tyro.conf.arg(name="")] = SamplingOptions(),  # noqa: B008
        file: Path | None = None,
        prefix: str = "",
        scores: bool = False,
        device: str = CPU,
        json: bool = False,
        strict: bool = False,
        accept_changes: bool = False,  # was read above, with the model
    ) -> int:
        """Answer texts with a trained model, given as its folder or its run folder.

        An encoder-decoder answers, a decoder continues the text, an encoder fills [MASK] in it (the
        help with a MODEL shows its own options and the defaults saved with it). One line for each
        text, in order; several answers to a text are separated by tabs. Without TEXT, lines are
        read from standard input; at a terminal a prompt opens.

        Any of --temperature, --top-k, --top-p, --min-p and --seed samples an answer instead of
        searching for the likeliest.

        A text that cannot be answered gives an empty line (with --json its error) and a message;
        the others are answered, and the exit code is 1. With --strict it is the last.

        Args:
            text: What to answer; quote a text with spaces.
            file: Answer the lines of this file.
            prefix: What every answer must begin with; an empty text still has an empty answer.
            scores: Print each answer's log-probability before it.
            device: Where to compute: cpu; with PyTorch cuda, cuda:1, or torch:DEVICE.
            json: Print one JSON object a line: tokens, scores and alignment.
            strict: End at the first text that cannot be answered.
            accept_changes: Take a model whose files were changed after it was saved.
        """
        place(trained.model, device)
        asked = replace(trained, search=search, sampling=sampling.config(search), prefix=prefix)
        if _at_prompt(text, file, json):
            return converse(asked, scores)
        decoder = functools.cache(asked.decoder)  # compiled at the first answer, for all
        unit, lines = _lines(text, file)
        return print_answers(
            lines,
            unit,
            functools.partial(split, asked),
            lambda ready: answer_parts(asked, ready, decoder, scores=scores, as_json=json),
            as_json=json,
            strict=strict,
        )

    return generate


def _at_prompt(texts: tuple[str, ...], file: Path | None, as_json: bool) -> bool:
    return not texts and file is None and sys.stdin.isatty() and not as_json


def _lines(texts: tuple[str, ...], file: Path | None) -> tuple[str, Iterable[Iterable[Line]]]:
    """Return what a text is called, and the texts in windows: those given, a file's, or a pipe's.

    Raises `UserError` if the file cannot be read.
    """
    if texts:
        if file is not None:
            raise UsageError("give texts or --file, not both")
        return "text", [given(texts)]
    if file is None:
        return "line", windows(standard_input())
    try:
        return "line", windows(file.open("rb"))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None


def _fill(trained: MaskedLMTask | ClassifierTask) -> Callable[..., int]:
    """Return the command for a model that fills [MASK], or labels texts."""

    def generate(
        text: tuple[str, ...] = (),
        /,
        *,
        file: Path | None = None,
        best: int = 5,
        device: str = CPU,
        json: bool = False,
        strict: bool = False,
        accept_changes: bool = False,  # was read above, with the model
    ) -> int:
        """Fill each [MASK] of a text, or label it: the likeliest tokens, with probabilities.

        A mask is one token: with byte-level pieces often a word and the space before it. One line
        for each mask, or label, its guesses separated by tabs. Without TEXT, lines are read from
        standard input; at a terminal a prompt opens.

        A text that cannot be filled gives an empty line (with --json its error) and a message; the
        others are filled, and the exit code is 1. With --strict it is the last.

        Args:
            text: Text, with [MASK] where a token is to be filled in; quote a text with spaces.
            file: Fill the lines of this file.
            best: How many tokens or labels to print.
            device: Where to compute: cpu; with PyTorch cuda, cuda:1, or torch:DEVICE.
            json: Print one JSON object for each text: the tokens of each mask, and the text filled.
            strict: End at the first text that cannot be filled.
            accept_changes: Take a model whose files were changed after it was saved.
        """
        place(trained.model, device)
        if best < 1:
            raise UsageError(f"--best must be at least 1, got {best}")
        if _at_prompt(text, file, json):
            return _fill_at_prompt(trained, best)

        def fill(text: str, where: str) -> list[Blank]:
            return trained.guesses(text, best) if text or json else []

        unit, lines = _lines(text, file)
        key = "labels" if trained.kind == "label" else "masks"
        written = functools.partial(_record, key) if json else _written
        one_by_one = ([line] for window in lines for line in window)
        return print_answers(
            one_by_one,
            unit,
            fill,
            lambda ready: map(written, ready.values()),
            as_json=json,
            strict=strict,
        )

    return generate


def _record(key: str, blanks: list[Blank]) -> dict[str, Any]:
    return {
        key: [
            [{"token": g.token, "p": g.p and round(g.p, 6), "text": g.text} for g in blank]
            for blank in blanks
        ]
    }


def _written(blanks: list[Blank]) -> str:
    """Write each mask's tokens on a line of their own, each with its probability if it has one."""

    def written(guess: Guess) -> str:
        token = " ".join(guess.token.split()) or repr(guess.token)
        return token if guess.p is None else f"{token} {guess.p:.1%}"

    return "\n".join("\t".join(map(written, blank)) for blank in blanks)


def _fill_at_prompt(trained: MaskedLMTask | ClassifierTask, best: int) -> int:
    for text in typed(tr("Type a text with [MASK] in it and press Enter; Ctrl-D ends.")):
        try:
            print(_written(trained.guesses(text, best)))
        except UserError as error:
            print(f"That cannot be filled: {error}.")
    return 0

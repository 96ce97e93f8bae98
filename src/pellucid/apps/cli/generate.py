"""`pellucid generate MODEL`: answers to texts: arguments, a file, a pipe, or a prompt."""

from __future__ import annotations

import functools
import json as json_format
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import tyro

from pellucid.apps.cli.answers import answer_window, converse, typed
from pellucid.apps.cli.language import tr
from pellucid.apps.cli.lines import Line, decoded, given, standard_input, windows
from pellucid.apps.cli.options import SamplingOptions, accepts_changes, asks_help, parse, split_name
from pellucid.core.device import CPU, place
from pellucid.core.errors import UsageError, UserError
from pellucid.generation import SearchConfig
from pellucid.tasks import Blank, GenerationTask, MaskedLMTask
from pellucid.tasks.folder import load_model


def run(arguments: list[str]) -> int:
    """Run the command: the model named first decides which options there are, and defaults."""
    name, rest = split_name(arguments)
    if name is None and not asks_help(rest):
        raise UsageError("which model? Use `pellucid generate MODEL [TEXT ...]`")
    if name is None:
        return parse(_generate(None), "generate MODEL", rest)
    trained: Any = load_model(Path(name), accepts_changes(rest))
    command = _generate if trained.generates else _fill
    return parse(command(trained), f"generate {name}", rest)


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
        if not text and file is None and sys.stdin.isatty() and not json:
            return converse(asked, scores)
        return _answer(asked, text, file, scores=scores, as_json=json, strict=strict)

    return generate


def _answer(
    trained: GenerationTask,
    texts: tuple[str, ...],
    file: Path | None,
    *,
    scores: bool,
    as_json: bool,
    strict: bool,
) -> int:
    if texts and file is not None:
        raise UsageError("give texts or --file, not both")
    unit, batches = ("text", [given(texts)]) if texts else ("line", windows(_lines_of(file)))
    decoder = functools.cache(trained.decoder)  # compiled at the first answer, for all
    failed = False
    for window in batches:
        failed |= not answer_window(
            trained, window, unit, scores=scores, as_json=as_json, strict=strict, decoder=decoder
        )
        if strict and failed:
            break
    return int(failed)


def _lines_of(file: Path | None) -> BinaryIO:
    """Open a file, or standard input. Raises `UserError` if it cannot be read."""
    if file is None:
        return standard_input()
    try:
        return file.open("rb")
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None


def _fill(trained: MaskedLMTask) -> Callable[..., int]:
    """Return the command for a model that fills [MASK]."""

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
        """Fill each [MASK] of a text: the likeliest tokens, with probabilities.

        A mask is one token: with byte-level pieces often a word and the space before it. One line
        for each mask, its tokens separated by tabs. Without TEXT, lines are read from standard
        input; at a terminal a prompt opens.

        A text that cannot be filled gives an empty line (with --json its error) and a message; the
        others are filled, and the exit code is 1. With --strict it is the last.

        Args:
            text: Text with [MASK] in it; quote a text with spaces.
            file: Fill the lines of this file.
            best: How many tokens to print for each mask.
            device: Where to compute: cpu; with PyTorch cuda, cuda:1, or torch:DEVICE.
            json: Print one JSON object for each text: the tokens of each mask, and the text filled.
            strict: End at the first text that cannot be filled.
            accept_changes: Take a model whose files were changed after it was saved.
        """
        place(trained.model, device)
        if best < 1:
            raise UsageError(f"--best must be at least 1, got {best}")
        if text:
            if file is not None:
                raise UsageError("give texts or --file, not both")
            return _fill_texts(trained, given(text), "text", best, json, strict)
        if file is None and sys.stdin.isatty() and not json:
            return _fill_at_prompt(trained, best)
        with _lines_of(file) as stream:
            return _fill_texts(trained, decoded(stream), "line", best, json, strict)

    return generate


def _fill_texts(
    trained: MaskedLMTask,
    lines: Iterable[Line],
    unit: str,
    best: int,
    as_json: bool,
    strict: bool,
) -> int:
    """Print the likeliest tokens for the masks of numbered texts; return the exit code."""
    failed = False
    for number, text in lines:
        blanks: list[Blank] = []
        failure: UserError | None = None
        try:
            if isinstance(text, UserError):
                raise text
            if text or as_json:
                blanks = trained.guesses(text, best)
        except UserError as error:
            failed, failure = True, error
            print(f"pellucid: {unit} {number}: {error}", file=sys.stderr)
        if as_json:
            print(json_format.dumps(_record(number, text, blanks, failure), ensure_ascii=False))
        else:
            print("\n".join(map(_written, blanks)))
        sys.stdout.flush()
        if strict and failed:
            break
    return int(failed)


def _record(
    number: int, text: str | UserError, blanks: list[Blank], failure: UserError | None
) -> dict[str, Any]:
    record: dict[str, Any] = {"number": number, "source": text if isinstance(text, str) else None}
    if failure is not None:
        return {**record, "error": str(failure)}
    guesses = [
        [{"token": g.token, "p": round(g.p, 6), "text": g.text} for g in blank] for blank in blanks
    ]
    return {**record, "masks": guesses}


def _written(blank: Blank) -> str:
    """Write a mask's tokens on one line, each with its probability."""
    words = (" ".join(guess.token.split()) or repr(guess.token) for guess in blank)
    return "\t".join(f"{word} {guess.p:.1%}" for word, guess in zip(words, blank, strict=True))


def _fill_at_prompt(trained: MaskedLMTask, best: int) -> int:
    print(tr("Type a text with [MASK] in it and press Enter; Ctrl-D ends."))
    for text in typed():
        try:
            for blank in trained.guesses(text, best) if text else ():
                print(_written(blank))
        except UserError as error:
            print(f"That cannot be filled: {error}.")
    return 0

"""`pellucid generate MODEL` where the model is an encoder alone: what may stand for [MASK]."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tyro

from pellucid.cli.lines import Line, decoded, given, standard_input
from pellucid.cli.prompt import typed
from pellucid.core.errors import UsageError, UserError
from pellucid.pipelines import Blank, MaskedLMPipeline


def fill_verb(trained: MaskedLMPipeline, arguments: list[str]) -> int:
    """Run the verb with a masked model; the first argument names it."""

    def generate(
        text: tyro.conf.Positional[tuple[str, ...]] = (),
        /,
        *,
        file: Path | None = None,
        best: int = 5,
        json: bool = False,
    ) -> int:
        """Say what may stand in each [MASK] of a text, likeliest first, with probabilities.

        A mask stands for one token: with byte-level pieces often a word and the space before it.
        One line for each mask, its tokens separated by tabs. Without TEXT, lines are read from
        standard input; at a terminal a prompt opens.

        Args:
            text: Text with [MASK] in it; quote a text that holds spaces.
            file: Fill the lines of this file.
            best: How many tokens to name for each mask.
            json: Print one JSON object for each text: the tokens of each mask, and it filled.
        """
        if best < 1:
            raise UsageError(f"best must be at least 1, got {best}")
        if text and file is not None:
            raise UsageError("give texts or --file, not both")
        if text:
            return _fill(trained, given(text), "text", best, json)
        if file is not None:
            try:
                stream = file.open("rb")
            except OSError as error:
                raise UserError(f"{file}: cannot be read: {error.strerror}") from None
            with stream:
                return _fill(trained, decoded(stream), "line", best, json)
        if sys.stdin.isatty() and not json:
            return _prompt(trained, best)
        return _fill(trained, decoded(standard_input()), "line", best, json)

    return tyro.cli(generate, prog=f"pellucid generate {arguments[0]}", args=arguments[1:])


def _fill(
    trained: MaskedLMPipeline, lines: Iterable[Line], unit: str, best: int, as_json: bool
) -> int:
    """Print what may stand in the masks of numbered texts; return the exit code.

    An empty text gives an empty line; one that cannot be filled too (with JSON: its error), and a
    message, and the others go on.
    """
    failed = False
    for number, text in lines:
        blanks: list[Blank] = []
        fault: UserError | None = None
        try:
            if isinstance(text, UserError):
                raise text
            if text or as_json:
                blanks = trained.guesses(text, best)
        except UserError as error:
            failed, fault = True, error
            print(f"pellucid: {unit} {number}: {error}", file=sys.stderr)
        if as_json:
            print(json_format.dumps(_record(number, text, blanks, fault), ensure_ascii=False))
        else:
            print("\n".join(map(_written, blanks)))
        sys.stdout.flush()
    return int(failed)


def _record(
    number: int, text: str | UserError, blanks: list[Blank], fault: UserError | None
) -> dict[str, Any]:
    record: dict[str, Any] = {"number": number, "source": text if isinstance(text, str) else None}
    if fault is not None:
        return {**record, "error": str(fault)}
    guesses = [
        [{"token": g.token, "p": round(g.p, 6), "text": g.text} for g in blank] for blank in blanks
    ]
    return {**record, "masks": guesses}


def _written(blank: Blank) -> str:
    """Write a mask's tokens on one line, each with its probability."""
    words = (" ".join(guess.token.split()) or repr(guess.token) for guess in blank)
    return "\t".join(f"{word} {guess.p:.1%}" for word, guess in zip(words, blank, strict=True))


def _prompt(trained: MaskedLMPipeline, best: int) -> int:
    print("Type a text with [MASK] in it and press Enter; Ctrl-D ends.")
    for text in typed():
        try:
            for blank in trained.guesses(text, best) if text else ():
                print(_written(blank))
        except UserError as fault:
            print(f"That cannot be filled: {fault}.")
    return 0

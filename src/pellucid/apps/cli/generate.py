"""`pellucid generate MODEL`: answer texts: arguments, a file, a pipe or a prompt.

Lines of a file or a pipe are read in windows that fit into memory, as they arrive.
"""

import functools
import json as json_format
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pellucid.apps.cli.answers import answer_parts, converse, split, typed
from pellucid.apps.cli.language import PLACE, tr, translated, warn
from pellucid.apps.cli.options import Flat, ModelOptions, SamplingOptions, named_model, parse
from pellucid.core.errors import UsageError, UserError
from pellucid.core.vjp import assigned
from pellucid.data.files import check_utf8
from pellucid.generation import SearchConfig
from pellucid.tasks import Blank, ClassifierTask, Guess, MaskedLMTask

T = TypeVar("T")


def run(arguments: list[str]) -> int:
    """Run `pellucid generate` with its arguments; return the exit code.

    The model, its first argument, determines the options and their defaults.
    """
    name, rest, trained = named_model(
        arguments, "which model? Use `pellucid generate MODEL [TEXT ...]`"
    )
    fills = trained is not None and not trained.generates
    command = _fill(trained) if fills else _generate(trained)
    return parse(command, f"generate {name or 'MODEL'}", rest)


@dataclass(frozen=True)
class Reading(ModelOptions):
    """Options for the source of the texts and the form of the output."""

    file: Path | None = None
    """Answer the lines of this file."""
    json: bool = False
    """Print one JSON object a line: tokens, scores and alignment, or labels."""
    strict: bool = False
    """End at the first text that cannot be answered."""

    def at_prompt(self, texts: tuple[str, ...]) -> bool:
        """Return whether texts are typed at a prompt."""
        return not texts and self.file is None and sys.stdin.isatty() and not self.json

    def answer(
        self,
        texts: tuple[str, ...],
        prepare: Callable[[str], T],
        answer: Callable[[Mapping[int, T]], Iterable[str | dict[str, Any]]],
        one_by_one: bool = False,
    ) -> int:
        """Answer the texts, or the lines of a file or a pipe; return the exit code.

        Answers are printed; the code is 1 if a text cannot be answered. Such a text gives an empty
        line (with JSON: its error) and a message, and the next ones are answered, unless `strict`.

        Args:
            texts: The texts; if there are none, lines are read.
            prepare: Takes a text; raises `UserError` if it has no answer.
            answer: Takes the prepared texts by number; returns a line for each, or its JSON.
            one_by_one: Answer each text by itself, and not those of a window together.
        """
        if texts and self.file is not None:
            raise UsageError("give texts or --file, not both")
        lines: Iterable[Iterable[Line]] = [given(texts)]
        if not texts:
            lines = windows(self.file.open("rb") if self.file else sys.stdin.buffer)
        if one_by_one:
            lines = ([line] for window in lines for line in window)
        unit, failed = tr("text") if texts else tr("line"), False
        for window in lines:
            sources: dict[int, str | None] = {}
            ready: dict[int, T] = {}
            answers: dict[int, str | dict[str, Any]] = {}
            for number, text in window:
                sources[number] = text if isinstance(text, str) else None
                with assigned(PLACE, f"{unit} {number}: "):
                    try:
                        if isinstance(text, UserError):
                            raise text
                        ready[number] = prepare(text)
                    except UserError as error:
                        warn(str(error))
                        failed, answers[number] = True, {"error": str(error)} if self.json else ""
                        if self.strict:
                            break
            answers |= zip(ready, answer(ready), strict=True)
            for number, source in sources.items():
                found = answers[number]
                if not isinstance(found, str):
                    record = {"number": number, "source": source, **found}
                    found = json_format.dumps(record, ensure_ascii=False)
                print(found)
            sys.stdout.flush()
            if self.strict and failed:
                break
        return int(failed)


def _generate(trained: Any) -> Callable[..., int]:
    """Return the command for a model that generates text.

    Without a model, only for its help.
    """
    saved = trained.search if trained else SearchConfig()

    def generate(
        text: tuple[str, ...] = (),
        /,
        *,
        prefix: str = "",
        scores: bool = False,
        reading: Flat[Reading] = Reading(),
        search: Flat[SearchConfig] = saved,
        sampling: Flat[SamplingOptions] = SamplingOptions(),  # noqa: B008
    ) -> int:
        """Answer texts with a trained model, given as its folder or its run folder.

        An encoder-decoder answers, a decoder continues the text, an encoder fills [MASK] in it (the
        help with a MODEL shows its own options and the defaults saved with it). One line for each
        text, in order; several answers to a text are separated by tabs. Without TEXT, lines are
        read from standard input; at a terminal a prompt opens.

        Any of --temperature, --top-k, --top-p, --min-p, --seed and --samples samples an answer
        instead of searching for the likeliest.

        A text that cannot be answered gives an empty line (with --json its error) and a message;
        the others are answered, and the exit code is 1. With --strict the command stops there.

        Args:
            text: What to answer; quote a text with spaces.
            prefix: What every answer must begin with; an empty text still has an empty answer.
            scores: Print each answer's log-probability before it.
        """
        drawn = sampling.config(search, saved)
        asked = replace(reading.placed(trained), search=search, sampling=drawn, prefix=prefix)
        if reading.at_prompt(text):
            return converse(asked, scores)
        decoder = functools.cache(asked.decoder)  # compiled at the first answer, for all
        cut: list[int] = []
        answers = functools.partial(answer_parts, asked, decoder, cut.append, scores, reading.json)
        code = reading.answer(text, functools.partial(split, asked), answers)
        asked.warn_unfinished(sum(cut))  # once for all windows of lines
        return code

    return generate


def _fill(trained: MaskedLMTask | ClassifierTask) -> Callable[..., int]:
    """Return the command for a model that fills [MASK] or labels texts."""

    def generate(
        text: tuple[str, ...] = (),
        /,
        *,
        best: int = 5,
        reading: Flat[Reading] = Reading(),
    ) -> int:
        """Fill each [MASK] of a text, or label it: the likeliest tokens, with probabilities.

        A mask is one token: with byte-level pieces often a word and the space before it. One line
        for each mask, or label, its guesses separated by tabs. Without TEXT, lines are read from
        standard input; at a terminal a prompt opens.

        A text that cannot be answered gives an empty line (with --json its error) and a message;
        the others are answered, and the exit code is 1. With --strict the command stops there.

        Args:
            text: Text, with [MASK] where a token is to be filled in; quote a text with spaces.
            best: How many tokens or labels to print.
        """
        reading.placed(trained)
        if best < 1:
            raise UsageError(f"--best must be at least 1, got {best}")
        if reading.at_prompt(text):
            return _fill_at_prompt(trained, best)

        def fill(text: str) -> list[Blank]:
            return trained.guesses(text, best) if text else []

        key = "labels" if trained.kind == "label" else "masks"
        written = functools.partial(_record, key) if reading.json else _written
        return reading.answer(
            text, fill, lambda ready: map(written, ready.values()), one_by_one=True
        )

    return generate


def _record(key: str, blanks: list[Blank]) -> dict[str, Any]:
    """Describe guesses for JSON."""
    return {
        key: [
            [{"token": g.token, "p": g.p and round(g.p, 6), "text": g.text} for g in blank]
            for blank in blanks
        ]
    }


def _written(blanks: list[Blank]) -> str:
    """Format the guesses for each mask on a line, with their probabilities."""

    def written(guess: Guess) -> str:
        token = " ".join(guess.token.split()) or repr(guess.token)
        return token if guess.p is None else f"{token} {guess.p:.1%}"

    return "\n".join("\t".join(map(written, blank)) for blank in blanks)


def _fill_at_prompt(trained: MaskedLMTask | ClassifierTask, best: int) -> int:
    """Fill masks or label texts at a prompt until the input ends."""
    labels = tr("Type a text and press Enter; Ctrl-D ends.")
    fills = tr("Type a text with [MASK] in it and press Enter; Ctrl-D ends.")
    for text in typed(labels if trained.kind == "label" else fills):
        try:
            print(_written(trained.guesses(text, best)))
        except UserError as error:
            print(translated(f"That cannot be answered: {error}."))
    return 0


WINDOW = 512
CHUNK = 2**16  # bytes that are read at once, at most
LONGEST = 2**24  # bytes of a line; a stream without line ends is refused before memory is full

Line = tuple[int, str | UserError]


def given(texts: Iterable[str]) -> Iterator[Line]:
    """Yield (number from 1, text) of each text; an error for one that is not UTF-8."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
            yield number, text
        except UnicodeEncodeError:  # Python holds such a byte as half of a surrogate pair
            yield number, UserError(f"not UTF-8: {text!a}; left out")


def windows(stream: BinaryIO) -> Iterator[list[Line]]:
    """Yield (number from 1, text) of each line of a stream, in lists that fit memory.

    A list has at most `WINDOW` lines. A line that is not UTF-8 has an error instead of a text. A
    byte order mark before the first line is dropped. Lines are yielded as soon as they arrive, so
    that a program that writes one line and waits for its answer gets it. The stream is closed at
    its end. Raises `UserError` for a line of more than 16 MiB, a NUL byte, and UTF-16.
    """
    number, rest, ended = 0, b"", False
    name = getattr(stream, "name", "the input")
    with stream:
        while not ended:
            chunk = stream.read1(CHUNK)  # type: ignore[attr-defined]
            ended = not chunk
            data = rest + chunk
            check_utf8(data, name, number)
            *lines, rest = data.split(b"\n")
            if ended and rest:
                lines.append(rest)
            if number == 0 and lines:
                lines[0] = lines[0].removeprefix(BOM_UTF8)
            for start in range(0, len(lines), WINDOW):
                yield [
                    (number + i, _text(line))
                    for i, line in enumerate(lines[start : start + WINDOW], start + 1)
                ]
            number += len(lines)
            if len(rest) > LONGEST:
                raise UserError(
                    f"line {number + 1}: more than {LONGEST:,} bytes; expected a text a line"
                )


def _text(line: bytes) -> str | UserError:
    """Decode a line; return an error if it is not UTF-8."""
    try:
        return line.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        return UserError(f"not UTF-8 (byte 0x{line[error.start]:02x}); line left out")

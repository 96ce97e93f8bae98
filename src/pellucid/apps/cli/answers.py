"""From texts to printed answers: lines in windows, or one text at a time at a prompt."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pellucid.apps.cli.language import tr
from pellucid.apps.cli.lines import Line
from pellucid.core.errors import UserError
from pellucid.generation import Decodes
from pellucid.tasks.generation import Answer, GenerationTask, join_answers, piece_numbers


def answer_window(
    trained: GenerationTask,
    window: Sequence[Line],
    unit: str,
    *,
    scores: bool,
    as_json: bool,
    strict: bool = False,
    decoder: Callable[[], Decodes] | None = None,
) -> bool:
    """Print the answers to numbered texts, in order; return whether all were answered.

    A text that is too long is answered in parts, sentence by sentence. One that cannot be answered
    gives an empty line (with JSON: its error) and a message, and the next ones are answered.
    With `strict` they are not. `decoder` returns the compiled model, kept for several windows.
    """
    errors: dict[int, UserError] = {}
    pieces: list[str] = []
    numbers: list[int] = []
    spans: list[slice] = []
    for number, text in window:
        parts: list[str] = []
        try:
            if isinstance(text, UserError):
                raise text
            parts = trained.split_sentences(text)
        except UserError as error:
            errors[number] = error
            print(f"pellucid: {unit} {number}: {error}", file=sys.stderr)
        if len(parts) > 1:
            print(
                f"pellucid: {unit} {number}: long, answered in {len(parts)} parts", file=sys.stderr
            )
        for part in parts:
            print_unknown(trained, part, f"{unit} {number}")
        spans.append(slice(len(pieces), len(pieces) + len(parts)))
        pieces += parts
        numbers += piece_numbers(number - 1, len(parts))
        if strict and errors:
            window = window[: len(spans)]
            break
    answers = trained.generate_answers(pieces, numbers, decoder)
    for (number, text), span in zip(window, spans, strict=True):
        if as_json:
            record: dict[str, Any] = {
                "number": number,
                "source": text if isinstance(text, str) else None,
            }
            if number in errors:
                record["error"] = str(errors[number])
            else:
                record["parts"] = [
                    described(trained, part, some)
                    for part, some in zip(pieces[span], answers[span], strict=True)
                ]
            print(json.dumps(record, ensure_ascii=False))
        else:
            print(written(join_answers(answers[span]), scores))
    sys.stdout.flush()
    return not errors


def described(trained: GenerationTask, text: str, answers: Iterable[Answer]) -> dict[str, Any]:
    """Return a text and its answers for JSON: tokens, scores, and the alignment of each.

    `alignment` has, for each answer token, the index of the source token with the most attention in
    the last decoder layer, mean of heads.
    """
    ids = trained.source.encode(text)
    return {
        "source_tokens": trained.source.tokens(ids),
        "answers": [_answer(trained, ids, answer) for answer in answers],
    }


def _answer(trained: GenerationTask, ids: Sequence[int], answer: Answer) -> dict[str, Any]:
    record = {
        "text": answer.text,
        "log_p": round(answer.log_p, 6),
        "score": round(answer.score, 6),
        "finished": answer.finished,
        "tokens": trained.target.tokens(answer.tokens),
    }
    if not ids:
        return {**record, "token_log_p": [], "alignment": []}
    scores = trained.score(ids, answer.tokens)
    generated = len(answer.tokens) + answer.finished  # the end token, if generated, is the last
    token_log_p = [round(float(x), 6) for x in scores.log_p[:generated]]
    return {**record, "token_log_p": token_log_p, "alignment": scores.alignment}


def print_unknown(trained: GenerationTask, text: str, where: str) -> None:
    """Print on stderr which characters of a text were not in the training data."""
    if unknown := trained.source.unknown([text]):
        print(
            f"pellucid: {where}: not seen in training: {' '.join(map(repr, unknown))}",
            file=sys.stderr,
        )


def written(answers: Sequence[Answer], scores: bool) -> str:
    """Write a text's answers on one line, separated by tabs; tabs inside become blanks."""
    return "\t".join(
        (f"{answer.log_p:.3f}\t" if scores else "")
        + " ".join(answer.text.replace("\t", " ").splitlines())
        for answer in answers
    )


def typed() -> Iterator[str]:
    """Yield what is typed at a prompt, stripped, until its end or Ctrl-C.

    Text that is not UTF-8 has to be typed again.
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
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            print(f"That is not {error.encoding.upper()}; type it again.")
        else:
            yield text


def converse(trained: GenerationTask, scores: bool = False) -> int:
    """Answer at a prompt until the input ends; Ctrl-C ends an answer, or the conversation."""
    print(tr("Type a text and press Enter; Ctrl-D ends."))
    decoder = functools.cache(trained.decoder)  # compiled at the first answer, for all
    number = 0  # the same text again is sampled with other draws
    for text in typed():
        if not text:
            continue
        try:
            trained.check_length(text)
        except UserError as error:
            print(f"That is {error}.")
            continue
        print_unknown(trained, text, "that text")
        with contextlib.suppress(KeyboardInterrupt):
            _print_answer(trained, text, number, scores, decoder)
        number += 1
    return 0


def _print_answer(
    trained: GenerationTask,
    text: str,
    number: int,
    scores: bool,
    decoder: Callable[[], Decodes],
) -> None:
    searched = trained.sampling is None and trained.search.beam > 1
    if scores or searched:  # the answer is known only when the search ends
        print(written(trained.generate_answers([text], [number], decoder)[0], scores))
        return
    try:
        for piece in trained.stream(text, number, decoder):
            print(piece.replace("\n", " "), end="", flush=True)
    finally:
        print()

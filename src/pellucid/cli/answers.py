"""From lines to answers: long ones in pieces, bad ones refused, and how an answer is written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pellucid.cli.lines import Line
from pellucid.core.errors import UserError
from pellucid.generation import Decodes
from pellucid.pipelines import Answer
from pellucid.pipelines.base import GenerationPipeline


class TooLongError(UserError):
    """A text of more tokens than a model can read."""


def answer_window(
    trained: GenerationPipeline,
    window: Sequence[Line],
    unit: str,
    *,
    scores: bool,
    as_json: bool,
    speaker: Callable[[], Decodes] | None = None,
) -> bool:
    """Print the answers to numbered texts, in order; return whether all could be answered.

    A text that is too long is answered in pieces, sentence by sentence. One that cannot be answered
    gives an empty line (with JSON: its error) and a message; the others go on. `speaker` is as in
    `GenerationPipeline.answers`, for windows one after another.
    """
    faults: dict[int, UserError] = {}
    pieces: list[str] = []
    numbers: list[int] = []
    spans: list[slice] = []
    for number, text in window:
        parts = _parts(trained, text)
        if isinstance(parts, UserError):
            faults[number], parts = parts, []
            print(f"pellucid: {unit} {number}: {faults[number]}", file=sys.stderr)
        elif len(parts) > 1:
            print(
                f"pellucid: {unit} {number}: long, answered in {len(parts)} parts", file=sys.stderr
            )
        for part in parts:
            report_unknown(trained, part, f"{unit} {number}")
        spans.append(slice(len(pieces), len(pieces) + len(parts)))
        pieces += parts
        # Each piece of a text is drawn by a number of its own; a text's first by the text's.
        numbers += [(number - 1 + place * 2**24) % 2**32 for place in range(len(parts))]
    answers = trained.answers(pieces, numbers, speaker)
    for (number, text), span in zip(window, spans, strict=True):
        if as_json:
            record: dict[str, Any] = {
                "number": number,
                "source": text if isinstance(text, str) else None,
            }
            if number in faults:
                record["error"] = str(faults[number])
            else:
                record["parts"] = [
                    described(trained, part, some)
                    for part, some in zip(pieces[span], answers[span], strict=True)
                ]
            print(json.dumps(record, ensure_ascii=False))
        else:
            print(written(_joined(answers[span]), scores))
    sys.stdout.flush()
    return not faults


def described(trained: GenerationPipeline, text: str, answers: Iterable[Answer]) -> dict[str, Any]:
    """Return a text and its answers for JSON: tokens, scores, and the alignment of each.

    `alignment` has, for each answer token, the place of the source token that it looked at most in
    the last decoder layer, mean of heads.
    """
    ids = trained.source.encode(text)
    return {
        "source_tokens": trained.source.tokens(ids),
        "answers": [_answer(trained, ids, answer) for answer in answers],
    }


def _answer(trained: GenerationPipeline, ids: Sequence[int], answer: Answer) -> dict[str, Any]:
    record = {
        "text": answer.text,
        "log_p": round(answer.log_p, 6),
        "score": round(answer.score, 6),
        "finished": answer.finished,
        "tokens": trained.target.tokens(answer.tokens),
    }
    if not ids:
        return {**record, "token_log_p": [], "alignment": []}
    reading = trained.read(ids, answer.tokens)
    said = len(answer.tokens) + answer.finished  # the end token is last, if it was said
    token_log_p = [round(float(x), 6) for x in reading.log_p[:said]]
    return {**record, "token_log_p": token_log_p, "alignment": reading.alignment}


def _parts(trained: GenerationPipeline, text: str | UserError) -> list[str] | UserError:
    """Return a text in pieces that the model can read, or why it cannot be answered."""
    if isinstance(text, UserError):
        return text
    if (fault := obstacle(trained, text)) is None:
        return [text]
    if not isinstance(fault, TooLongError):
        return fault
    parts = trained.parts(text)
    return fault if parts is None else parts


def obstacle(trained: GenerationPipeline, text: str) -> UserError | None:
    """Return why a text cannot be answered in one piece, or None."""
    try:
        ids = trained.source.encode(text)
    except UserError as fault:
        return fault
    if len(ids) > trained.longest:
        return TooLongError(
            f"{len(ids)} tokens, more than the {trained.longest} that this model can read; split it"
        )
    if (prefix := len(trained.prefix_tokens)) > (room := trained.room(ids)):
        return UserError(
            f"{len(ids)} tokens, which leave room for {room} more; the prefix has {prefix}"
        )
    return None


def report_unknown(trained: GenerationPipeline, text: str, where: str) -> None:
    """Say on stderr which characters of a text the model has never seen."""
    if unknown := trained.source.unknown_characters([text]):
        print(
            f"pellucid: {where}: never seen in training: {' '.join(map(repr, unknown))}",
            file=sys.stderr,
        )


def _joined(parts: Sequence[Sequence[Answer]]) -> list[Answer]:
    """Join the first answers of a text's pieces, their second ones, and so on."""
    if len(parts) <= 1:
        return [answer for answers in parts for answer in answers]
    return [
        Answer(
            " ".join(answer.text for answer in some),
            sum(answer.log_p for answer in some),
            all(answer.finished for answer in some),
        )
        for some in zip(*parts, strict=False)
    ]


def written(answers: Sequence[Answer], scores: bool) -> str:
    """Write a text's answers on one line, tabs between them; an answer's own become blanks."""
    return "\t".join(
        (f"{answer.log_p:.3f}\t" if scores else "")
        + " ".join(answer.text.replace("\t", " ").splitlines())
        for answer in answers
    )

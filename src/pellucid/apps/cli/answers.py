"""Answer texts on the command line: many lines together, or one at a prompt."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from pellucid.apps.cli.language import tr, translated
from pellucid.core.errors import UserError
from pellucid.generation import Decodes
from pellucid.tasks.generation import Answer, GenerationTask, TokenScores, join_answers
from pellucid.tasks.passage import Passage


def split(trained: GenerationTask, text: str) -> Passage:
    """Split a text into pieces, and print on stderr which parts training never saw."""
    passage = trained.passage(text)
    trained.warn_unread([text])
    return passage


def answer_parts(
    trained: GenerationTask,
    decoder: Callable[[], Decodes],
    cut: Callable[[int], None],
    scores: bool,
    as_json: bool,
    texts: Mapping[int, Passage],
) -> Iterator[str | dict[str, Any]]:
    """Answer numbered texts, all together; yield what to print of each: text, or a JSON record.

    texts: by number, from 1; samples of a text are drawn by its number. The text to print is one
    line, unless the text that it answers has several. cut: gets the number of answers that did not
    end.
    """
    passages, numbers = list(texts.values()), [number - 1 for number in texts]
    pieces = [piece for own in passages for piece in own.pieces]
    answers = trained.answer_pieces(passages, numbers, decoder)
    cut(sum(not answer.finished for some in answers for answer in some))
    found: Iterator[Any] = iter(described(trained, pieces, answers) if as_json else answers)
    for passage in passages:
        own = list(islice(found, len(passage.pieces)))
        several = len(".".join(passage.kept).splitlines()) > 1
        yield {"parts": own} if as_json else written(join_answers(passage, own), scores, several)


def described(
    trained: GenerationTask, texts: Sequence[str], answers: Sequence[Sequence[Answer]]
) -> list[dict[str, Any]]:
    """Describe answers for JSON: tokens, scores, and the alignment of each.

    `alignment` has, for each answer token, the index of the source token with the most attention in
    the last decoder layer, mean over heads.
    """
    ids, reads = [trained.opening(text).source for text in texts], trained.prompt_ids
    every = ((row, a.tokens) for row, some in zip(ids, answers, strict=True) for a in some)
    pairs = [(row, tokens) for row, tokens in every if reads(row)]
    scores, unread = iter(trained.token_scores(pairs)), TokenScores(np.zeros(0), np.zeros((1, 0)))
    return [
        {
            "source_tokens": trained.source.tokens(row),
            "answers": [_answer(trained, a, next(scores) if reads(row) else unread) for a in some],
        }
        for row, some in zip(ids, answers, strict=True)
    ]


def _answer(trained: GenerationTask, answer: Answer, scores: TokenScores) -> dict[str, Any]:
    """Describe one answer for JSON; the scores of an empty text's are empty."""
    generated = len(answer.tokens) + answer.finished  # the end token, if generated, is the last
    return {
        "text": answer.text,
        "log_p": round(answer.log_p, 6),
        "score": round(answer.score, 6),
        "finished": answer.finished,
        "tokens": trained.target.tokens(answer.tokens),
        "token_log_p": [round(float(x), 6) for x in scores.log_p[:generated]],
        "alignment": scores.alignment,
    }


def written(answers: Sequence[Answer], scores: bool, several: bool = False) -> str:
    """Format the answers to a text on one line, separated by tabs.

    Tabs inside become blanks. scores: put the log-probability of each answer, and a tab, before it.
    several: whether the text has several lines; the lines of its answers are then kept.
    """
    return "\t".join(
        (f"{answer.log_p:.3f}\t" if scores else "")
        + ("\n" if several else " ").join(answer.text.replace("\t", " ").splitlines())
        for answer in answers
    )


def typed(invitation: str) -> Iterator[str]:
    """Yield the texts typed at a prompt until end of input or Ctrl-C.

    A text that is not UTF-8 has to be typed again.
    """
    with contextlib.suppress(ImportError):  # absent on Windows; editing is then the terminal's
        import readline  # noqa: F401 - importing it gives `input` history and editing

    print(invitation)
    while True:
        try:
            text = input("> ")
            text.encode("utf-8")  # in some locales Python lets other bytes pass, as surrogates
        except (EOFError, KeyboardInterrupt):
            print()
            return
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            print(translated(f"That is not {error.encoding.upper()}; type it again."))
        else:
            if text.strip():
                yield text


def converse(trained: GenerationTask, scores: bool = False) -> int:
    """Answer texts at a prompt until the input ends.

    Ctrl-C ends an answer, or the prompt. Answers are printed while they are generated, unless
    scores, a beam search or several samples are wanted.
    """
    decoder = functools.cache(trained.decoder)  # compiled at the first answer, for all
    sampling = trained.sampling
    several = trained.search.beam > 1 if sampling is None else sampling.samples > 1
    whole = scores or several
    number = 0  # the same text again is sampled with other draws
    for text in typed(tr("Type a text and press Enter; Ctrl-D ends.")):
        try:
            passage = split(trained, text)
        except UserError as error:
            print(translated(f"That is {error}."))
            continue
        with contextlib.suppress(KeyboardInterrupt):
            if whole:  # known only at the end
                warn, texts = trained.warn_unfinished, {number + 1: passage}
                print(*answer_parts(trained, decoder, warn, scores, False, texts))
            else:
                _stream(trained, text, number, decoder)
        number += 1
    return 0


def _stream(
    trained: GenerationTask, text: str, number: int, decoder: Callable[[], Decodes]
) -> None:
    """Print an answer while it is generated."""
    try:
        for piece in trained.stream(text, number, decoder):
            print(piece.replace("\n", " "), end="", flush=True)
    finally:
        print()

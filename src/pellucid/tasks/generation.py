"""What the kinds that generate text share: searched, sampled or streamed answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from pellucid.core.batch import Packed
from pellucid.core.errors import UsageError, UserError
from pellucid.data.tokenizers import settled
from pellucid.generation import (
    GREEDY,
    Decodes,
    SampleConfig,
    SearchConfig,
    compile_model,
    sample,
    sample_stream,
    search,
)
from pellucid.models.quantize import Arithmetic
from pellucid.tasks.task import Task

TEXTS_AT_ONCE = 128


def piece_numbers(number: int, pieces: int) -> list[int]:
    """Return what sampling each piece of a text is keyed by; the first piece by the text's number.

    >>> piece_numbers(3, 2)
    [3, 16777219]
    """
    return [(number + place * 2**24) % 2**32 for place in range(pieces)]


def join_answers(pieces: Sequence[Sequence[Answer]]) -> list[Answer]:
    """Join the first answers to a text's pieces, their second ones, and so on."""
    if len(pieces) <= 1:
        return [answer for answers in pieces for answer in answers]
    return [
        Answer(
            " ".join(answer.text for answer in some),
            sum(answer.log_p for answer in some),
            all(answer.finished for answer in some),
        )
        for some in zip(*pieces, strict=False)
    ]


class TooLongError(UserError):
    """A text of more tokens than a model can read."""


class Answer(NamedTuple):
    """One answer to a text."""

    text: str
    log_p: float
    """Σ log p of its tokens, and of the end if it was generated."""
    finished: bool
    """Whether it ended with the end token, rather than at max_length."""
    tokens: tuple[int, ...] = ()
    """Its tokens, the end not among them."""
    score: float = 0.0
    """The score of `generation.Hypothesis`, by which answers are ranked; log_p when sampled."""


class TokenScores(NamedTuple):
    """Log-probabilities and attention of an answer of L tokens to a text of S tokens."""

    log_p: np.ndarray
    """(L + 1,) log-probability of each token given those before it, and of the end."""
    weights: np.ndarray
    """(L + 1, S) attention of each to each source token: last decoder layer, mean of heads."""

    @property
    def alignment(self) -> list[int]:
        """The source token with the most attention from each of the L tokens."""
        return [int(i) for i in self.weights[:-1].argmax(axis=1)]


@dataclass(frozen=True)
class GenerationTask(Task):
    """A model in eval mode with its tokenizers and search."""

    generates = True

    search: SearchConfig = GREEDY
    sampling: SampleConfig | None = None
    """When set, answers are sampled instead of searched for."""
    prefix: str = ""
    """What every answer begins with, except the empty one to an empty text."""
    arithmetic: Arithmetic = "float32"
    """What compiled decoding multiplies; int8 for a model that was stored in it."""

    def __post_init__(self) -> None:
        if self.prefix and (unknown := self.target.unknown([self.prefix])):
            raise UsageError(
                f"prefix holds {self.target.unit} that the model has no tokens for: "
                + " ".join(map(repr, unknown))
            )
        asked, room = (self.sampling or self.search).max_length, self.max_new_tokens([])
        if len(self.prefix_tokens) > min(asked, room):
            remedy = "allow longer answers (max_length) or give" if asked < room else "give"
            raise UsageError(
                f"prefix has {len(self.prefix_tokens)} tokens, an answer at most "
                f"{min(asked, room)}: {remedy} a shorter prefix"
            )

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizers: Sequence[Any],
        search: SearchConfig = GREEDY,
        arithmetic: Arithmetic = "float32",
    ) -> Self:
        """Return a model with its tokenizers, one or two."""
        return cls(model, tokenizers[0], tokenizers[-1], search, arithmetic=arithmetic)

    @property
    def prefix_tokens(self) -> list[int]:
        """The tokens that every answer begins with."""
        return self.target.encode(self.prefix) if self.prefix else []

    @abstractmethod
    def max_new_tokens(self, source: Sequence[int]) -> int:
        """Return the most tokens that the answer to a text of these tokens can have."""

    @abstractmethod
    def prompt_ids(self, source: Sequence[int]) -> list[int]:
        """Return the tokens that are read of a text before its answer begins."""

    def prompts(
        self, rows: Sequence[Sequence[int]], numbers: Sequence[int]
    ) -> tuple[Packed, np.ndarray | None]:
        """Return what is read of texts, and the token fed after each; None: the begin token."""
        return Packed.of([self.prompt_ids(row) for row in rows], numbers), None

    def decoder(self) -> Decodes:
        """Return what search and sampling decode with, compiled once for many texts."""
        return compile_model(self.model, self.arithmetic)

    @abstractmethod
    def decode(self, source: Sequence[int], generated: Sequence[int]) -> str:
        """Return the text of the tokens generated for a text."""

    @abstractmethod
    def score(self, source: Sequence[int], answer: Sequence[int]) -> TokenScores:
        """Teacher-force an answer; return its log-probabilities and attention."""

    def check_length(self, text: str) -> None:
        """Raise `UserError` when a text cannot be answered whole: `TooLongError` for its length."""
        ids = self.source.encode(text)
        if len(ids) > self.max_source_length:
            raise TooLongError(
                f"{len(ids)} tokens, more than the {self.max_source_length} that this model can "
                "read; split it"
            )
        if (prefix := len(self.prefix_tokens)) > (room := self.max_new_tokens(ids)):
            raise UserError(
                f"{len(ids)} tokens, which leave room for {room} more; the prefix has {prefix}"
            )

    def split_sentences(self, text: str) -> list[str]:
        """Return a text in pieces that are answered one by one: itself, if it is short enough.

        Raises `UserError` when it cannot be answered: `TooLongError` for its length.
        """
        self.check_length(text)
        return [text]

    def generate(self, texts: Sequence[str]) -> list[str]:
        """Return the best answer to each text, or the sampled one; a long text's in pieces.

        Raises `UserError` for a text that cannot be answered, one with a sentence of more than
        `max_source_length` tokens for example.
        """
        pieces = [self.split_sentences(text) for text in texts]
        numbers = [n for i, some in enumerate(pieces) for n in piece_numbers(i, len(some))]
        answers = iter(self.generate_answers([piece for some in pieces for piece in some], numbers))
        return [join_answers([next(answers) for _ in some])[0].text for some in pieces]

    def generate_answers(
        self,
        texts: Sequence[str],
        numbers: Sequence[int] | None = None,
        decoder: Callable[[], Decodes] | None = None,
    ) -> list[list[Answer]]:
        """Return each text's best answers, best first, in the order of the texts.

        Texts of similar length are answered together. An empty text has one empty answer.
        `numbers`, counted from 0 unless given, are what sampling is keyed by. `decoder` returns
        what was compiled before, for many calls with a model that does not change in between
        (`functools.cache(task.decoder)`).

        Raises `ValueError` for a text of more than `max_source_length` tokens.
        """
        found: list[list[Answer]] = [[Answer("", 0.0, True)] for _ in texts]
        names = range(len(texts)) if numbers is None else numbers
        ids = self.source.encode_all(texts)
        order = sorted((i for i, row in enumerate(ids) if row), key=lambda i: len(ids[i]))
        compiled = (decoder or self.decoder)() if order else None
        for start in range(0, len(order), TEXTS_AT_ONCE):
            together = order[start : start + TEXTS_AT_ONCE]
            rows, numbered = [ids[i] for i in together], [names[i] for i in together]
            for i, answers in zip(together, self._answers(compiled, rows, numbered), strict=True):
                found[i] = answers
        return found

    def stream(
        self, text: str, number: int = 0, decoder: Callable[[], Decodes] | None = None
    ) -> Iterator[str]:
        """Yield one answer piece by piece, as its tokens are generated: sampled or greedy.

        A piece ends where a character does: a character of several tokens comes whole. `number` and
        `decoder` are as in `generate_answers`.

        Raises `ValueError` for a text of more than `max_source_length` tokens.
        """
        source = self.source.encode(text)
        if not source:
            return
        greedy = SampleConfig(
            top_k=1, max_length=self.search.max_length, constraints=self.search.constraints
        )
        generated: list[int] = []
        shown = ""
        prompt, first = self.prompts([source], [number])
        prefixes = [self.prefix_tokens] if self.prefix else ()
        config = self.sampling or greedy
        for new in sample_stream((decoder or self.decoder)(), prompt, config, prefixes, first):
            generated += [token for _, token in new]
            whole = settled(self.decode(source, generated), self.target)
            if len(whole) > len(shown):
                yield whole[len(shown) :]
                shown = whole
        if rest := self.decode(source, generated)[len(shown) :]:
            yield rest

    def _answers(
        self, decoder: Any, rows: Sequence[list[int]], numbers: Sequence[int]
    ) -> list[list[Answer]]:
        source, first = self.prompts(rows, numbers)
        prefixes = [self.prefix_tokens] * len(rows) if self.prefix else []
        if self.sampling is not None:
            sampled = sample(decoder, source, self.sampling, prefixes, first)
            room = decoder.room(source)
            return [
                [self._sampled(row, tokens, int(most))]
                for row, tokens, most in zip(rows, sampled, room, strict=True)
            ]
        found = search(decoder, source, self.search, prefixes, first)
        return [
            [
                Answer(self.decode(row, h.tokens), h.log_p, h.finished, h.tokens, h.score)
                for h in best
            ]
            for row, best in zip(rows, found, strict=True)
        ]

    def _sampled(self, source: Sequence[int], tokens: tuple[int, ...], room: int) -> Answer:
        assert self.sampling is not None
        finished = len(tokens) < min(self.sampling.max_length, room)
        log_p = self.score(source, tokens).log_p
        total = float(log_p.sum() if finished else log_p[:-1].sum())
        return Answer(self.decode(source, tokens), total, finished, tokens, total)

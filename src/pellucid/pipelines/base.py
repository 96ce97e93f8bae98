"""What pipelines that generate text share: searched, sampled or streamed answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from pellucid.core.batch import Packed
from pellucid.core.errors import UsageError
from pellucid.data.tokenizers import TokenizerLike, settled
from pellucid.generation import Decodes, SampleConfig, SearchConfig, sample, sample_stream, search
from pellucid.models.quantize import Arithmetic

TEXTS_AT_ONCE = 128


class Pipeline(Protocol):
    """A model in eval mode with its tokenizers."""

    @property
    def model(self) -> Any:
        """The model."""


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


class Reading(NamedTuple):
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
class GenerationPipeline(ABC):
    """A model in eval mode with its tokenizers and search."""

    model: Any
    source: TokenizerLike
    target: TokenizerLike
    search: SearchConfig
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
        asked, room = (self.sampling or self.search).max_length, self.room([])
        if len(self.prefix_tokens) > min(asked, room):
            remedy = "allow longer answers (max_length) or give" if asked < room else "give"
            raise UsageError(
                f"prefix has {len(self.prefix_tokens)} tokens, an answer at most "
                f"{min(asked, room)}: {remedy} a shorter prefix"
            )

    @property
    @abstractmethod
    def longest(self) -> int:
        """The most tokens a text may have."""

    @abstractmethod
    def room(self, source: Sequence[int]) -> int:
        """Return the most tokens that the answer to a text of these tokens can have."""

    @abstractmethod
    def read(self, source: Sequence[int], answer: Sequence[int]) -> Reading:
        """Teacher-force an answer; return its log-probabilities and attention."""

    @abstractmethod
    def speaker(self) -> Decodes:
        """Return what search and sampling decode with, prepared once for many texts."""

    @abstractmethod
    def opening(self, source: Sequence[int]) -> list[int]:
        """Return the tokens of a text that are read before the answer begins."""

    @abstractmethod
    def written(self, source: Sequence[int], said: Sequence[int]) -> str:
        """Return the text of an answer."""

    def parts(self, text: str) -> list[str] | None:
        """Return a text in pieces that can be answered one by one; None: it has none."""
        return None

    @property
    def prefix_tokens(self) -> list[int]:
        """The tokens that every answer begins with."""
        return self.target.encode(self.prefix) if self.prefix else []

    def answers(
        self,
        texts: Sequence[str],
        numbers: Sequence[int] | None = None,
        speaker: Callable[[], Decodes] | None = None,
    ) -> list[list[Answer]]:
        """Return each text's best answers, best first, in the order of the texts.

        Texts of similar length are answered together. An empty text has one empty answer.
        `numbers`, counted from 0 unless given, are what sampling is keyed by. `speaker` returns
        what was prepared before, for many calls with a model that does not change in between
        (`functools.cache(trained.speaker)`).

        Raises `ValueError` for a text of more than `longest` tokens.
        """
        found: list[list[Answer]] = [[Answer("", 0.0, True)] for _ in texts]
        names = range(len(texts)) if numbers is None else numbers
        ids = self.source.encode_all(texts)
        order = sorted((i for i, row in enumerate(ids) if row), key=lambda i: len(ids[i]))
        ready = (speaker or self.speaker)() if order else None
        for start in range(0, len(order), TEXTS_AT_ONCE):
            together = order[start : start + TEXTS_AT_ONCE]
            rows, numbered = [ids[i] for i in together], [names[i] for i in together]
            for i, answers in zip(together, self._answer(ready, rows, numbered), strict=True):
                found[i] = answers
        return found

    def best(self, texts: Sequence[str]) -> list[str]:
        """Return each text's best answer."""
        return [answers[0].text for answers in self.answers(texts)]

    def stream(
        self, text: str, number: int = 0, speaker: Callable[[], Decodes] | None = None
    ) -> Iterator[str]:
        """Yield one answer piece by piece, as its tokens are generated: sampled or greedy.

        A piece ends where a character does: a character of several tokens comes whole. `number` and
        `speaker` are as in `answers`.

        Raises `ValueError` for a text of more than `longest` tokens.
        """
        tokens = self.source.encode(text)
        if not tokens:
            return
        greedy = SampleConfig(
            top_k=1, max_length=self.search.max_length, constraints=self.search.constraints
        )
        said: list[int] = []
        shown = ""
        for spoken in sample_stream(
            (speaker or self.speaker)(),
            Packed.of([self.opening(tokens)], [number]),
            self.sampling or greedy,
            [self.prefix_tokens] if self.prefix else (),
        ):
            said += [token for _, token in spoken]
            whole = settled(self.written(tokens, said), self.target)
            if len(whole) > len(shown):
                yield whole[len(shown) :]
                shown = whole
        if rest := self.written(tokens, said)[len(shown) :]:
            yield rest

    def _answer(
        self, speaker: Any, rows: Sequence[list[int]], numbers: Sequence[int]
    ) -> list[list[Answer]]:
        source = Packed.of([self.opening(row) for row in rows], numbers)
        prefixes = [self.prefix_tokens] * len(rows) if self.prefix else []
        if self.sampling is not None:
            drawn, room = sample(speaker, source, self.sampling, prefixes), speaker.room(source)
            return [
                [self._drawn(row, said, int(most))]
                for row, said, most in zip(rows, drawn, room, strict=True)
            ]
        found = search(speaker, source, self.search, prefixes)
        return [
            [
                Answer(self.written(row, h.tokens), h.log_p, h.finished, h.tokens, h.score)
                for h in best
            ]
            for row, best in zip(rows, found, strict=True)
        ]

    def _drawn(self, source: Sequence[int], said: tuple[int, ...], room: int) -> Answer:
        assert self.sampling is not None
        finished = len(said) < min(self.sampling.max_length, room)
        log_p = self.read(source, said).log_p
        total = float(log_p.sum() if finished else log_p[:-1].sum())
        return Answer(self.written(source, said), total, finished, said, total)

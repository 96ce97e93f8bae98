"""A trained model with its tokenizers: texts in, answers out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pellucid import ops
from pellucid.decoding import SampleConfig, SearchConfig, sample, sample_stream, search
from pellucid.errors import UsageError
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn import Recorder
from pellucid.packed import Batch, Packed
from pellucid.text.tokenizer import Tokenizer

TEXTS_AT_ONCE = 128


class Answer(NamedTuple):
    """One answer to a text."""

    text: str
    log_p: float
    """How likely the model holds it to be: Σ log p of its tokens and the end."""
    finished: bool
    """Whether it came to an end by itself, rather than at the longest length allowed."""
    tokens: tuple[int, ...] = ()
    """Its tokens, the end not among them."""
    score: float = 0.0
    """What answers are ranked by: log_p over the length penalty; log_p itself when sampled."""


class Reading(NamedTuple):
    """How a model came to an answer of L tokens, from a text of S tokens."""

    log_p: np.ndarray
    """(L + 1,) log-probability of each token given those before it, and of the end."""
    weights: np.ndarray
    """(L + 1, S) how much each looked at each source token: last decoder layer, mean of heads."""

    @property
    def alignment(self) -> list[int]:
        """The source token that each of the L tokens looked at most."""
        return [int(i) for i in self.weights[:-1].argmax(axis=1)]


@dataclass(frozen=True)
class Trained:
    """A model in eval mode with all that is needed to use it."""

    model: Seq2Seq
    source: Tokenizer
    target: Tokenizer
    search: SearchConfig
    sampling: SampleConfig | None = None
    """When set, answers are drawn instead of searched for."""
    prefix: str = ""
    """What every answer begins with."""

    def __post_init__(self) -> None:
        longest = (self.sampling or self.search).max_length
        if len(self.prefix_tokens) > longest:
            raise UsageError(
                f"prefix has {len(self.prefix_tokens)} tokens, an answer at most {longest}: "
                "allow longer answers (max_length) or give a shorter prefix"
            )

    @property
    def longest(self) -> int:
        """The most tokens a text may have."""
        return self.model.config.max_position_embeddings

    @property
    def prefix_tokens(self) -> list[int]:
        """The tokens that every answer begins with."""
        return self.target.encode(self.prefix) if self.prefix else []

    def answers(
        self, texts: Sequence[str], numbers: Sequence[int] | None = None
    ) -> list[list[Answer]]:
        """Return each text's best answers, best first, in the order of the texts.

        Texts of like length are answered together. An empty text has one empty answer. `numbers`,
        counted from 0 unless given, are what the draws of sampling are keyed by.

        Raises `ValueError` for a text of more than `longest` tokens.
        """
        found: list[list[Answer]] = [[Answer("", 0.0, True)] for _ in texts]
        names = range(len(texts)) if numbers is None else numbers
        ids = self.source.encode_all(texts)
        order = sorted((i for i, row in enumerate(ids) if row), key=lambda i: len(ids[i]))
        for start in range(0, len(order), TEXTS_AT_ONCE):
            together = order[start : start + TEXTS_AT_ONCE]
            source = Packed.of([ids[i] for i in together], [names[i] for i in together])
            for i, answers in zip(together, self._answer(source), strict=True):
                found[i] = answers
        return found

    def best(self, texts: Sequence[str]) -> list[str]:
        """Return each text's best answer."""
        return [answers[0].text for answers in self.answers(texts)]

    def stream(self, text: str, number: int = 0) -> Iterator[str]:
        """Yield one answer piece by piece, as its tokens are made: drawn, or greedily chosen.

        A piece ends where a character does: a character of several tokens comes whole.

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
            self.model,
            Packed.of([tokens], [number]),
            self.sampling or greedy,
            [self.prefix_tokens] if self.prefix else (),
        ):
            said += [token for _, token in spoken]
            whole = self.target.decode(said).rstrip("\ufffd")
            if len(whole) > len(shown):
                yield whole[len(shown) :]
                shown = whole
        if rest := self.target.decode(said)[len(shown) :]:
            yield rest

    def read(self, source: Sequence[int], answer: Sequence[int]) -> Reading:
        """Say an answer to the model, token by token, and return what it made of it."""
        bos, eos = self.model.config.bos_token_id, self.model.config.eos_token_id
        recorder = Recorder()
        batch = Batch(Packed.of([source]), Packed.of([[bos, *answer, eos]]))
        rows, _ = self.model.decode_rows(batch, recorder=recorder)
        log_p, _ = ops.log_softmax(self.model.output(rows))
        layers = [name for name in recorder.maps if name.endswith("multihead_attn")]
        weights = np.zeros((len(answer) + 1, len(source)), log_p.dtype)
        if layers:
            weights = np.asarray(recorder.maps[layers[-1]].weights)[0].mean(axis=0)
        return Reading(log_p[np.arange(len(answer) + 1), [*answer, eos]], weights)

    def _answer(self, source: Packed) -> list[list[Answer]]:
        prefixes = [self.prefix_tokens] * len(source) if self.prefix else []
        if self.sampling is not None:
            drawn = sample(self.model, source, self.sampling, prefixes)
            rows = np.split(source.tokens, source.cu_seqlens[1:-1])
            return [
                [self._drawn(row.tolist(), said)] for row, said in zip(rows, drawn, strict=True)
            ]
        found = search(self.model, source, self.search, prefixes)
        return [
            [
                Answer(self.target.decode(h.tokens), h.log_p, h.finished, h.tokens, h.score)
                for h in best
            ]
            for best in found
        ]

    def _drawn(self, source: Sequence[int], said: tuple[int, ...]) -> Answer:
        assert self.sampling is not None
        room = self.model.config.max_position_embeddings - 1
        finished = len(said) < min(self.sampling.max_length, room)
        log_p = self.read(source, said).log_p
        total = float(log_p.sum() if finished else log_p[:-1].sum())
        return Answer(self.target.decode(said), total, finished, said, total)

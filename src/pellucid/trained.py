"""A trained model with its tokenizers: texts in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pellucid.decoding import SearchConfig, search
from pellucid.models.seq2seq import Seq2Seq
from pellucid.packed import Packed
from pellucid.text.tokenizer import Tokenizer

TEXTS_AT_ONCE = 128


class Answer(NamedTuple):
    """One answer to a text."""

    text: str
    log_p: float
    """How likely the model holds it to be: Σ log p of its tokens and the end."""
    finished: bool
    """Whether it came to an end by itself, rather than at the longest length allowed."""


@dataclass(frozen=True)
class Trained:
    """A model in eval mode with all that is needed to use it."""

    model: Seq2Seq
    source: Tokenizer
    target: Tokenizer
    search: SearchConfig

    @property
    def longest(self) -> int:
        """The most tokens a text may have."""
        return self.model.config.max_position_embeddings

    def answers(self, texts: Sequence[str]) -> list[list[Answer]]:
        """Return each text's best answers, best first, in the order of the texts.

        Texts of like length are answered together. An empty text has one empty answer.

        Raises `ValueError` for a text of more than `longest` tokens.
        """
        found: list[list[Answer]] = [[Answer("", 0.0, True)] for _ in texts]
        ids = self.source.encode_all(texts)
        order = sorted((i for i, row in enumerate(ids) if row), key=lambda i: len(ids[i]))
        for start in range(0, len(order), TEXTS_AT_ONCE):
            together = order[start : start + TEXTS_AT_ONCE]
            found_here = search(self.model, Packed.of([ids[i] for i in together]), self.search)
            for i, hypotheses in zip(together, found_here, strict=True):
                found[i] = [
                    Answer(self.target.decode(h.tokens), h.log_p, h.finished) for h in hypotheses
                ]
        return found

    def best(self, texts: Sequence[str]) -> list[str]:
        """Return each text's best answer."""
        return [answers[0].text for answers in self.answers(texts)]

"""Task of an encoder-decoder: it answers a text, and is trained on pairs."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from pellucid.core.batch import Batch
from pellucid.core.errors import UsageError, UserError
from pellucid.core.vjp import unobserved
from pellucid.data.batches import Examples, encode_pairs
from pellucid.data.pairs import TextPair, gathered
from pellucid.data.tokenizers import Tokenizer
from pellucid.generation import Decodes, Ensemble, mean_probability
from pellucid.models.config import Seq2SeqConfig
from pellucid.models.seq2seq import Seq2Seq
from pellucid.tasks.generation import GenerationTask, Opening
from pellucid.tasks.metric import Measured, Metric
from pellucid.tasks.metrics import METRICS
from pellucid.tasks.passage import Passage, lines, sentences
from pellucid.tasks.scores import Scores, mean_loss
from pellucid.tasks.task import Task

_log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Seq2SeqTask(GenerationTask):
    """A `Seq2Seq` with its tokenizers and search settings.

    It may hold several models that answer together, see `ensemble`.
    """

    name = "pellucid-seq2seq"
    about = "An encoder-decoder Transformer."
    kind = "answer"
    config_class = Seq2SeqConfig
    model_class = Seq2Seq
    vocabularies = ("source_vocab_size", "target_vocab_size")

    model: Seq2Seq
    others: tuple[Seq2SeqTask, ...] = ()
    """Tasks whose models answer together with `model`."""
    sentences: int | None = 1
    """Number of sentences to read together, as in the sources of the training data; 1 if that was
    not recorded; None: as many as fit."""

    def ensemble(self, *others: Seq2SeqTask) -> Self:
        """Return a task that answers with this model and others together.

        The probability of each token is the mean over the models. Attention is that of the first
        model. Raises `UsageError` for a model of another kind, with other tokenizers, or with those
        of another program.

        >>> trained = model.ensemble(pellucid.load("runs/seed-1"))  # doctest: +SKIP
        """
        for place, other in enumerate(others, 2):
            if not isinstance(other, Seq2SeqTask):
                kind = other.name if isinstance(other, Task) else type(other).__name__
                raise UsageError(f"model {place} is {kind}; an ensemble is of encoder-decoders")
            both = (self.tokenizers, other.tokenizers)
            if not all(isinstance(each, Tokenizer) for some in both for each in some):
                raise UsageError(
                    "an ensemble is of models with tokenizers of Pellucid's; another program's "
                    "cannot be compared"
                )
            first, second = ([each.to_json() for each in some] for some in both)
            if first != second:
                raise UsageError(
                    f"model {place} has other tokens than the first: train both with the same data "
                    "and tokenizer, and another `seed`"
                )
        more = (task for other in others for task in (replace(other, others=()), *other.others))
        return replace(self, others=(*self.others, *more))

    @property
    def max_source_length(self) -> int:
        """The most tokens that a text may have, for all models of an ensemble."""
        own = super().max_source_length
        return min([own, *(task.max_source_length for task in self.others)])

    def passage(self, text: str) -> Passage:
        """Split a text into pieces that the model answers one by one.

        A piece has at most `sentences` sentences, and only as many as fit. For a model that
        `reads_words` a piece is a word; for one trained on several columns, a line. Text between
        words, and pieces of which at least half was not seen in training, are copied unchanged.
        Raises `UserError` if at least half of the whole text was not seen in training or a line has
        another number of columns, and `TooLongError` for a piece that is too long by itself.
        """
        if self.sentences is None and self._fits(text):
            return super().passage(text)
        self.check_seen(text)
        found = self.split(text)
        for piece in found.pieces:
            self.check_columns(piece)
            self.check_length(piece)
        return found

    def split(self, text: str) -> Passage:
        """Split a text as `passage` does, without its checks."""
        parts = lines(text)
        if self.columns == 1:
            parts = [piece for line in parts for piece in self._grouped(line)]
        return Passage.of([part for piece in parts for part in self._words(piece)], self._knows)

    def openings(self, passage: Passage) -> list[Opening]:
        """Return the input tokens and the required beginning of the answer, for each piece.

        The prefix applies to the joined answers. Its complete sentences are the whole answers to
        the first pieces, the rest begins the next answer, and later answers are free.
        """
        *whole, rest = passage.begun(self.prefix, self.sentences)
        begun = [self._begun(answer, self.model.config.eos_token_id) for answer in whole]
        begun.append(self.beginning if rest == self.prefix else self._begun(rest))
        begun += [None] * len(passage.pieces)
        each = zip(passage.pieces, begun, strict=False)
        return [Opening(self.source.encode(piece), own) for piece, own in each]

    def _grouped(self, line: str) -> list[str]:
        """Split a line into groups of sentences, of the size that the model was trained on."""
        groups: list[list[str]] = []
        for sentence in sentences(line):
            full = not groups or len(groups[-1]) == self.sentences
            if full or not self._fits("".join([*groups[-1], sentence]).strip()):
                groups.append([])
            groups[-1].append(sentence)
        return ["".join(group) for group in groups]

    def _fits(self, text: str) -> bool:
        """Return whether the model can read a text in one piece."""
        return len(self.source.encode(text)) <= self.max_source_length

    def _words(self, text: str) -> list[str]:
        """Split a text at words if the model reads single words; else return it whole."""
        if not self.reads_words:
            return [text]
        text = unicodedata.normalize("NFC", text)
        marks = [c for c in set(text) if not c.isalnum() and not c.isspace()]
        inside = re.escape("".join(c for c in marks if not self.source.unknown([c])))
        return re.split(rf"([^\W_](?:[\w{inside}]*[^\W_])?)", text)

    def _knows(self, piece: str) -> bool:
        """Return whether a piece can be answered: mostly seen in training, not punctuation."""
        return (not self.reads_words or piece[:1].isalnum()) and self.source.knows(piece)

    def check_seen(self, text: str) -> None:
        """Raise `UserError` if at least half of a text is unseen in training.

        A model of single words ignores punctuation and white space.
        """
        super().check_seen("".join(filter(str.isalnum, text)) if self.reads_words else text)

    def unread(self, text: str) -> list[str]:
        """Return the parts of a text that have no token: characters or words new to the model.

        A model of single words ignores punctuation between them.
        """
        words = (part for line in lines(text) for part in self._words(line))
        return list(
            self.source.unknown(w for w in words if not self.reads_words or w[:1].isalnum())
        )

    @property
    def reads_words(self) -> bool:
        """Whether the model reads single words, one at a time.

        True if its source tokenizer is one of Pellucid's, of kind "char", and has no token for a
        space or a tab.
        """
        own = self.source
        return (
            isinstance(own, Tokenizer)
            and own.kind == "char"
            and not {" ", "\t"} & set(own.vocabulary)
        )

    def max_new_tokens(self, source: Sequence[int]) -> int:
        """Return the most tokens of an answer to any text.

        One position is the begin or the end token.
        """
        return self.max_source_length - 1

    def decoder(self) -> Decodes:
        """Return the compiled decoder for search and sampling, an `Ensemble` with `others`."""
        own = super().decoder()
        return Ensemble([own, *(task.decoder() for task in self.others)]) if self.others else own

    def held_out_loss(self, batches: Sequence[Batch]) -> float:
        """Return the mean loss of batches in nats per target token.

        That of an ensemble is −log of its mean probability.
        """
        if not self.others:
            return super().held_out_loss(batches)
        found = []
        for batch in batches:
            wanted = batch.target.without_first().tokens
            log_p = self._log_p(batch)
            nats = -float(log_p[np.arange(len(wanted)), wanted].sum(dtype=np.float64))
            found.append((nats, len(wanted)))
        return mean_loss(found)

    def _log_p(self, batch: Batch) -> np.ndarray:
        """Return log p (T, V) of each next target token; the mean over an ensemble."""
        log_p = super()._log_p(batch)
        if not self.others:
            return log_p
        with unobserved():  # what a recorder keeps is the first model's
            return mean_probability([log_p, *(task._log_p(batch) for task in self.others)])

    def encode(
        self, pairs: Sequence[TextPair], *, max_tokens: int, first_target_only: bool = False
    ) -> Examples:
        """Tokenize pairs; each target of a pair makes an example, or only the first one.

        Pairs with an empty side, or more than `max_tokens` on a side, are left out, with a warning;
        of an ensemble also those that one of its models cannot read. Raises `UserError` if nothing
        is left.
        """
        ids = self.model.config
        if self.others:
            max_tokens = min(max_tokens, self.max_source_length - 2)
        return encode_pairs(
            pairs,
            self.source,
            self.target,
            max_tokens=max_tokens,
            first_target_only=first_target_only,
            begin=(ids.bos_token_id, *self._frame()),
            end=ids.eos_token_id,
        )

    def _frame(self) -> Sequence[int]:
        """Return the tokens that another program's tokenizer puts before each target."""
        return [] if isinstance(self.source, Tokenizer) else self.source.encode("")[:-1]

    def _completed(
        self, scores: Scores, batches: Sequence[Batch], pairs: Sequence[TextPair], metric: str
    ) -> Scores:
        """Add the result of a metric to scores, unless it is "none".

        Each answer is compared with all targets of its pair. Error rates count each source once,
        and compare with the targets of all its pairs.
        """
        if metric == "none":
            return scores
        measured = self._measuring(pairs, METRICS[metric])(True)
        return replace(scores, pairs=len(pairs), measured=measured)

    def validation(
        self, pairs: Sequence[TextPair], metric: str, most: int
    ) -> Callable[[Any], Mapping[str, float]] | None:
        """Return a function that answers at most `most` held-out pairs and scores the answers.

        It returns the scores by name; its argument is ignored. None without pairs, or if the metric
        is "none".
        """
        if metric == "none" or not pairs:
            return None
        count = min(len(pairs), most)
        # Sorted pairs differ by place, so take some from all over.
        some = [pairs[i * len(pairs) // count] for i in range(count)]
        measure = self._measuring(some, METRICS[metric])
        return lambda _: measure(False).values

    def right_answers(self, pair: TextPair) -> list[str]:
        """Return the targets of a pair as the tokenizer normalises them.

        The model cannot generate them in any other form.
        """
        return [self.target.normalised(text) for text in pair.targets]

    def _measuring(self, pairs: Sequence[TextPair], metric: Metric) -> Callable[[bool], Measured]:
        """Return a function that answers all sources and computes a metric.

        Its argument is whether to compute intervals. A source that cannot be answered, for example
        because a sentence is too long, counts as an empty answer; a warning states their number.
        """
        pairs = gathered(pairs) if metric.by_unit else pairs
        references: Any = [pair.targets for pair in pairs]
        if metric.by_unit:
            references = [[self._units(t) for t in self.right_answers(pair)] for pair in pairs]
        found = [self._unanswered(pair.source) for pair in pairs]
        if faults := [fault for fault in found if fault]:
            _log.warning(
                f"{len(faults):,} of {len(pairs):,} sources cannot be answered, which counts as "
                f"empty answers; the first: {faults[0]}"
            )
        sources = [pair.source for pair, fault in zip(pairs, found, strict=True) if not fault]

        def measure(intervals: bool) -> Measured:
            generated = iter(self.generate_answers(sources))
            answers: Any = ["" if fault else next(generated)[0].text for fault in found]
            if metric.by_unit:
                answers = [self._units(text) for text in answers]
            return metric.compute(answers, references, intervals)

        return measure

    def _unanswered(self, text: str) -> str:
        """Return why a text cannot be answered, or ""."""
        try:
            self.passage(text)
        except UserError as error:
            return str(error)
        return ""

    def _units(self, text: str) -> Sequence[str]:
        """Split a text into the units of error rates: the tokenizer's characters or words."""
        return self.target.units(text) if isinstance(self.target, Tokenizer) else list(text)

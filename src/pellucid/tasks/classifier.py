"""Task of an encoder with labels: it classifies texts, or tags their tokens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.core.array import to_host
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.data.batches import Examples, encode_pairs, held_out_batches
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import SPECIALS, Tokenizer
from pellucid.models.classifier import Classifier
from pellucid.models.config import ClassifierConfig
from pellucid.system.language import plural
from pellucid.tasks.labels import calibration_error
from pellucid.tasks.masked_lm import Blank, Guess
from pellucid.tasks.metric import Measured
from pellucid.tasks.metrics import METRICS
from pellucid.tasks.scores import Scores
from pellucid.tasks.task import Task, check_best, checked_texts, similar


@dataclass(frozen=True, repr=False)
class ClassifierTask(Task):
    """A `Classifier` with the tokenizers of texts and of labels."""

    name = "pellucid-classifier"
    about = "A Transformer's encoder with labels: it classifies texts, or tags their tokens."
    kind = "label"
    config_class = ClassifierConfig
    model_class = Classifier
    usual_metric = "labels"
    vocabularies = ("vocab_size", "label_vocab_size")

    model: Classifier

    def labels(self, texts: Iterable[str | tuple[str, str]], best: int = 1) -> list[list[Blank]]:
        """Return the `best` likeliest labels of each text, pair of texts, or token.

        The result has a list per text, with one list of guesses for the text or for each of its
        tokens, likeliest first; ties go to the lower id. `Guess.token` is the label, `Guess.text`
        the text or token that it belongs to. Texts of similar length are computed together. A
        warning lists what training never saw. Raises `UserError` for a text without tokens, with
        more than `max_source_length`, of which at least half was not seen in training, or with
        another number of columns than the training data; `UsageError` if `best` is below 1.
        """
        check_best(best)
        texts = checked_texts(texts, "labels", self.columns)
        ids = self.source.encode_all(texts)
        for text, row in zip(texts, ids, strict=True):
            self.check_seen(text)
            self.check_columns(text)
            if not 0 < len(row) <= self.max_source_length:
                raise UserError(
                    f"{text[:40]!r} has {len(row)} tokens; this model reads 1 to "
                    f"{self.max_source_length}"
                )
        self.warn_unread(texts)
        whole = self.model.config.labels == "text"
        found: dict[int, list[Blank]] = {}
        for together in similar(ids):
            rows = self.model(Packed.of([ids[i] for i in together]), inference=True)
            log_p, _ = ops.log_softmax(to_host(rows)[:, len(SPECIALS) :])  # they are never a label
            order = np.argsort(-log_p, axis=1, kind="stable")[:, :best]
            likeliest = iter(zip(log_p, order, strict=True))
            for i in together:
                pieces = [texts[i]] if whole else self.source.tokens(ids[i])
                found[i] = [self._blank(piece, *next(likeliest)) for piece in pieces]
        return [found[i] for i in range(len(ids))]

    @property
    def label_names(self) -> list[str]:
        """All labels, in the order of their ids."""
        return self.target.tokens(range(len(SPECIALS), self.model.config.label_vocab_size))

    def _blank(self, text: str, log_p: np.ndarray, labels: np.ndarray) -> Blank:
        """Make the guesses of the labels with the numbers `labels`, which count from 0.

        text: the text or token that they belong to. log_p: of all labels, (number of labels,).
        """
        first = len(SPECIALS)
        return [
            Guess(self.target.decode([i + first]), float(np.exp(log_p[i])), text) for i in labels
        ]

    def guesses(self, text: str, best: int = 5) -> list[Blank]:
        """Return the `best` likeliest labels of one text, or of each token, as `labels` does."""
        return self.labels([text], best)[0]

    def generate(self, texts: Iterable[str | tuple[str, str]]) -> list[str]:
        """Return the likeliest label of each text.

        Labels of tokens are separated by spaces. A tuple is a pair of texts.
        """
        found = self.labels(checked_texts(texts, "generate", self.columns))
        return [" ".join(token[0].token for token in tokens) for tokens in found]

    def check_columns(self, text: str) -> None:
        """Raise `UserError` if a text has another number of columns than the training data.

        If the training data had one, every text is accepted, except that with another program's
        tokenizer a text may have no tab.
        """
        super().check_columns(text)
        if "\t" in text and not isinstance(self.source, Tokenizer):
            raise UserError(
                "a tab is between a pair of texts, and a model of Hugging Face's reads one text "
                f"here; {text[:40]!r} has a tab: write a space in its place"
            )

    def _read(self, text: str, answer: str | None) -> dict[str, Sequence[int]]:
        """Run the model on a text, for observers.

        Return the token ids that its stack read.
        """
        ids = self.source.encode(text)
        self.model(Packed.of([ids]), inference=True)
        return {"encoder": ids}

    def encode(
        self, pairs: Sequence[TextPair], *, max_tokens: int, first_target_only: bool = False
    ) -> Examples:
        """Tokenize pairs of a text and its label, or the labels of its tokens.

        Raises `UserError` for a pair with several targets, for a target that is not exactly one
        label, or one label per token of the text, for a text with another number of columns, and if
        nothing is left. Texts with more than `max_tokens` are left out, with a warning.
        """
        several = next((pair for pair in pairs if len(pair.targets) > 1), None)
        if several is not None:
            raise UserError(
                f"{several.source[:40]!r} has a list of {len(several.targets)} labels, expected "
                "one text; leave one, or write the labels of its tokens with spaces between them"
            )
        for pair in pairs:
            self.check_columns(pair.source)
        examples = encode_pairs(
            pairs, self.source, self.target, max_tokens=max_tokens, first_target_only=True
        )
        labels = examples.target.lengths - 2
        tokens = examples.source.lengths if self.model.config.labels == "token" else 1
        wrong = np.flatnonzero(labels != tokens)
        if len(wrong):
            text = self.source.decode(examples.source.select(wrong[:1]).tokens.tolist())
            expected = "one for each of its tokens" if np.ndim(tokens) else "one"
            count = int(labels[wrong[0]])
            raise UserError(
                f"{text[:40]!r} has {count} {plural(count, 'label')}, expected {expected}; "
                'tokenizer.target_kind = "label" makes one of a whole target, "word" of each word'
            )
        return examples

    def validation(
        self, pairs: Sequence[TextPair], metric: str, most: int
    ) -> Callable[[Any], Mapping[str, float]] | None:
        """Return a function that predicts the labels of all held-out pairs and scores them.

        It returns the scores by name; its argument is ignored. None without pairs. metric: "none"
        is the usual one for labels.
        """
        if not pairs:
            return None
        longest = self.max_source_length
        examples = self.encode(pairs, max_tokens=longest, first_target_only=True)
        batches = held_out_batches(examples, max(4096, 2 * longest + 2))
        return lambda _: self._measured(batches, metric, False)[0].values

    def _completed(
        self, scores: Scores, batches: Sequence[Batch], pairs: Sequence[TextPair], metric: str
    ) -> Scores:
        """Add the metric, the accuracy and the calibration error to scores.

        A true label that training never saw counts as an error.
        """
        measured, p, right = self._measured(batches, metric, True)
        error = calibration_error(p, right)
        record = {**measured.record, "calibration_error": error}
        sure = f"{error:.1%} off: {p.mean():.1%} sure, {right.mean():.1%} right"
        rows = {**measured.rows, "calibration": sure}
        measured = measured._replace(record=record, rows=rows)
        return replace(scores, accuracy=float(right.mean()), measured=measured)

    def _measured(
        self, batches: Sequence[Batch], metric: str, intervals: bool
    ) -> tuple[Measured, np.ndarray, np.ndarray]:
        """Predict the labels of batches.

        Return (metric, probability of each prediction, whether it is right). The predicted label is
        the likeliest one; special tokens are never predicted.
        """
        parts = []
        for batch in batches:
            rows, wanted, _ = self.model.predicting(batch, None, inference=True)
            log_p, _ = ops.log_softmax(to_host(self.model.output(rows))[:, len(SPECIALS) :])
            found = log_p.argmax(axis=1)
            parts.append((found + len(SPECIALS), to_host(wanted), np.exp(log_p.max(axis=1))))
        found, wanted, p = map(np.concatenate, zip(*parts, strict=True))
        answers, references = (self.target.tokens(ids.tolist()) for ids in (found, wanted))
        scored = METRICS[self.usual_metric if metric == "none" else metric]
        measured = scored.compute(answers, [[label] for label in references], intervals)
        return measured, p.astype(np.float64), found == wanted

"""Scores of a trained model on held-out pairs or texts, by model family."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pellucid.core.batch import Batch
from pellucid.data.batches import Examples, encode_texts
from pellucid.data.pairs import TextPair, gathered
from pellucid.data.tokenizers import Tokenizer
from pellucid.evaluation.metric import Measured, Metric
from pellucid.evaluation.metrics import METRICS
from pellucid.pipelines import CausalLMPipeline, MaskedLMPipeline, Seq2SeqPipeline

_log = logging.getLogger(__name__)

_LARGEST = math.log(sys.float_info.max)


@dataclass(frozen=True)
class Scores:
    """A model's scores on held-out data."""

    loss: float
    """Nats per token predicted."""
    pairs: int
    """How many pairs, or texts."""
    kind: Literal["pairs", "texts", "hidden"] = "pairs"
    """What was predicted: targets, whole texts, or masked tokens."""
    measured: Measured | None = None
    """What the metric of the settings found, if they name one."""
    accuracy: float | None = None
    """Share of the masked tokens that the model predicts first."""

    @property
    def unit(self) -> str:
        """What is counted: pairs or texts."""
        return "pairs" if self.kind == "pairs" else "texts"

    @property
    def perplexity(self) -> float | None:
        """exp(loss): the loss as a number of equally likely tokens; None beyond float64."""
        return math.exp(self.loss) if self.loss <= _LARGEST else None

    def as_json(self) -> dict[str, Any]:
        """Return the scores by name; a perplexity beyond float64 is None."""
        return {
            self.unit: self.pairs,
            "loss": self.loss,
            "perplexity": self.perplexity,
            **({} if self.accuracy is None else {"accuracy": self.accuracy}),
            **(self.measured.record if self.measured else {}),
        }

    def written(self) -> dict[str, str]:
        """Return the scores by name, written out."""
        per = {"pairs": "target token", "texts": "token", "hidden": "masked token"}[self.kind]
        rows = {
            self.unit: f"{self.pairs:,}",
            "loss": f"{self.loss:.4f} nats per {per} (perplexity {self._written_perplexity()})",
        }
        if self.accuracy is not None:
            rows["accuracy"] = f"{self.accuracy:.2%} of the masked tokens predicted"
        return {**rows, **(self.measured.rows if self.measured else {})}

    def _written_perplexity(self) -> str:
        if self.perplexity is None:
            return "inf"
        return f"{self.perplexity:{'.3f' if self.perplexity < 1e6 else '.3e'}}"


class HeldOut(NamedTuple):
    """Held-out data as a model reads it, and the loss on it."""

    pairs: Sequence[TextPair]
    examples: Examples
    batches: Sequence[Batch]
    loss: float


def encode_targets(
    trained: CausalLMPipeline | MaskedLMPipeline,
    pairs: Sequence[TextPair],
    *,
    max_tokens: int,
    first_target_only: bool,
) -> Examples:
    """Tokenize the texts of a model of one text: each pair's first target.

    Without a begin token in front a text's first token is read, not predicted.
    """
    ids = trained.model.config
    begins = not isinstance(trained, CausalLMPipeline) or trained.begins
    return encode_texts(
        [pair.target for pair in pairs],
        trained.tokenizer,
        begin=[ids.bos_token_id] if begins else [],
        end=ids.eos_token_id,
        max_tokens=max_tokens,
    )


def evaluate_answers(trained: Seq2SeqPipeline, held_out: HeldOut, metric: str) -> Scores:
    """Score an encoder-decoder: the loss of each pair's first target, and its answers.

    A metric compares each answer with all of a pair's targets; error rates with those of all pairs
    of its source, which count once.
    """
    loss, pairs = held_out.loss, held_out.pairs
    if metric == "none":
        return Scores(loss, len(held_out.examples), "pairs")
    measured = _answering(trained, pairs, METRICS[metric])(True)
    return Scores(loss, len(pairs), "pairs", measured)


def evaluate_texts(trained: CausalLMPipeline, held_out: HeldOut, metric: str) -> Scores:
    """Score a decoder alone: its loss."""
    return Scores(held_out.loss, len(held_out.examples), "texts")


def evaluate_masked(trained: MaskedLMPipeline, held_out: HeldOut, metric: str) -> Scores:
    """Score an encoder alone: its loss, and how many of the masked tokens it guesses."""
    counts = [trained.model.count_right(batch) for batch in held_out.batches]
    right, hidden = (sum(column) for column in zip(*counts, strict=True))
    return Scores(held_out.loss, len(held_out.examples), "hidden", accuracy=right / max(hidden, 1))


def validation_metric(
    trained: Seq2SeqPipeline, pairs: Sequence[TextPair], metric: str, most: int
) -> Callable[[Any], Mapping[str, float]]:
    """Return the function that scores answers to at most `most` held-out pairs at a validation."""
    tried = min(len(pairs), most)
    some = [pairs[i * len(pairs) // tried] for i in range(tried)]  # sorted pairs differ by place
    measure = _answering(trained, some, METRICS[metric])
    return lambda _: measure(False).values


def right_answers(trained: Seq2SeqPipeline, pair: TextPair) -> list[str]:
    """Return a pair's targets normalised as its tokenizer does it: the model writes no other."""
    return [trained.target.normalised(text) for text in pair.targets]


def _units(trained: Seq2SeqPipeline, text: str) -> Sequence[str]:
    """Return what errors in a text are counted in: characters or words, as the target has them."""
    return trained.target.units(text) if isinstance(trained.target, Tokenizer) else list(text)


def _answering(
    trained: Seq2SeqPipeline, pairs: Sequence[TextPair], metric: Metric
) -> Callable[[bool], Measured]:
    """Return what answers all sources and measures the answers, with intervals or without.

    A long source is answered in parts, as `pellucid generate` does it. One with a sentence that is
    too long has an empty answer, and a warning says how many there are.
    """
    pairs = gathered(pairs) if metric.by_unit else pairs
    references: Any = [pair.targets for pair in pairs]
    if metric.by_unit:
        right = [right_answers(trained, pair) for pair in pairs]
        references = [[_units(trained, text) for text in some] for some in right]
    parts = [trained.parts(pair.source) for pair in pairs]
    if unread := parts.count(None):
        _log.warning(
            "%s of %s sources have a sentence of more than %d tokens, which this model cannot "
            "read; their answers count as empty",
            f"{unread:,}",
            f"{len(pairs):,}",
            trained.longest,
        )

    def measure(intervals: bool) -> Measured:
        found = iter(trained.best([part for some in parts for part in some or ()]))
        answers: Any = [" ".join(next(found) for _ in some or ()) for some in parts]
        if metric.by_unit:
            answers = [_units(trained, text) for text in answers]
        return metric.compute(answers, references, intervals)

    return measure

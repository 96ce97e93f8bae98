"""What a trained model is worth on pairs, or texts, that it was not trained on."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pellucid.core.batch import Batch
from pellucid.data.batches import Examples
from pellucid.data.pairs import Pair
from pellucid.data.texts import encode_texts
from pellucid.evaluation.bleu import Figure, bleu
from pellucid.evaluation.error_rates import ErrorRates, error_rates
from pellucid.evaluation.metrics import SCORES
from pellucid.pipelines import CausalLMPipeline, MaskedLMPipeline, Seq2SeqPipeline

_log = logging.getLogger(__name__)

_LARGEST = math.log(sys.float_info.max)


@dataclass(frozen=True)
class Scores:
    """What a model is worth on pairs that it was not trained on."""

    loss: float
    """Nats per token predicted."""
    pairs: int
    """How many pairs, or texts."""
    kind: Literal["pairs", "texts", "hidden"] = "pairs"
    """What was predicted: targets, whole texts, or the tokens hidden in texts."""
    rates: ErrorRates | None = None
    """If the settings ask for them."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """BLEU and chrF, if the settings ask for them, under the names that a monitor has."""
    accuracy: float | None = None
    """Share of the hidden tokens that were the likeliest in their places."""

    @property
    def unit(self) -> str:
        """What is counted: pairs or texts."""
        return "pairs" if self.kind == "pairs" else "texts"

    @property
    def perplexity(self) -> float | None:
        """The loss as so many tokens equally likely; None where no number is as large."""
        return math.exp(self.loss) if self.loss <= _LARGEST else None

    def as_json(self) -> dict[str, Any]:
        """Return the scores by name; a perplexity that no number can say is None."""
        rates = self.rates._asdict() if self.rates else {}
        return {
            self.unit: self.pairs,
            "loss": self.loss,
            "perplexity": self.perplexity,
            **({} if self.accuracy is None else {"accuracy": self.accuracy}),
            **rates,
            **{name: figure._asdict() for name, figure in self.figures.items()},
        }

    def written(self) -> dict[str, str]:
        """Return the scores by name, written out."""
        per = {"pairs": "target token", "texts": "token", "hidden": "hidden token"}[self.kind]
        rows = {
            self.unit: f"{self.pairs:,}",
            "loss": f"{self.loss:.4f} nats per {per} (perplexity {self._written_perplexity()})",
        }
        if self.accuracy is not None:
            rows["accuracy"] = f"{self.accuracy:.2%} of the hidden tokens guessed"
        if self.rates:
            for name, value, (low, high) in (
                ("PER", self.rates.per, self.rates.per_interval),
                ("WER", self.rates.wer, self.rates.wer_interval),
            ):
                rows[name] = f"{value:.2%} (95 %: {low:.2%} to {high:.2%})"
        return {**rows, **{figure.name: figure.written() for figure in self.figures.values()}}

    def _written_perplexity(self) -> str:
        if self.perplexity is None:
            return "beyond all numbers"
        return f"{self.perplexity:{'.3f' if self.perplexity < 1e6 else '.3e'}}"


class HeldOut(NamedTuple):
    """Held-out data as a model reads it, and the loss on it."""

    pairs: Sequence[Pair]
    examples: Examples
    batches: Sequence[Batch]
    loss: float


def encode_targets(
    trained: CausalLMPipeline | MaskedLMPipeline,
    pairs: Sequence[Pair],
    *,
    max_tokens: int,
    first_target_only: bool,
) -> Examples:
    """Tokenize the texts of a model of one text: each pair's first target."""
    ids = trained.model.config
    return encode_texts(
        [pair.target for pair in pairs],
        trained.tokenizer,
        begin=ids.bos_token_id,
        end=ids.eos_token_id,
        max_tokens=max_tokens,
    )


def evaluate_answers(trained: Seq2SeqPipeline, held_out: HeldOut, metric: str) -> Scores:
    """Score an encoder-decoder: the loss of each pair's first target, and its answers.

    Error rates count the nearest of a pair's targets, each normalised as the model learnt it. BLEU
    and chrF count the targets as they are written, but for NFC.
    """
    loss, pairs = held_out.loss, held_out.pairs
    if metric == "none":
        return Scores(loss, len(held_out.examples), "pairs")
    answers = _answering(trained, pairs)()
    if metric == "bleu":
        return Scores(loss, len(pairs), "pairs", figures=_figures(answers, pairs))
    rates = error_rates(answers, [right_answers(trained, pair) for pair in pairs])
    return Scores(loss, len(pairs), "pairs", rates)


def evaluate_texts(trained: CausalLMPipeline, held_out: HeldOut, metric: str) -> Scores:
    """Score a decoder alone: its loss."""
    return Scores(held_out.loss, len(held_out.examples), "texts")


def evaluate_masked(trained: MaskedLMPipeline, held_out: HeldOut, metric: str) -> Scores:
    """Score an encoder alone: its loss, and how many of the masked tokens it guesses."""
    counts = [trained.model.count_right(batch) for batch in held_out.batches]
    right, hidden = (sum(column) for column in zip(*counts, strict=True))
    return Scores(held_out.loss, len(held_out.examples), "hidden", accuracy=right / max(hidden, 1))


def validation_metric(
    trained: Seq2SeqPipeline, pairs: Sequence[Pair], metric: str, most: int
) -> Callable[[Any], Mapping[str, float]]:
    """Return what scores the answers to at most so many held-out pairs at each validation."""
    tried = min(len(pairs), most)
    some = [pairs[i * len(pairs) // tried] for i in range(tried)]  # sorted pairs differ by place
    answering = _answering(trained, some)

    def scores(_: Any) -> Mapping[str, float]:
        answers = answering()
        if metric == "bleu":
            figures = _figures(answers, some, intervals=False)
            return {name: figure.value for name, figure in figures.items()}
        rates = error_rates(answers, [right_answers(trained, pair) for pair in some])
        return {"per": rates.per, "wer": rates.wer}

    return scores


def right_answers(trained: Seq2SeqPipeline, pair: Pair) -> list[str]:
    """Return a pair's targets normalised as the model learnt them: it can say them no other way."""
    return [trained.target.normalised(text) for text in pair.targets]


def _figures(
    answers: Sequence[str], pairs: Sequence[Pair], intervals: bool = True
) -> dict[str, Figure]:
    """Return BLEU and chrF of one answer a pair, under the names that a monitor has."""
    counted = bleu(answers, [pair.targets for pair in pairs], intervals)
    return dict(zip(SCORES["bleu"], counted, strict=True))


def _answering(trained: Seq2SeqPipeline, pairs: Sequence[Pair]) -> Callable[[], list[str]]:
    """Return what answers all sources as `pellucid generate` does: a long one in parts.

    One that cannot be read even so has an empty answer, and a warning says how many.
    """
    parts = [trained.parts(pair.source) for pair in pairs]
    if unread := parts.count(None):
        _log.warning(
            "%s of %s sources hold a sentence of more than %d tokens, which this model cannot "
            "read; they count as answered with nothing",
            f"{unread:,}",
            f"{len(pairs):,}",
            trained.longest,
        )

    def answers() -> list[str]:
        said = iter(trained.best([part for some in parts for part in some or ()]))
        return [" ".join(next(said) for _ in some or ()) for some in parts]

    return answers

"""What a trained model is worth on pairs, or texts, that it was not trained on."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pellucid.data.batches import Examples, encode_pairs, held_out_batches
from pellucid.data.pairs import Pair
from pellucid.data.texts import encode_texts
from pellucid.evaluation.bleu import Figure, bleu
from pellucid.evaluation.error_rates import ErrorRates, error_rates
from pellucid.pipelines import MaskedLMPipeline, Pipeline, Seq2SeqPipeline
from pellucid.training.config import SCORES
from pellucid.training.recipe import RunConfig
from pellucid.training.step import held_out_loss

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


def encode(
    trained: Pipeline, pairs: Sequence[Pair], config: RunConfig, first_target_only: bool
) -> Examples:
    """Cut pairs into tokens as the model reads them; one half alone reads their targets."""
    most = config.data.max_tokens
    if isinstance(trained, Seq2SeqPipeline):
        return encode_pairs(
            pairs,
            trained.source,
            trained.target,
            max_tokens=most,
            first_target_only=first_target_only,
        )
    ids = trained.model.config
    return encode_texts(
        [pair.target for pair in pairs],
        trained.tokenizer,
        begin=ids.bos_token_id,
        end=ids.eos_token_id,
        max_tokens=most,
    )


def score(trained: Pipeline, pairs: Sequence[Pair], config: RunConfig) -> Scores:
    """Score a model on pairs.

    The loss is that of each pair's first target. Error rates count the nearest of a pair's targets,
    each normalised as the model learnt it. BLEU and chrF count the targets as they are written, but
    for NFC.
    """
    examples = encode(trained, pairs, config, first_target_only=True)
    batches = held_out_batches(examples, config.data.batch_tokens)
    loss = held_out_loss(trained.model, batches)
    trained.model.eval()
    if isinstance(trained, MaskedLMPipeline):
        counts = [trained.model.count_right(batch) for batch in batches]
        right, hidden = (sum(column) for column in zip(*counts, strict=True))
        return Scores(loss, len(examples), "hidden", accuracy=right / max(hidden, 1))
    if not isinstance(trained, Seq2SeqPipeline):
        return Scores(loss, len(examples), "texts")
    metric = config.evaluation.metric
    if metric == "none":
        return Scores(loss, len(examples), "pairs")
    answers = _answering(trained, pairs)()
    if metric == "bleu":
        return Scores(loss, len(pairs), "pairs", figures=_figures(answers, pairs))
    rates = error_rates(answers, [right_answers(trained, pair) for pair in pairs])
    return Scores(loss, len(pairs), "pairs", rates)


def validation_metric(
    trained: Pipeline, pairs: Sequence[Pair], config: RunConfig
) -> Callable[[Any], Mapping[str, float]] | None:
    """Return what scores some held-out pairs at each validation."""
    if config.evaluation.metric == "none" or not pairs or not isinstance(trained, Seq2SeqPipeline):
        return None
    tried = min(len(pairs), config.evaluation.pairs)
    some = [pairs[i * len(pairs) // tried] for i in range(tried)]  # sorted pairs differ by place
    answering = _answering(trained, some)

    def metric(_: Any) -> Mapping[str, float]:
        answers = answering()
        if config.evaluation.metric == "bleu":
            figures = _figures(answers, some, intervals=False)
            return {name: figure.value for name, figure in figures.items()}
        rates = error_rates(answers, [right_answers(trained, pair) for pair in some])
        return {"per": rates.per, "wer": rates.wer}

    return metric


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

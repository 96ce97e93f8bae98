"""A corpus, a metric, an optimizer and a kind of model of one's own: English number words.

Installed (`pip install ./examples/outside`), its entry point makes the names known. As a file:

pellucid train examples/outside/value.toml --import examples/outside/pellucid_numbers.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pellucid.core.array import like, to_host
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.core.rng import Rng
from pellucid.data.batches import Examples
from pellucid.data.corpora import CORPORA, Corpus
from pellucid.data.pairs import Splits, TextPair
from pellucid.data.tokenizers import BOS, EOS
from pellucid.models.classifier import Classifier
from pellucid.models.config import ClassifierConfig
from pellucid.models.output import LossSum
from pellucid.nn.module import single_use
from pellucid.optim import OPTIMIZERS, Optimizer
from pellucid.tasks import TASKS, ClassifierTask
from pellucid.tasks.masked_lm import Blank, Guess
from pellucid.tasks.metric import Measured, Metric
from pellucid.tasks.metrics import METRICS
from pellucid.tasks.scores import Scores

# a corpus -----------------------------------------------------------------------------------------

ONES = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def words(number: int) -> str:
    """Return a number below 1,000 in words.

    >>> words(342)
    'three hundred forty two'
    """
    hundreds, rest = divmod(number, 100)
    spoken = [ONES[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        spoken += [TENS[rest // 10 - 2], *([ONES[rest % 10]] if rest % 10 else [])]
    elif rest or not spoken:
        spoken += [ONES[rest]]
    return " ".join(spoken)


def read(split: str) -> Splits:
    """Return (words, digits) of all numbers below 1,000: tenths are held out."""
    pairs = [
        TextPair(words(n), (f"{n / 100:g}" if split == "values" else f"{n}",)) for n in range(1000)
    ]
    order = np.random.default_rng(0).permutation(1000)
    parts = [tuple(pairs[i] for i in some) for some in np.split(order, [800, 900])]
    return Splits(*parts)


CORPORA["numbers"] = Corpus(
    name="numbers",
    about="English number words: their digits, or their values in hundreds",
    origin="made by a rule",
    licence="none needed",
    citation="",
    read=read,
    files=(),
    splits=("digits", "values"),
)

# a metric -----------------------------------------------------------------------------------------


def off_by(
    answers: Sequence[str], references: Sequence[Sequence[str]], intervals: bool
) -> Measured:
    """Return the median distance between numbers; an answer that is none is 1,000 off."""
    pairs = zip(answers, references, strict=True)
    distances = [min(abs(int(a) - int(r)) for r in rs) if a.isdigit() else 1000 for a, rs in pairs]
    middle = float(np.median(distances))
    return Measured({"off_by": middle}, {"off_by": middle}, {"off by": f"{middle:g} (median)"})


METRICS["distance"] = Metric(
    name="distance", about="how far numbers are off", scores={"off_by": False}, compute=off_by
)

# an optimizer -------------------------------------------------------------------------------------


def sgd(
    theta: Any,
    gradient: Any,
    states: tuple[Any, ...],
    *,
    step: int,
    lr: float,
    momentum: float = 0.9,
) -> tuple[Any, tuple[Any]]:
    """Return θ and its momentum after a step: m ← μ m + g, θ ← θ − lr m. Source: Polyak 1964."""
    (m,) = states
    m = momentum * m + gradient
    return theta - lr * m, (m,)


OPTIMIZERS["sgd"] = Optimizer(
    name="sgd",
    about="gradient descent with momentum (Polyak 1964)",
    states=("momentum_buffer",),
    step=sgd,
    settings={"momentum": 0.9},  # settings of `OptimizerConfig` that it reads
)

# a kind of model ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RegressorConfig(ClassifierConfig):
    """The settings of a `Regressor`; `model_type` is its name in recipes and config.json."""

    model_type: Literal["pellucid-numbers"] = field(default="pellucid-numbers", init=False)
    label_vocab_size: int = 1
    """Outputs of the last layer."""


class Regressor(Classifier):
    """A number for a text: the encoder's mean row, and a layer with one output."""

    def loss(
        self, batch: Batch, rng: Rng | None = None, label_smoothing: float = 0.0
    ) -> tuple[LossSum, Callable[[float], None]]:
        """Return Σ ½(ŷ − y)², −log p of a normal distribution less a constant, and its backward."""
        found, backward = self.forward(batch.source, rng=rng)
        error = found[:, 0] - like(numbers(batch).astype(to_host(found).dtype), found)
        nats = float((error * error).sum()) / 2

        @single_use
        def loss_backward(scale: float = 1.0) -> None:
            backward(scale * error[:, None])

        return LossSum(nats, len(batch)), loss_backward


def numbers(batch: Batch) -> np.ndarray:
    """Return the targets of a batch: each is one token, the bits of its float64."""
    return batch.target.tokens.reshape(-1, 3)[:, 1].view(np.float64)


@dataclass(frozen=True)
class RegressionTask(ClassifierTask):
    """A `Regressor` in eval mode with its tokenizer."""

    name = "pellucid-numbers"
    about = "A Transformer's encoder that reads a number out of a text."
    config_class = RegressorConfig
    model_class = Regressor
    vocabularies = ("vocab_size",)

    def encode(
        self, pairs: Sequence[TextPair], *, max_tokens: int, first_target_only: bool = False
    ) -> Examples:
        """Tokenize texts; raise `UserError` for a target that is no number."""
        rows = self.source.encode_all([pair.source for pair in pairs])
        kept = [
            (row, pair) for row, pair in zip(rows, pairs, strict=True) if 0 < len(row) <= max_tokens
        ]
        try:
            wanted = np.array([float(pair.targets[0]) for _, pair in kept])
        except ValueError as error:
            raise UserError(f"a target is not a number: {error}") from None
        targets = [[BOS, bits, EOS] for bits in wanted.view(np.int64).tolist()]
        return Examples(
            Packed.of([row for row, _ in kept]), Packed.of(targets), len(rows) - len(kept)
        )

    def values(self, texts: Sequence[str]) -> np.ndarray:
        """Return a number for each text: (N,)."""
        ids = self.source.encode_all(texts)
        return to_host(self.model(Packed.of(ids), inference=True))[:, 0]

    def generate(self, texts: Sequence[str]) -> list[str]:
        """Return the numbers as texts."""
        return [f"{value:.4g}" for value in self.values(texts)]

    def guesses(self, text: str, best: int = 5) -> list[Blank]:
        """Return the number for `pellucid generate`, which has no probability."""
        return [[Guess(self.generate([text])[0], None, text)]]

    def validation(self, pairs: Sequence[TextPair], metric: str, most: int) -> None:
        """Give no scores while training but the loss: numbers are no labels."""

    def _completed(
        self, scores: Scores, batches: Sequence[Batch], pairs: Sequence[TextPair], metric: str
    ) -> Scores:
        """Add the root of the mean squared error, and the share of the variance explained."""
        right = np.concatenate([numbers(batch) for batch in batches])
        found = np.concatenate([self.model(b.source, inference=True)[:, 0] for b in batches])
        rmse = float(np.sqrt(np.mean((found - right) ** 2)))
        both = {"rmse": rmse, "r2": 1 - rmse**2 / float(np.var(right))}
        written = {"RMSE": f"{rmse:.4g}", "R²": f"{both['r2']:.2%}"}
        return replace(scores, measured=Measured(both, both, written))


TASKS[RegressionTask.name] = RegressionTask

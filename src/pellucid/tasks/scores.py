"""Scores of a model on held-out data, the loss first."""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pellucid.core.batch import Batch
from pellucid.system.language import Language, Text
from pellucid.tasks.metric import Measured

Kind = Literal["answer", "continue", "fill", "label"]
"""Kinds of tasks, by the use of a text."""

_PREDICTED = {
    "answer": Text("target token", "정답 토큰"), "continue": Text("token", "토큰"),
    "fill": Text("masked token", "가려진 토큰"), "label": Text("label", "레이블"),
}  # fmt: skip
_COUNTED = {"pairs": Text("pairs", "쌍"), "texts": Text("texts", "텍스트")}
_LARGEST = math.log(sys.float_info.max)


def held_out_loss(model: Any, batches: Iterable[Batch]) -> float:
    """Return the loss in nats per target token, with dropout and label smoothing off.

    The model is left in eval mode.
    """
    model.eval()
    return mean_loss(loss_sum(model, batch) for batch in batches)


def loss_sum(model: Any, batch: Batch) -> tuple[float, int]:
    """Return the summed loss of a batch, in nats, and how many target tokens it has."""
    loss, _ = model.loss(batch)
    return loss.nats, loss.tokens


def mean_loss(sums: Iterable[tuple[float, float]]) -> float:
    """Return the nats per token of several batches, added in their order.

    >>> mean_loss([(1.0, 2), (3.0, 2)])
    1.0
    """
    nats, tokens = 0.0, 0.0
    for more, count in sums:
        nats += more
        tokens += count
    return nats / max(tokens, 1)


@dataclass(frozen=True)
class Scores:
    """A model's scores on held-out data."""

    loss: float
    """Nats per token predicted."""
    pairs: int
    """How many pairs, or texts."""
    kind: Kind = "answer"
    """By it, what was predicted: targets, whole texts, masked tokens, or labels."""
    measured: Measured | None = None
    """The result of the metric in the settings, if they name one."""
    accuracy: float | None = None
    """Share of the masked tokens, or labels, that the model predicts first."""

    @property
    def unit(self) -> str:
        """The unit that is counted: pairs or texts."""
        return "pairs" if self.kind == "answer" else "texts"

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

    def __str__(self) -> str:
        return "\n".join(f"{name:10} {value}" for name, value in self.written().items())

    def written(self, language: Language = "en") -> dict[str, str]:
        """Return the scores by name, written out."""
        per = _PREDICTED[self.kind].to(language)
        value = self.perplexity
        even = "inf" if value is None else f"{value:{'.3f' if value < 1e6 else '.3e'}}"
        rows = {_COUNTED[self.unit].to(language): f"{self.pairs:,}"}
        measured = {**self.measured.rows, **self.measured.details} if self.measured else {}
        if language == "ko":
            rows["손실"] = f"{per}당 {self.loss:.4f} nat(퍼플렉서티 {even})"
            if self.accuracy is not None:
                rows["정확도"] = f"{per}의 {self.accuracy:.2%}를 맞힘"
            return rows | {name: value.replace(" to ", "–") for name, value in measured.items()}
        rows["loss"] = f"{self.loss:.4f} nats per {per} (perplexity {even})"
        if self.accuracy is not None:
            rows["accuracy"] = f"{self.accuracy:.2%} of the {per}s predicted"
        return rows | dict(measured)

"""Scores of a model on held-out data: the loss, and the results of a metric."""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pellucid.core.batch import Batch
from pellucid.system.language import Language, Text
from pellucid.tasks.metric import Measured

Kind = Literal["answer", "continue", "fill", "label"]
"""Kinds of task; see `Task.kind`."""

_PREDICTED = {
    "answer": Text("target token", "정답 토큰"), "continue": Text("token", "토큰"),
    "fill": Text("masked token", "가려진 토큰"), "label": Text("label", "레이블"),
}  # fmt: skip
_COUNTED = {"pairs": Text("pairs", "쌍"), "texts": Text("texts", "텍스트")}
_LARGEST = math.log(sys.float_info.max)


def held_out_loss(model: Any, batches: Iterable[Batch]) -> float:
    """Compute the mean loss in nats per predicted token, in eval mode; 0 without batches.

    Dropout and label smoothing are off; the model is left in eval mode.
    """
    model.eval()
    return mean_loss(loss_sum(model, batch) for batch in batches)


def loss_sum(model: Any, batch: Batch) -> tuple[float, int]:
    """Compute the summed loss of a batch in nats, without label smoothing.

    Return it with the number of predicted tokens. model: in eval mode, which turns dropout off.
    """
    loss, _ = model.loss(batch)
    return loss.nats, loss.tokens


def mean_loss(sums: Iterable[tuple[float, float]]) -> float:
    """Compute the mean loss in nats per token from (summed loss, tokens) of batches; 0 for none.

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
    """Mean loss in nats per predicted token."""
    pairs: int
    """Number of pairs, or of texts; each block of a long text counts for a decoder alone."""
    kind: Kind = "answer"
    """The kind of task. It says what was predicted: targets, whole texts, masked tokens or
    labels."""
    measured: Measured | None = None
    """Result of the metric, if there is one."""
    accuracy: float | None = None
    """Share of masked tokens or labels whose likeliest prediction is right."""

    @property
    def unit(self) -> str:
        """The unit of `pairs`: "pairs" or "texts"."""
        return "pairs" if self.kind == "answer" else "texts"

    @property
    def perplexity(self) -> float | None:
        """exp(loss); None if it exceeds float64, or the loss is NaN."""
        return math.exp(self.loss) if self.loss <= _LARGEST else None

    def as_json(self) -> dict[str, Any]:
        """Return the scores as JSON values by name.

        A perplexity that exceeds float64 is None.
        """
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
        """Return the scores as text by name, in English or Korean."""
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

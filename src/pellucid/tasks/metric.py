"""The record of one metric: what compares a model's answers with references."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

RESAMPLES, SEED = 1000, 12345


class Measured(NamedTuple):
    """The result of a metric."""

    values: Mapping[str, float]
    """By the names of its scores."""
    record: Mapping[str, Any]
    """As JSON."""
    rows: Mapping[str, str]
    """Written out, by name."""
    details: Mapping[str, str] = MappingProxyType({})
    """More rows, where there is room for them."""


def check_references(outputs: Sequence[Any], references: Sequence[Sequence[Any]]) -> None:
    """Raise `ValueError` unless there are outputs, and references for each."""
    if len(outputs) != len(references) or not outputs:
        raise ValueError(
            f"expected one list of references for each output, at least one; got {len(outputs)} "
            f"outputs and {len(references)} lists"
        )
    for i, row in enumerate(references):
        if not row:
            raise ValueError(
                f"expected at least one reference for each output; output {i} has none"
            )


def bootstrap(
    count: int, statistics: Callable[[np.ndarray], Sequence[float]]
) -> list[tuple[float, float]]:
    """Return the middle 95 % of each statistic over samples drawn with replacement (Efron 1979).

    statistics: of the numbers of what was drawn, of `count`. The seed is fixed, so the same answers
    give the same intervals.
    """
    draws = np.random.default_rng(SEED)
    values = [statistics(draws.integers(0, count, count)) for _ in range(RESAMPLES)]
    low, high = np.percentile(values, (2.5, 97.5), axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


@dataclass(frozen=True)
class Metric:
    """How answers are scored. A new metric is one file with such a record, and its row in
    `METRICS`.
    """

    name: str
    """`evaluation.metric` in the settings."""
    about: str
    scores: Mapping[str, bool]
    """The scores that it gives, by the names that a monitor has; whether higher is better."""
    compute: Callable[[Sequence[Any], Sequence[Sequence[Any]], bool], Measured]
    """compute(answers, references of each, with intervals) -> what it found."""
    kind: str = "answer"
    """The kind of task that it scores: `Task.kind`."""
    by_unit: bool = False
    """Whether texts are compared unit by unit, in the characters or words of the model's tokenizer,
    and references are normalised first as it does it: then the model can write every one."""
    check: Callable[[], object] = lambda: None
    """Raise `UserError` where it cannot be computed, saying what to install."""

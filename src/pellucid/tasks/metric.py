"""The record of one metric: how a model's answers are compared with references."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

RESAMPLES, SEED = 1000, 12345


class Measured(NamedTuple):
    """The result of a metric."""

    values: Mapping[str, float]
    """The scores by name."""
    record: Mapping[str, Any]
    """All results as JSON values."""
    rows: Mapping[str, str]
    """The results as text, by name."""
    details: Mapping[str, str] = MappingProxyType({})
    """Further rows of text, to print if there is room."""


def check_references(outputs: Sequence[Any], references: Sequence[Sequence[Any]]) -> None:
    """Raise `ValueError` unless there is at least one output, and a reference for each."""
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
    """Compute 95 % intervals of statistics by the bootstrap (Efron 1979).

    Return (low, high) of each statistic, over `RESAMPLES` samples. count: number of answers.
    statistics: a function of the indices (count,) of a sample drawn with replacement; it returns
    the value of each. The seed is fixed, so the same answers give the same intervals.
    """
    draws = np.random.default_rng(SEED)
    values = [statistics(draws.integers(0, count, count)) for _ in range(RESAMPLES)]
    low, high = np.percentile(values, (2.5, 97.5), axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


@dataclass(frozen=True)
class Metric:
    """A metric of a model's answers.

    A new metric is one file with such a record, and an entry in `METRICS`.
    """

    name: str
    """Value of `evaluation.metric` in the settings."""
    about: str
    scores: Mapping[str, bool]
    """Names of its scores, for a monitor among others; True where higher is better."""
    compute: Callable[[Sequence[Any], Sequence[Sequence[Any]], bool], Measured]
    """compute(answers, references of each answer, whether to add intervals) -> the results."""
    kind: str = "answer"
    """Kind of task that it scores (`Task.kind`)."""
    by_unit: bool = False
    """Whether texts are compared as the characters or words of the model's tokenizer. References
    are then normalised as the tokenizer does, so that the model can generate each of them."""
    check: Callable[[], object] = lambda: None
    """Raises `UserError` if a package is missing, and says what to install."""

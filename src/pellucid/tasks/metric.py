"""The record of one metric: what compares a model's answers with references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """The result of a metric."""

    values: Mapping[str, float]
    """By the names of its scores."""
    record: Mapping[str, Any]
    """As JSON."""
    rows: Mapping[str, str]
    """Written out, by label."""


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
    by_unit: bool = False
    """Whether texts are compared unit by unit, in the characters or words of the model's tokenizer,
    and references are normalised first as it does it: then the model can write every one."""
    check: Callable[[], object] = lambda: None
    """Raise `UserError` where it cannot be computed, saying what to install."""

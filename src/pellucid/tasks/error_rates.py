"""Error rates of answers by their edit distances to references.

The rate counts edits per unit of the target's tokenizer. The setting `evaluation.metric` says what
the units are, and so the name of the rate: PER of phonemes, CER of letters.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pellucid.core.errors import optional
from pellucid.tasks.metric import Measured, Metric, bootstrap, check_references


class ErrorRates(NamedTuple):
    """Error rates over a set of answers."""

    per: float
    """Insertions, deletions and substitutions (Levenshtein 1966) / the length of the nearest
    reference, both summed over the set."""
    wer: float
    """Share of answers with any edit."""
    words: int
    per_interval: tuple[float, float] | None
    """95 % bootstrap interval over the answers."""
    wer_interval: tuple[float, float] | None


def error_rates(
    outputs: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    intervals: bool = True,
) -> ErrorRates:
    """Compute phoneme and word error rates, each output against its nearest reference.

    Of two equally near references the shorter one counts. A text is a string, compared by code
    points, or a list of words. If the nearest references are all empty, PER is the number of edits.
    intervals: add 95 % bootstrap intervals of 1,000 samples. Raises
    `ValueError` if the numbers of outputs and of reference lists differ or are 0, or if an output
    has no reference; `UserError` if rapidfuzz is not installed.

    >>> rates = error_rates(["abc", "ax"], [["abc"], ["ay", "abcd"]])
    >>> rates.per, rates.wer, rates.words
    (0.2, 0.5, 2)
    """
    check_references(outputs, references)
    distance = _rapidfuzz().Levenshtein.distance
    counts = []
    for output, allowed in zip(outputs, references, strict=True):
        errors, size = min((distance(output, text), len(text)) for text in allowed)
        counts.append((errors, size, errors > 0, 1))
    rows = np.array(counts, np.float64)
    edits, length, wrong, words = rows.sum(axis=0)
    found = ErrorRates(float(edits / max(length, 1)), float(wrong / words), len(rows), None, None)
    if not intervals:
        return found

    def drawn(some: np.ndarray) -> tuple[float, float]:
        edits, length, wrong, words = rows[some].sum(axis=0)
        return edits / max(length, 1), wrong / words

    per, wer = bootstrap(len(rows), drawn)
    return found._replace(per_interval=per, wer_interval=wer)


def compute(
    rate: str,
    outputs: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    intervals: bool,
) -> Measured:
    """Compute error rates as a metric; rate: the name of the first, "per" or "cer"."""
    rates = error_rates(outputs, references, intervals)
    record = {name.replace("per", rate): value for name, value in rates._asdict().items()}
    rows = {
        name.upper(): f"{record[name]:.2%}"
        + (f" (95 %: {interval[0]:.2%} to {interval[1]:.2%})" if interval else "")
        for name, interval in ((rate, rates.per_interval), ("wer", rates.wer_interval))
    }
    return Measured({name: record[name] for name in (rate, "wer")}, record, rows)


def _rapidfuzz() -> Any:
    needed = "phoneme and word error rates need rapidfuzz, which is not installed"
    return optional("rapidfuzz.distance", needed, extra="train")


def _metric(name: str, rate: str, unit: str) -> Metric:
    """Make the metric whose first score is `rate`, the edits per `unit`."""
    about = f"edits per {unit} ({rate.upper()}), and share of outputs with any edit (WER)"
    scores, measure = {rate: False, "wer": False}, partial(compute, rate)
    return Metric(name, about, scores, measure, by_unit=True, check=_rapidfuzz)


ERROR_RATES = (
    _metric("error_rates", "per", "phoneme, a word of a word tokenizer, else a character"),
    _metric("letter_error_rates", "cer", "letter"),
)

"""Error rates of answers by their edit distances to references.

"per" and PER, phoneme error rate, are the names of the first task, pronunciation. The rate counts
edits per unit of the target's tokenizer; where the units are letters, others call it CER.
"""

from collections.abc import Sequence
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
    outputs: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    intervals: bool,
) -> Measured:
    """Compute PER and WER as a metric; see `error_rates`."""
    rates = error_rates(outputs, references, intervals)
    rows = {
        name: f"{value:.2%}"
        + (f" (95 %: {interval[0]:.2%} to {interval[1]:.2%})" if interval else "")
        for name, value, interval in (
            ("PER", rates.per, rates.per_interval),
            ("WER", rates.wer, rates.wer_interval),
        )
    }
    return Measured({"per": rates.per, "wer": rates.wer}, rates._asdict(), rows)


def _rapidfuzz() -> Any:
    needed = "phoneme and word error rates need rapidfuzz, which is not installed"
    return optional("rapidfuzz.distance", needed, extra="train")


ERROR_RATES = Metric(
    name="error_rates",
    about="edits per character, or word of a word tokenizer (PER), and share of outputs with any "
    "edit (WER)",
    scores={"per": False, "wer": False},
    compute=compute,
    by_unit=True,
    check=_rapidfuzz,
)

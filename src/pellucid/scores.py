"""Phoneme and word error rate: how far what a model wrote lies from what is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ErrorRates(NamedTuple):
    """Error rates over a set of words."""

    per: float
    """Edits over the length of the nearest reference, both summed over the set; code points."""
    wer: float
    """Share of the words with any edit at all."""
    words: int


def edit_distance(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the fewest insertions, deletions and substitutions that turn `a` into `b`.

    Source: Levenshtein 1966; the row-by-row recurrence is Wagner & Fischer 1974.

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def error_rates(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> ErrorRates:
    """Score each output against the nearest of its references (the shorter, if two are as near).

    Raises `ValueError` when there are not as many references as outputs, or none at all.

    >>> error_rates(["abc", "ax"], [["abc"], ["ay", "abcd"]])
    ErrorRates(per=0.2, wer=0.5, words=2)
    """
    if len(outputs) != len(references) or not outputs:
        raise ValueError(
            f"expected one list of references for each output, at least one; got {len(outputs)} "
            f"outputs and {len(references)} lists"
        )
    edits = length = wrong = 0
    for output, allowed in zip(outputs, references, strict=True):
        distance, size = min((edit_distance(output, right), len(right)) for right in allowed)
        edits, length, wrong = edits + distance, length + size, wrong + (distance > 0)
    return ErrorRates(edits / max(length, 1), wrong / len(outputs), len(outputs))

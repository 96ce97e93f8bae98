"""Metrics of label prediction: accuracy, F1, each label's precision and recall."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.system.language import plural
from pellucid.tasks.metric import Measured, Metric, bootstrap, check_references

LISTED = 30
"""The most labels whose scores are printed; the record has all of them."""


def rates(confusion: np.ndarray) -> tuple[float, float]:
    """Compute the accuracy, and the mean F1 over the labels that occur as true labels.

    confusion: counts, (true, predicted). F1 = 2 TP / (2 TP + FP + FN).

    >>> rates(np.array([[1, 1], [0, 2]]))
    (0.75, 0.7333333333333334)
    """
    right, support, predicted = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    f1 = 2 * right / np.maximum(support + predicted, 1)
    return float(right.sum() / confusion.sum()), float(f1[support > 0].mean())


def compute(
    answers: Sequence[str], references: Sequence[Sequence[str]], intervals: bool
) -> Measured:
    """Compute accuracy and F1; for each label precision, recall and how often it is true.

    The first reference of an answer is its true label. A label that is never predicted has
    precision 0, one that is never true recall 0. intervals: whether to add 95 % bootstrap
    intervals. Raises `ValueError` as `check_references`.
    """
    check_references(answers, references)
    right = [allowed[0] for allowed in references]
    names = sorted({*answers, *right})
    number, n = {name: i for i, name in enumerate(names)}, len(names)
    cells = np.array([n * number[r] + number[a] for a, r in zip(answers, right, strict=True)])

    def counted(some: np.ndarray) -> np.ndarray:
        return np.bincount(some, minlength=n * n).reshape(n, n)

    confusion = counted(cells)
    accuracy, f1 = rates(confusion)
    found = {"accuracy": accuracy, "f1": f1}
    each = {
        name: {
            "precision": float(confusion[i, i] / max(confusion[:, i].sum(), 1)),
            "recall": float(confusion[i, i] / max(confusion[i].sum(), 1)),
            "texts": int(confusion[i].sum()),
        }
        for i, name in enumerate(names)
    }
    record: dict[str, Any] = {**found, "labels": each, "confusion": confusion.tolist()}
    rows = {"F1": f"{f1:.2%} (mean of the labels)"}
    if intervals:
        (a, b), (c, d) = bootstrap(len(cells), lambda drawn: rates(counted(cells[drawn])))
        record["intervals"] = {"accuracy": (a, b), "f1": (c, d)}
        rows["95 %"] = f"accuracy {a:.2%} to {b:.2%}, F1 {c:.2%} to {d:.2%}"
    details = {}
    for name, row in list(each.items())[:LISTED]:
        shares = f"precision {row['precision']:.1%}, recall {row['recall']:.1%}"
        details[name] = f"{shares}, {row['texts']:,} {plural(row['texts'], 'text')}"
    return Measured(found, record, rows, details)


def calibration_error(p: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Compute the expected calibration error of predicted probabilities.

    The probabilities are sorted into bins of equal width; the result is the mean |mean probability
    − share of right predictions| of the bins, weighted by their numbers of predictions, rounded to
    12 decimals. Source: Guo et al. 2017, ECE.

    >>> calibration_error(np.array([0.95, 0.95]), np.array([True, False]))
    0.45
    """
    which = np.minimum((p * bins).astype(int), bins - 1)
    gaps = np.bincount(which, p, bins) - np.bincount(which, right, bins)
    return round(float(np.abs(gaps).sum() / len(p)), 12)


LABELS = Metric(
    name="labels",
    about="accuracy and mean F1 of labels, and precision and recall of each",
    scores={"accuracy": True, "f1": True},
    compute=compute,
    kind="label",
)

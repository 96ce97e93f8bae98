"""Scores of labels: scikit-learn's numbers, intervals, calibration."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.tasks.labels import calibration_error, compute, rates

FOUND, RIGHT = [4, 5, 5, 6, 4], [4, 4, 5, 6, 6]


def test_f1_is_the_mean_of_the_labels_that_are_right_somewhere() -> None:
    """f1_score([4, 4, 5, 6, 6], [4, 5, 5, 6, 4], average="macro")"""
    measured = compute(list(map(str, FOUND)), [[str(r)] for r in RIGHT], False)
    assert measured.values["f1"] == pytest.approx((0.5 + 2 / 3 + 2 / 3) / 3)
    assert measured.values["accuracy"] == 0.6
    assert "intervals" not in measured.record
    only = compute(["a", "b"], [["a"], ["a"]], False)
    assert only.values["f1"] == pytest.approx(2 / 3)  # "b" is right nowhere
    assert only.record["labels"]["b"] == {"precision": 0.0, "recall": 0.0, "texts": 0}
    assert only.record["confusion"] == [[1, 1], [0, 0]]  # true a, found a and b


def test_the_interval_covers_what_it_is_of_and_narrows_with_texts() -> None:
    rng = np.random.default_rng(0)
    widths = []
    for n in (59, 997):
        right = rng.integers(0, 3, n)
        found = np.where(rng.random(n) < 0.8, right, rng.integers(0, 3, n))
        record = compute(list(map(str, found)), [[str(r)] for r in right], True).record
        low, high = record["intervals"]["f1"]
        assert low < record["f1"] < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 2


def test_labels_are_listed_with_their_texts() -> None:
    rows = compute(["x", "y", "y"], [["x"], ["y"], ["x"]], True).details
    assert rows["x"] == "precision 100.0%, recall 50.0%, 2 texts"
    assert rows["y"] == "precision 50.0%, recall 100.0%, 1 text"


def test_calibration_is_the_mean_distance_by_bin() -> None:
    p, right = np.array([0.95, 0.95, 0.55, 1.0]), np.array([True, False, True, True])
    # the last bin has 0.95, 0.95 and 1.0 with two right, another has 0.55 with one
    assert calibration_error(p, right) == pytest.approx((abs(2.9 - 2) + abs(0.55 - 1)) / 4)


def test_the_numbers_are_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the extra baseline")
    rng = np.random.default_rng(1)
    right, found = rng.integers(0, 5, (2, 311)).astype(str)
    record = compute(found.tolist(), [[r] for r in right], False).record
    theirs = metrics.classification_report(right, found, output_dict=True)
    assert record["accuracy"] == pytest.approx(theirs["accuracy"])
    assert record["f1"] == pytest.approx(theirs["macro avg"]["f1-score"])
    for name, row in record["labels"].items():
        assert row["precision"] == pytest.approx(theirs[name]["precision"])
        assert row["recall"] == pytest.approx(theirs[name]["recall"])
        assert row["texts"] == theirs[name]["support"]
    np.testing.assert_array_equal(record["confusion"], metrics.confusion_matrix(right, found))
    assert rates(np.array(record["confusion"])) == (record["accuracy"], record["f1"])

"""Comparisons: what SciPy gives for pairs, and words that claim no more than the interval."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from pellucid.lab.statistics import Comparison, compare, holm, verdict, with_holm
from pellucid.lab.study import Contrast

pytest.importorskip("scipy")
CONTRAST = Contrast("linear", "train_loss", "sqrt", "lower")


def judge(differences: list[float], contrast: Contrast = CONTRAST) -> Comparison:
    base = {seed: 0.3 + seed for seed in range(len(differences))}
    change = {seed: base[seed] + d for seed, d in enumerate(differences)}
    return with_holm([compare(contrast, True, change, base)])[0]


def test_permutation_tries_every_sign() -> None:
    d = np.array([-0.05, -0.02, 0.01, -0.04, -0.03])
    means = [np.mean(d * signs) for signs in itertools.product((1, -1), repeat=5)]
    below = np.mean(np.array(means) <= d.mean() + 1e-12)
    assert judge(list(d)).p == pytest.approx(2 * below)


def test_the_median_its_interval_and_the_effect() -> None:
    d = [-0.05, -0.02, -0.01, -0.04, -0.03]
    found = judge(d)
    assert found.median == pytest.approx(-0.03)
    assert found.interval is not None
    assert found.interval[0] == pytest.approx(-0.05)
    assert found.interval[1] == pytest.approx(-0.01)
    assert found.effect == pytest.approx(np.mean(d) / np.std(d, ddof=1))
    assert found.p == pytest.approx(2 / 2**5) == found.smallest_p


def test_one_pair_has_no_interval_no_p_and_says_so() -> None:
    found = judge([-0.05])
    assert (found.interval, found.p, found.effect, found.coverage) == (None,) * 4
    assert "one seed" in verdict(found)
    assert "nothing general" in verdict(found)
    assert "As expected" not in verdict(found)


def test_an_interval_with_zero_in_it_shows_no_difference() -> None:
    said = verdict(judge([-0.05, 0.02, -0.01, 0.04, -0.03, 0.03]))
    assert said.startswith("no difference shown")
    assert "As expected" not in said


def test_few_pairs_say_how_little_they_can_be_sure_of() -> None:
    said = verdict(judge([-0.05, -0.02, -0.03]))
    assert "3 pairs make it a 75 % interval at the very most" in said
    assert "the permutation test does not exclude chance" in said
    assert "3 pairs cannot give p below 0.25" in said


def test_many_pairs_say_it_plainly() -> None:
    said = verdict(judge([-0.05, -0.02, -0.03, -0.04, -0.06, -0.03, -0.02]))
    assert said.startswith("lower by 0.03 nats per answer (interval −0.0")
    assert said.endswith("7 of 7 seeds. As expected")
    against = verdict(judge([0.05, 0.02, 0.03, 0.04, 0.06, 0.03, 0.02]))
    assert against.endswith("Expected was lower")


def test_a_missing_value_is_no_pair_and_is_told() -> None:
    found = compare(CONTRAST, True, {0: 1.0, 1: None, 2: 3.0}, {0: 2.0, 1: 2.0})
    assert found.seeds == (0,)
    assert found.missing == (
        "linear with seed 1 has no such value",
        "sqrt with seed 2 has no finished run",
    )
    assert verdict(compare(CONTRAST, True, {}, {0: 1.0})).startswith("nothing to compare yet")


def test_pairs_that_all_differ_alike_are_no_fault() -> None:
    found = judge([0.5, 0.5, 0.5])
    assert found.interval == (0.5, 0.5)
    assert found.effect is None


def test_holm_by_hand_and_by_kind() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    one = judge([-0.05, -0.02, -0.03, -0.04, -0.06, -0.03])
    three = with_holm([one, replace(one, primary=False), replace(one, primary=False)])
    assert one.p is not None
    assert [c.holm for c in three] == pytest.approx([one.p, 2 * one.p, 2 * one.p])


def test_a_planned_comparison_without_a_p_counts_in_the_correction() -> None:
    one, none = judge([-0.05, -0.02, -0.03, -0.04, -0.06, -0.03]), compare(CONTRAST, True, {}, {})
    assert one.p is not None
    found = with_holm([one, none, none])
    assert found[0].holm == pytest.approx(3 * one.p)
    assert found[1].holm is None


def test_words_where_nothing_moved_and_for_one_epoch() -> None:
    epochs = Contrast("linear", "epochs_to_1.0", "sqrt")
    said = verdict(judge([0.0, 0.0, 0.0, 1.0, 1.0], epochs))
    assert "interval, 0 to +1, holds 0 (median the same, 3 of 5 seeds)" in said
    assert verdict(judge([1.0, 1.0], epochs)).startswith("higher by 1 epoch (interval")

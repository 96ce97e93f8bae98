"""Comparisons: what SciPy gives for pairs, and words that claim no more than the interval."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from pellucid.apps.lab.statistics import (
    Comparison,
    compare,
    holm,
    smallest_p,
    too_few_seeds,
    verdict,
    with_holm,
)
from pellucid.apps.lab.study import Contrast

CONTRAST = Contrast("linear", "train_loss", "sqrt", "lower")


def compared(differences: list[float], contrast: Contrast = CONTRAST) -> Comparison:
    base = {seed: 0.3 + seed for seed in range(len(differences))}
    change = {seed: base[seed] + d for seed, d in enumerate(differences)}
    return with_holm([compare(contrast, True, change, base)])[0]


def test_permutation_tries_every_sign() -> None:
    d = np.array([-0.05, -0.02, 0.01, -0.04, -0.03])
    means = [np.mean(d * signs) for signs in itertools.product((1, -1), repeat=5)]
    below = np.mean(np.array(means) <= d.mean() + 1e-12)
    assert compared(list(d)).p == pytest.approx(2 * below)


def test_the_median_its_interval_and_the_effect() -> None:
    d = [-0.05, -0.02, -0.01, -0.04, -0.03]
    found = compared(d)
    assert found.median == pytest.approx(-0.03)
    assert found.interval is not None
    assert found.interval[0] == pytest.approx(-0.05)
    assert found.interval[1] == pytest.approx(-0.01)
    assert found.effect == pytest.approx(np.mean(d) / np.std(d, ddof=1))
    assert found.p == pytest.approx(2 / 2**5) == smallest_p(5)


def test_one_pair_has_no_interval_no_p_and_says_so() -> None:
    found = compared([-0.05])
    assert (found.interval, found.p, found.effect, found.coverage) == (None,) * 4
    assert verdict(found).endswith("in the only pair: no interval, so no general claim")
    assert "As expected" not in verdict(found)


def test_an_interval_with_zero_in_it_shows_no_difference() -> None:
    reported = verdict(compared([-0.05, 0.02, -0.01, 0.04, -0.03, 0.03]))
    assert reported.startswith("no difference shown")
    assert "As expected" not in reported


def test_few_pairs_say_how_little_they_can_be_sure_of() -> None:
    reported = verdict(compared([-0.05, -0.02, -0.03]))
    assert "with 3 pairs the interval covers at most 75 %" in reported
    assert "the permutation test does not exclude chance" in reported
    assert "3 pairs cannot give p below 0.25" in reported


def test_many_pairs_say_it_plainly() -> None:
    d = [-0.05, -0.02, -0.03, -0.04, -0.06, -0.07]
    reported = verdict(compared(d))
    assert reported.startswith("lower by 0.045 nats per answer (interval −0.0")
    assert reported.endswith("6 of 6 seeds. As expected")
    assert verdict(compared([-x for x in d])).endswith("Expected: lower")


@pytest.mark.parametrize("n", [2, 3, 5, 7, 8, 11])
def test_how_sure_an_interval_can_be_is_counted(n: int) -> None:
    found = compared([-0.01 * (i + 1) for i in range(n)])
    assert found.interval is not None
    assert found.coverage is not None
    low, high = found.interval
    ordered = sorted(found.differences)
    below = max(k for k in range(n) if ordered[k] <= low)  # the interval ends here or further in
    above = max(k for k in range(n) if ordered[-1 - k] >= high)
    sides = np.array(list(itertools.product((0, 1), repeat=n))).sum(axis=1)  # how many lie below
    holds = (sides > below) & (n - sides > above)
    assert found.coverage == pytest.approx(holds.mean())


@pytest.mark.parametrize("n", range(6, 15))
def test_an_interval_that_can_be_95_in_100_is(n: int) -> None:
    found = compared([-0.01 * (i + 1) for i in range(n)])
    assert found.coverage is not None
    assert found.coverage >= 0.95
    assert verdict(found).endswith(f"{n} of {n} seeds. As expected")


def test_an_interval_is_no_wider_for_the_last_bit_of_its_end() -> None:
    # SciPy's quantile of these ends one rounding step below the smallest of them.
    smallest = -4.801634869866125
    found = compare(
        CONTRAST,
        True,
        {seed: smallest + 0.37 * seed for seed in range(5)},
        dict.fromkeys(range(5), 0.0),
    )
    assert found.interval is not None
    assert found.interval[0] == smallest
    assert found.coverage == 1 - 2.0**-4


def test_a_run_that_never_gets_there_counts_as_later_than_any() -> None:
    epochs = Contrast("slow", "epochs_to_1.0", "sqrt", "lower")
    never, base = float("inf"), dict.fromkeys(range(8), 10.0)
    mostly = compare(epochs, True, {s: never if s < 5 else 6.0 for s in range(8)}, base)
    assert mostly.seeds == tuple(range(8))
    assert mostly.median == never
    assert mostly.interval == (-4.0, never)
    reported = verdict(mostly)
    assert reported.startswith(
        "no difference shown: the interval, −4 to +∞, contains 0 (median higher"
    )
    assert "∞: a run never got there" in reported
    all_of_them = verdict(compare(epochs, True, dict.fromkeys(range(8), never), base))
    assert all_of_them.startswith("higher by ∞ epochs (interval +∞ to +∞), 8 of 8 seeds")
    assert all_of_them.endswith("∞: a run never got there. Expected: lower")
    half = compare(epochs, True, {s: never if s < 4 else 6.0 for s in range(8)}, base)
    assert half.median == never  # halfway from −4 to infinity
    neither = compare(epochs, True, dict.fromkeys(range(3), never), dict.fromkeys(range(3), never))
    assert neither.differences == (0.0, 0.0, 0.0)
    assert neither.effect is None
    one = compare(epochs, True, {0: never}, {0: 10.0})
    assert one.median == never


def test_pairs_that_a_failed_run_took_away_come_first_and_forbid_as_expected() -> None:
    base = dict.fromkeys(range(8), 1.0)
    failed = {("linear", s) for s in range(3, 8)}
    found = compare(CONTRAST, True, dict.fromkeys(range(3), 0.8), base, range(8), failed)
    assert found.lost == 5
    reported = verdict(found)
    assert reported.startswith("of the finished pairs: lower by 0.2")
    assert reported.endswith("5 more lost")
    assert "As expected" not in reported
    gone = compare(CONTRAST, True, {}, {0: 1.0}, [0], {("linear", 0)})
    assert verdict(gone) == "nothing to compare: no seed has both; 1 lost"
    one = compare(CONTRAST, True, {0: 0.8}, {0: 1.0}, range(3), {("linear", 1), ("sqrt", 2)})
    assert verdict(one).startswith("of the finished pairs: lower by 0.2 nats per answer in the")
    assert verdict(one).endswith("2 more lost")


def test_a_pair_is_lost_though_neither_side_or_only_the_failed_one_is_there() -> None:
    both = compare(CONTRAST, True, {}, {}, [4], {("linear", 4), ("sqrt", 4)})
    assert (both.lost, both.pending) == (1, 0)
    other_to_come = compare(CONTRAST, True, {}, {}, [4], {("linear", 4)})
    assert (other_to_come.lost, other_to_come.pending) == (1, 0)
    to_come = compare(CONTRAST, True, {0: 1.0}, {}, [0, 1, 2])
    assert (to_come.lost, to_come.pending) == (0, 3)
    assert to_come.missing == ("sqrt with seed 0 is not done",)
    some = compare(CONTRAST, True, {}, {}, [0, 1], {("linear", 0)})
    assert verdict(some) == "nothing to compare yet: no seed has both; 1 lost"


def test_one_infinite_difference_does_not_decide_the_test() -> None:
    epochs = Contrast("slow", "epochs_to_1.0", "sqrt")
    reached = {**dict.fromkeys(range(8), 5.0), 8: float("inf")}
    found = compare(epochs, True, reached, dict.fromkeys(range(9), 10.0))
    ranks = np.array([-4.5] * 8 + [9.0])  # eight share the ranks 1 to 8
    signs = np.array(list(itertools.product((1, -1), repeat=9)))
    means = (signs * np.abs(ranks)).mean(axis=1)
    assert found.p == pytest.approx(2 * np.mean(means <= ranks.mean() + 1e-12))
    assert found.p < 0.2


def test_differences_that_are_equal_to_rounding_have_no_effect_size() -> None:
    found = compare(CONTRAST, True, {0: 0.3, 1: 0.4, 2: 0.5}, {0: 0.2, 1: 0.3, 2: 0.4})
    assert len(set(found.differences)) > 1
    assert found.effect is None


def test_all_signs_are_tried_up_to_16_pairs() -> None:
    d = np.random.default_rng(5).normal(0.3, 1.0, 16)
    signs = np.array(list(itertools.product((1, -1), repeat=16)))
    means = (signs * d).mean(axis=1)
    assert compared(list(d)).p == pytest.approx(2 * np.mean(means >= d.mean() - 1e-12))


def test_a_missing_value_is_no_pair_and_is_reported() -> None:
    found = compare(CONTRAST, True, {0: 1.0, 1: None, 2: 3.0}, {0: 2.0, 1: 2.0})
    assert found.seeds == (0,)
    assert found.missing == ("linear with seed 1 has no such value", "sqrt with seed 2 is not done")
    assert found.lost == 1
    assert verdict(compare(CONTRAST, True, {}, {0: 1.0})).startswith("nothing to compare yet")


def test_pairs_that_all_differ_alike_are_no_error() -> None:
    found = compared([0.5, 0.5, 0.5])
    assert found.interval == (0.5, 0.5)
    assert found.effect is None


def test_holm_by_hand_and_by_kind() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    one = compared([-0.05, -0.02, -0.03, -0.04, -0.06, -0.03])
    three = with_holm([one, replace(one, primary=False), replace(one, primary=False)])
    assert one.p is not None
    assert [c.holm for c in three] == pytest.approx([one.p, 2 * one.p, 2 * one.p])


def test_a_planned_comparison_without_a_p_counts_in_the_correction() -> None:
    one, none = (
        compared([-0.05, -0.02, -0.03, -0.04, -0.06, -0.03]),
        compare(CONTRAST, True, {}, {}),
    )
    assert one.p is not None
    found = with_holm([one, none, none])
    assert found[0].holm == pytest.approx(3 * one.p)
    assert found[1].holm is None


@pytest.mark.parametrize(("count", "enough"), [(1, 6), (2, 7), (3, 7), (4, 8), (6, 8), (7, 9)])
def test_plans_that_can_never_exclude_chance_are_recognised(count: int, enough: int) -> None:
    agreeing = {seed: -0.1 - 0.01 * seed for seed in range(enough)}

    def corrected(pairs: int) -> float:
        side = {s: d for s, d in agreeing.items() if s < pairs}
        one = compare(CONTRAST, True, side, dict.fromkeys(side, 0.0))
        assert one.p == pytest.approx(smallest_p(pairs))
        return max(c.holm or 0.0 for c in with_holm([one] * count))

    assert corrected(enough) <= 0.05 < corrected(enough - 1)
    assert too_few_seeds([enough] * count) == ""
    reported = too_few_seeds([enough - 1] * count)
    assert reported.startswith(f"{count} of {count} primary")
    assert reported.endswith(f"{enough} seeds of each would be enough")


def test_one_comparison_with_too_few_pairs_is_counted_next_to_one_with_enough() -> None:
    assert too_few_seeds([7, 3]).startswith("1 of 2 primary comparisons")
    assert "(best Holm p 0.25)" in too_few_seeds([7, 3])
    assert too_few_seeds([]) == ""


def test_words_where_nothing_moved_and_for_one_epoch() -> None:
    epochs = Contrast("linear", "epochs_to_1.0", "sqrt")
    reported = verdict(compared([0.0, 0.0, 0.0, 1.0, 1.0], epochs))
    assert "interval, 0 to +1, contains 0 (median the same, 3 of 5 seeds)" in reported
    assert verdict(compared([1.0, 1.0], epochs)).startswith("higher by 1 epoch (interval")

"""Paired comparisons over seeds: interval, permutation test, effect size, and a verdict.

A pair is one seed under a change and under what it is compared with: the same initial weights, the
same order of the data. Every statistic is of the differences within pairs. A value may be infinite,
a loss that was never reached: larger than any other, and equal to another infinite one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pellucid.apps.lab.document import INSTALL
from pellucid.apps.lab.metrics import find_metric
from pellucid.apps.lab.study import Contrast
from pellucid.core.errors import optional

RESAMPLES, SEED = 9999, 12345
SIGNS = 2**16
"""Sign assignments to try: all of them up to 16 pairs, this many drawn at random beyond."""
LEVEL = 0.95
FAR = 1e100
"""Replaces an infinite difference: means and medians order as those of infinities would."""
NOT_DONE = "is not done"


@dataclass(frozen=True)
class Comparison:
    """One contrast with its statistics; None where there are too few pairs."""

    contrast: Contrast
    primary: bool
    seeds: tuple[int, ...]
    """The pairs: seeds for which both variants have a value."""
    values: tuple[float, ...]
    """The change's, by pair."""
    against: tuple[float, ...]
    """Those of what it is compared with."""
    missing: tuple[str, ...] = ()
    """Why each missing pair is missing."""
    lost: int = 0
    """Pairs that will stay missing: a run failed, or has no such value."""
    pending: int = 0
    """Pairs of which a run is not done yet."""
    median: float | None = None
    """Of the differences, change minus other."""
    interval: tuple[float, float] | None = None
    """Of the median: the bootstrap's, widened to reach 95 %; from two pairs on."""
    p: float | None = None
    """Permutation test of the mean difference, two-sided, over signs; from two pairs on. Where a
    difference is infinite, of the mean signed rank."""
    holm: float | None = None
    """p after Holm's correction over all primary contrasts, or over all others."""
    effect: float | None = None
    """Cohen's d_z: mean difference over its standard deviation; from three pairs on, where they
    differ."""

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.seeds)

    @property
    def differences(self) -> tuple[float, ...]:
        """Change minus other, by pair."""
        return tuple(map(difference, self.values, self.against))

    @property
    def coverage(self) -> float | None:
        """The most that the interval can cover: that of the differences it ends at or between.

        If no two are equal: from the a-th smallest to the a-th largest of n it misses the true
        median when fewer than a of them lie on one side of it.
        """
        if self.interval is None:
            return None
        n, (low, high) = self.pairs, self.interval
        ranks = (
            sum(d < low for d in self.differences) + (low in self.differences),
            sum(d > high for d in self.differences) + (high in self.differences),
        )
        return max(0.0, 1.0 - sum(_tail(n, rank) for rank in ranks))


def compare(
    contrast: Contrast,
    primary: bool,
    values: Mapping[int, float | None],
    against: Mapping[int, float | None],
    planned: Collection[int] = (),
    failed: Container[tuple[str, int]] = (),
) -> Comparison:
    """Compare two variants by seed; a seed with a value on one side only is a missing pair.

    planned: the seeds that both are to have. failed: variants and seeds whose runs failed.

    >>> from pellucid.apps.lab.study import Contrast
    >>> found = compare(Contrast("a", "bleu", "b"), True, {0: 2.0}, {0: 1.5, 1: 3.0})
    >>> found.seeds, found.median, found.interval
    ((0,), 0.5, None)
    """
    seeds: list[int] = []
    missing: list[str] = []
    lost, pending = 0, 0
    for seed in sorted(values.keys() | against.keys() | set(planned)):
        if None not in (values.get(seed), against.get(seed)):
            seeds.append(seed)
            continue
        sides = ((contrast.change, values), (contrast.against, against))
        why = {name: _reason(name, seed, side, failed) for name, side in sides}
        if set(why.values()) <= {None, NOT_DONE}:
            pending += 1
        else:
            lost += 1
        if set(why.values()) != {NOT_DONE}:
            missing += [
                f"{name} with seed {seed} {reason}" for name, reason in why.items() if reason
            ]
    left = tuple(float(values[s] or 0.0) for s in seeds)
    right = tuple(float(against[s] or 0.0) for s in seeds)
    found = Comparison(contrast, primary, tuple(seeds), left, right, tuple(missing), lost, pending)
    d = np.clip(found.differences, -FAR, FAR)
    if len(d) < 2:
        return replace(found, median=_unclipped(d[0])) if len(d) else found
    spread = float(d.std(ddof=1))
    noise = 1e-9 * float(np.abs([left, right]).max())
    return replace(
        found,
        median=_unclipped(np.median(d)),
        interval=_interval(d),
        p=_permutation(d),
        effect=float(d.mean() / spread) if len(d) > 2 and spread > noise else None,
    )


def _reason(
    name: str, seed: int, side: Mapping[int, float | None], failed: Container[tuple[str, int]]
) -> str | None:
    """Return why there is no value; None where there is one."""
    if (name, seed) in failed:
        return "failed"
    if seed not in side:
        return NOT_DONE
    return "has no such value" if side[seed] is None else None


def difference(a: float, b: float) -> float:
    """Return a − b, and 0 where both are infinite.

    >>> difference(3.0, 1.0), difference(math.inf, math.inf)
    (2.0, 0.0)
    """
    return 0.0 if a == b else a - b


def _unclipped(value: float) -> float:
    return float(value) if abs(value) < math.sqrt(FAR) else math.copysign(math.inf, value)


# p values -----------------------------------------------------------------------------------------


def _permutation(d: np.ndarray) -> float:
    if np.any(np.abs(d) >= FAR):  # a mean would be that of the infinite ones alone
        d = np.sign(d) * _stats().rankdata(np.abs(d))
    found = _stats().permutation_test(
        (d,),
        np.mean,
        permutation_type="samples",
        n_resamples=SIGNS,
        rng=np.random.default_rng(SEED),
    )
    return float(found.pvalue)


def smallest_p(pairs: int) -> float:
    """Return the p of the permutation test when all of this number of pairs agree.

    >>> smallest_p(1), smallest_p(5)
    (1.0, 0.0625)
    """
    return max(min(1.0, 2.0 ** (1 - pairs)), 2 / (SIGNS + 1))


def too_few_seeds(pairs: Sequence[int]) -> str:
    """Return a warning if some of these comparisons can never exclude chance, else "".

    pairs: of each comparison. Assumes that every pair agrees, with Holm's correction over all.

    >>> too_few_seeds([7, 7])
    ''
    >>> too_few_seeds([5, 5]).split("(")[1]
    'best Holm p 0.12); 7 seeds of each would be enough'
    """
    best = holm([smallest_p(n) for n in pairs])
    short = [p for p in best if p > 1 - LEVEL]
    if not short:
        return ""
    enough = next(n for n in range(1, 99) if len(pairs) * smallest_p(n) <= 1 - LEVEL)
    return (
        f"{len(short)} of {len(pairs)} primary comparisons cannot exclude chance even if all pairs "
        f"agree (best Holm p {min(short):.2g}); {enough} seeds of each would be enough"
    )


def with_holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with Holm's correction, over the primary ones and over the others.

    A planned comparison without a p yet counts as p = 1, so that a half-done study is corrected for
    as many as a whole one. Source: Holm 1979.
    """
    corrected = list(comparisons)
    for kind in (True, False):
        family = [i for i, c in enumerate(corrected) if c.primary is kind]
        given = [corrected[i].p for i in family]
        adjusted = holm([1.0 if p is None else p for p in given])
        for i, before, after in zip(family, given, adjusted, strict=True):
            if before is not None:
                corrected[i] = replace(corrected[i], holm=after)
    return corrected


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p: the k-th smallest of m times m − k + 1, never falling, at most 1.

    >>> holm([0.5, 0.25, 0.125])
    [0.5, 0.5, 0.375]
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    found, least = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p) - rank) * p[i]))
        found[i] = least
    return found


# the interval -------------------------------------------------------------------------------------


def _interval(d: np.ndarray) -> tuple[float, float]:
    """Return the percentile bootstrap's interval of the median, widened where it is too narrow.

    With few pairs the bootstrap is too narrow: with seven it ends at the second and the sixth,
    which covers the median 88 % of the time. So it is widened to the a-th smallest and
    largest, with the largest a that reaches 95 %; to all of them where there are too few for that.
    """
    ordered, n = np.sort(d), len(d)
    if ordered[0] == ordered[-1]:
        return _unclipped(ordered[0]), _unclipped(ordered[0])
    found = (
        _stats()
        .bootstrap(
            (d,),
            np.median,
            confidence_level=LEVEL,
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(SEED),
        )
        .confidence_interval
    )
    a = max([a for a in range(1, n) if 1 - 2 * _tail(n, a) >= LEVEL], default=1)
    low = min(_snapped(found.low, ordered), ordered[a - 1])
    high = max(_snapped(found.high, ordered), ordered[n - a])
    return _unclipped(low), _unclipped(high)


def _snapped(end: float, ordered: np.ndarray) -> float:
    """Return the difference that an end equals but for rounding, else the end."""
    nearest = float(ordered[np.abs(ordered - end).argmin()])
    return nearest if math.isclose(nearest, end, rel_tol=1e-9) else end


def _tail(n: int, a: int) -> float:
    """Return P(Binomial(n, ½) < a): fewer than a of n differences below their true median."""
    return sum(math.comb(n, k) for k in range(a)) * 0.5**n


def _stats() -> Any:
    return optional("scipy.stats", INSTALL.format("SciPy"), extra="lab")


# the verdict --------------------------------------------------------------------------------------


def signed(value: float) -> str:
    """Return a difference as it is printed: three digits, its sign, none for 0.

    >>> signed(-0.03126), signed(2.0), signed(-0.0)
    ('−0.0313', '+2', '0')
    """
    return f"{value:+.3g}".replace("-", "−").replace("inf", "∞") if value else "0"


def verdict(comparison: Comparison) -> str:
    """Return what the interval shows, and no more."""
    lost = comparison.lost
    if comparison.median is None:
        yet = " yet" if comparison.pending or not lost else ""
        also = f"; {lost} lost" if lost else ""
        return f"nothing to compare{yet}: no seed has both{also}"
    text = _interval_verdict(comparison)
    if any(map(math.isinf, comparison.differences)):
        text += "; ∞: a run never got there"
    if lost:
        return f"of the finished pairs: {text}; {lost} more lost"
    return text + _expectation(comparison)


def _interval_verdict(comparison: Comparison) -> str:
    c, n, median = comparison.contrast, comparison.pairs, comparison.median or 0.0
    amount = f"{signed(abs(median)).lstrip('+')} {find_metric(c.metric).unit}".strip()
    amount = "1 epoch" if amount == "1 epochs" else amount
    direction = "lower" if median < 0 else "higher" if median > 0 else "the same"
    by = f" by {amount}" if median else ""
    if comparison.interval is None:
        return f"{direction}{by} in the only pair: no interval, so no general claim"
    low, high = comparison.interval
    agree = sum(np.sign(d) == np.sign(median) for d in comparison.differences)
    limits = f"{signed(low)} to {signed(high)}"
    if low <= 0 <= high:
        text = (
            f"no difference shown: the interval, {limits}, contains 0 (median {direction}{by}, "
            f"{agree} of {n} seeds)"
        )
    else:
        text = f"{direction}{by} (interval {limits}), {agree} of {n} seeds"
        if not _chance_excluded(comparison):
            least = smallest_p(n)
            text += (
                f"; the permutation test does not exclude chance (Holm p = {comparison.holm:.2g}"
            )
            text += f", {n} pairs cannot give p below {least:.2g})" if least > 0.05 else ")"
    if not _covers(comparison):
        text += (
            f"; with {n} pairs the interval covers at most {100 * (comparison.coverage or 0):.0f} %"
        )
    return text


def _chance_excluded(comparison: Comparison) -> bool:
    return comparison.holm is None or comparison.holm <= 1 - LEVEL


def _covers(comparison: Comparison) -> bool:
    return comparison.coverage is not None and comparison.coverage >= LEVEL


def _expectation(comparison: Comparison) -> str:
    """Return whether it came as expected, where chance is excluded."""
    expect, interval = comparison.contrast.expect, comparison.interval
    if not expect or interval is None or interval[0] <= 0 <= interval[1]:
        return ""
    if not (_chance_excluded(comparison) and _covers(comparison)):
        return ""
    came = "lower" if interval[1] < 0 else "higher"
    return ". As expected" if came == expect else f". Expected: {expect}"

"""Paired comparisons over seeds: interval, permutation test, effect size, and a verdict.

A pair is one seed under a change and under what it is compared with: the same initial weights, the
same order of the data. Every statistic is of the differences within pairs. A value may be infinite,
a loss that was never reached: larger than any other, and equal to another infinite one.
"""

import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from pellucid.apps.lab.document import lab_package
from pellucid.apps.lab.metrics import find_metric
from pellucid.apps.lab.study import Contrast
from pellucid.apps.lab.wording import tr

SEED = 12345
SIGNS = 2**16
"""Sign assignments to try: all of them up to 16 pairs, this many drawn at random beyond."""
LEVEL = 0.95
NOT_DONE = "{name} with seed {seed} is not done"
LACKING = "{name} with seed {seed} has no such value"
FAILED = "{name} with seed {seed} failed"


@dataclass(frozen=True)
class Comparison:
    """One contrast with its statistics; None where there are too few pairs."""

    contrast: Contrast
    primary: bool
    seeds: tuple[int, ...]
    """The pairs: seeds for which both variants have a value."""
    differences: tuple[float, ...]
    """Change minus what it is compared with, by pair."""
    missing: tuple[str, ...] = ()
    """Why each missing pair is missing."""
    lost: int = 0
    """Pairs that will stay missing: a run failed, or has no such value."""
    pending: int = 0
    """Pairs of which a run is not done yet."""
    median: float | None = None
    """Median of the differences."""
    interval: tuple[float, float] | None = None
    """Interval for the median, by order statistics; needs two pairs or more."""
    coverage: float | None = None
    """How often such an interval holds the true median, if no two differences are equal."""
    p: float | None = None
    """Permutation test of the mean difference, two-sided, over signs; from two pairs on. Where a
    difference is infinite, of the mean signed rank."""
    holm: float | None = None
    """p after Holm's correction over all primary contrasts, or over all others."""
    effect: float | None = None
    """Cohen's d_z: mean difference over its standard deviation; from three pairs on, where they
    differ."""

    @property
    def name(self) -> str:
        """Both variants, as in tables and pictures."""
        return f"{self.contrast.change} − {self.contrast.against}"


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
    pairs: dict[int, tuple[float, float]] = {}
    missing: list[str] = []
    lost = pending = 0
    for seed in sorted(values.keys() | against.keys() | set(planned)):
        value, other = values.get(seed), against.get(seed)
        if value is not None and other is not None:
            pairs[seed] = value, other
            continue
        why = {
            name: FAILED if (name, seed) in failed else LACKING if seed in side else NOT_DONE
            for name, side in ((contrast.change, values), (contrast.against, against))
            if side.get(seed) is None
        }
        waits = set(why.values()) == {NOT_DONE}
        pending, lost = pending + waits, lost + (not waits)
        if not waits or len(why) == 1:
            missing += [tr(reason, name=name, seed=seed) for name, reason in why.items()]
    differences = tuple(difference(*pair) for pair in pairs.values())
    found = Comparison(contrast, primary, tuple(pairs), differences, tuple(missing), lost, pending)
    if not pairs:
        return found
    # Halfway from −∞ to ∞ is nan: as many runs never got there on one side as on the other.
    middle = median(differences)
    found = replace(found, median=0.0 if math.isnan(middle) else middle)
    if len(pairs) < 2:
        return found
    d, rank = np.array(differences), interval_rank(len(pairs))
    spread = float(d.std(ddof=1)) if np.isfinite(d).all() else 0.0
    noise = 1e-9 * float(np.abs(list(pairs.values())).max())
    return replace(
        found,
        interval=(float(np.sort(d)[rank - 1]), float(np.sort(d)[-rank])),
        coverage=coverage(len(pairs)),
        p=_permutation(d),
        effect=float(d.mean() / spread) if len(d) > 2 and spread > noise else None,
    )


def difference(a: float, b: float) -> float:
    """Return a − b, and 0 where both are infinite.

    >>> difference(3.0, 1.0), difference(math.inf, math.inf)
    (2.0, 0.0)
    """
    return 0.0 if a == b else a - b


def interval_rank(pairs: int) -> int:
    """Return the a with which the a-th smallest to the a-th largest difference is the interval.

    It misses the true median when fewer than a of n differences are on one side of it, which has
    the probability 2 P(Binomial(n, ½) < a) whatever they are distributed as. This is the largest a
    that covers the median at least 95 % of the time; 1, all differences, where there are too few.

    >>> interval_rank(5), interval_rank(8), interval_rank(9)
    (1, 1, 2)
    """
    return max(1, int(_stats().binom.ppf((1 - LEVEL) / 2, pairs, 0.5)))


def coverage(pairs: int) -> float:
    """Return how often the interval of this many pairs contains the true median.

    >>> coverage(3), coverage(6)
    (0.75, 0.96875)
    """
    return float(1 - 2 * _stats().binom.cdf(interval_rank(pairs) - 1, pairs, 0.5))


# p values -----------------------------------------------------------------------------------------


def _permutation(d: np.ndarray) -> float:
    if np.isinf(d).any():  # a mean would be that of the infinite ones alone
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
    short = [p for p in holm([smallest_p(n) for n in pairs]) if p > 1 - LEVEL]
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
    adjusted: dict[bool, list[float]] = {}
    for kind in (True, False):
        given = [c.p for c in comparisons if c.primary is kind]
        adjusted[kind] = holm([1.0 if p is None else p for p in given])[::-1]
    return [
        replace(c, holm=None if c.p is None else p)
        for c in comparisons
        for p in [adjusted[c.primary].pop()]
    ]


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p: the k-th smallest of m times m − k + 1, never falling, at most 1.

    >>> holm([0.5, 0.25, 0.125])
    [0.5, 0.5, 0.375]
    """
    found, least = [0.0] * len(p), 0.0
    for rank, i in enumerate(np.argsort(p, kind="stable")):
        least = max(least, min(1.0, (len(p) - rank) * p[i]))
        found[i] = least
    return found


def _stats() -> Any:
    return lab_package("scipy.stats", "SciPy")


# the verdict --------------------------------------------------------------------------------------


def signed(value: float) -> str:
    """Return a difference as it is printed: three digits, its sign, none for 0.

    >>> signed(-0.03126), signed(2.0), signed(-0.0)
    ('−0.0313', '+2', '0')
    """
    return f"{value:+.3g}".replace("-", "−").replace("inf", "∞") if value else "0"


def verdict(comparison: Comparison) -> str:
    """Return a sentence on what the interval shows, and no more.

    "As expected" is printed only where neither the interval nor the test leaves room for chance.
    """
    c, lost = comparison, comparison.lost
    if c.median is None:
        yet = "nothing to compare yet: no seed has both"
        text = tr(yet if c.pending or not lost else "nothing to compare: no seed has both")
        return text + (tr("; {n} lost", n=lost) if lost else "")
    amount = f"{signed(abs(c.median)).lstrip('+')} {tr(find_metric(c.contrast.metric).unit)}"
    amount = tr("1 epoch") if amount == f"1 {tr('epochs')}" else amount.strip()
    text = "lower by {amount}" if c.median < 0 else "higher by {amount}" if c.median else "the same"
    moved, came = tr(text, amount=amount), ""
    if c.interval is None:
        text = tr("{moved} in the only pair: no interval, so no general claim", moved=moved)
    else:
        text, came = _interval_verdict(c, moved, *c.interval)
    if any(map(math.isinf, c.differences)):
        text += tr("; ∞: a run never got there")
    if lost:
        return tr("of the finished pairs: {text}; {n} more lost", text=text, n=lost)
    expect = c.contrast.expect
    if not (expect and came):
        return text
    return text + (tr(". As expected") if came == expect else tr(f". Expected: {expect}"))


def _interval_verdict(c: Comparison, moved: str, low: float, high: float) -> tuple[str, str]:
    """Return what the interval shows; and "lower" or "higher", where chance is excluded."""
    n, sure, chance = len(c.seeds), c.coverage or 0.0, c.holm is not None and c.holm > 1 - LEVEL
    few = ""
    if sure < LEVEL:
        covers = f"{100 * sure:.0f}"
        few = tr("; with {n} pairs the interval covers at most {p} %", n=n, p=covers)
    alike = sum(np.sign(d) == np.sign(c.median or 0.0) for d in c.differences)
    values = {"moved": moved, "agree": tr("{n} of {all} seeds", n=alike, all=n)}
    values["limits"] = tr("{low} to {high}", low=signed(low), high=signed(high))
    if low <= 0 <= high:
        text = "no difference shown: the interval, {limits}, contains 0 (median {moved}, {agree})"
        return tr(text, **values) + few, ""
    text = tr("{moved} (interval {limits}), {agree}", **values)
    if chance:
        text += tr(
            "; the permutation test does not exclude chance (Holm p = {p}", p=f"{c.holm:.2g}"
        )
        if (least := smallest_p(n)) > 0.05:
            text += tr(", {n} pairs cannot give p below {p}", n=n, p=f"{least:.2g}")
        text += ")"
    return text + few, "" if chance or few else "lower" if high < 0 else "higher"

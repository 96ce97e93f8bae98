"""Paired comparisons over seeds: interval, permutation test, effect size, verdict.

A pair is one seed trained with both variants: it sets their initial weights, the order of the data
and dropout. All statistics are of the differences within pairs. A value may be infinite, if a loss
was never reached: it is larger than all others, and equal to another infinite value.
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
"""Number of sign assignments in the permutation test: all of them up to 16 pairs, else this many at
random."""
LEVEL = 0.95
"""Confidence level of the intervals."""
NOT_DONE = "{name} with seed {seed} is not done"
LACKING = "{name} with seed {seed} has no such value"
FAILED = "{name} with seed {seed} failed"


@dataclass(frozen=True)
class Comparison:
    """One comparison with its statistics.

    A statistic is None if there are too few pairs.
    """

    contrast: Contrast
    primary: bool
    seeds: tuple[int, ...]
    """Seeds for which both variants have a value: the pairs."""
    differences: tuple[float, ...]
    """Value of the change minus value of the other variant, for each pair."""
    missing: tuple[str, ...] = ()
    """A reason for each run that a pair lacks; none for pairs of which neither run is done yet."""
    lost: int = 0
    """Number of pairs that will stay missing: a run failed, or has no such value."""
    pending: int = 0
    """Number of the other missing pairs: a run is not done yet."""
    median: float | None = None
    """Median of the differences."""
    interval: tuple[float, float] | None = None
    """Confidence interval of the median by order statistics; needs at least two pairs."""
    coverage: float | None = None
    """Probability that such an interval contains the true median, if all differences are
    distinct."""
    p: float | None = None
    """Two-sided permutation test of the mean difference over signs; needs at least two pairs. If a
    difference is infinite, the test is of the mean signed rank."""
    holm: float | None = None
    """p after Holm's correction over all primary comparisons, or over all others."""
    effect: float | None = None
    """Cohen's d_z: mean difference / standard deviation of the differences; None for fewer than
    three pairs, for equal differences, and if one is infinite."""

    @property
    def name(self) -> str:
        """Both variants, as tables and pictures show them."""
        return f"{self.contrast.change} − {self.contrast.against}"


def compare(
    contrast: Contrast,
    primary: bool,
    values: Mapping[int, float | None],
    against: Mapping[int, float | None],
    planned: Collection[int] = (),
    failed: Container[tuple[str, int]] = (),
) -> Comparison:
    """Compare two variants by seed.

    contrast: with `against` filled in. values, against: the metric of both, by seed. planned: the
    seeds that both should have. failed: (variant, seed) of failed runs. A seed without a value on
    one side is a missing pair. Raises `UserError` for two or more pairs if SciPy is not installed.

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
    """Compute a − b; 0 if both are infinite.

    >>> difference(3.0, 1.0), difference(math.inf, math.inf)
    (2.0, 0.0)
    """
    return 0.0 if a == b else a - b


def interval_rank(pairs: int) -> int:
    """Return a: the interval is from the a-th smallest to the a-th largest difference.

    The interval misses the true median if fewer than a of the n differences are on one side of it.
    For any continuous distribution the probability of that is 2 P(Binomial(n, ½) < a). The result
    is the largest a with a coverage of at least 95 %, or 1, the whole range, if there are too few
    pairs.

    >>> interval_rank(5), interval_rank(8), interval_rank(9)
    (1, 1, 2)
    """
    return max(1, int(_stats().binom.ppf((1 - LEVEL) / 2, pairs, 0.5)))


def coverage(pairs: int) -> float:
    """Return the probability that the interval of n pairs contains the true median.

    It holds for any continuous distribution.

    >>> coverage(3), coverage(6)
    (0.75, 0.96875)
    """
    return float(1 - 2 * _stats().binom.cdf(interval_rank(pairs) - 1, pairs, 0.5))


# p values -----------------------------------------------------------------------------------------


def _permutation(d: np.ndarray) -> float:
    """Return the two-sided p of a permutation test over the signs of the differences."""
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
    """Return p of the permutation test if all pairs agree: the smallest possible one.

    >>> smallest_p(1), smallest_p(5)
    (1.0, 0.0625)
    """
    return max(min(1.0, 2.0 ** (1 - pairs)), 2 / (SIGNS + 1))


def too_few_seeds(pairs: Sequence[int]) -> str:
    """Return a warning if some comparisons can never exclude chance, else "".

    pairs: the number of pairs of each primary comparison. The calculation assumes that all pairs
    agree, and corrects for all comparisons with Holm's method.

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
    """Return the comparisons with `holm` set: their p, corrected by Holm's method.

    The primary comparisons and the others are corrected separately. A planned comparison without a
    p yet counts as p = 1, so that a study is corrected for all its comparisons from the start; its
    own `holm` is None. Source: Holm 1979.
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
    """Adjust p values by Holm's method.

    The k-th smallest of m is multiplied by m − k + 1; results never decrease with k, and are at
    most 1.

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
    """Format a difference with three significant digits at most and its sign; 0 has no sign.

    >>> signed(-0.03126), signed(2.0), signed(-0.0)
    ('−0.0313', '+2', '0')
    """
    return f"{value:+.3g}".replace("-", "−").replace("inf", "∞") if value else "0"


def verdict(comparison: Comparison) -> str:
    """State in one sentence what the interval of a comparison shows.

    Whether the direction is as expected is added only if both the interval and the test exclude
    chance, the interval covers the true median with at least 95 %, and no pair is lost.
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
    """Describe the interval; return (text, direction).

    The direction is "lower" or "higher" if chance is excluded, else "".
    """
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

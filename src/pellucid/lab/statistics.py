"""Paired comparisons over seeds, with SciPy: interval, permutation test, effect, words.

A pair is one seed under a change and under what it is compared with: the same first weights, the
same order of the data. Every statement is about the differences within pairs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pellucid.errors import UserError
from pellucid.lab.metrics import unit
from pellucid.lab.study import Contrast

RESAMPLES, SEED = 9999, 12345
LEVEL = 0.95
ENOUGH = 6
"""From this many pairs on, smallest to largest difference holds the median 95 times in 100."""


@dataclass(frozen=True)
class Comparison:
    """One contrast, judged. What cannot be had from so few pairs is None."""

    contrast: Contrast
    primary: bool
    seeds: tuple[int, ...]
    """The pairs: seeds that both sides have a value for."""
    values: tuple[float, ...]
    """The change's, by pair."""
    against: tuple[float, ...]
    """Those of what it is compared with."""
    missing: tuple[str, ...] = ()
    """Why a planned pair is not there, in words."""
    median: float | None = None
    """Of the differences, change minus other."""
    interval: tuple[float, float] | None = None
    """Bootstrap, 95 % in name; from two pairs on."""
    p: float | None = None
    """Permutation test of the mean difference, two-sided, every sign tried; from two pairs on."""
    holm: float | None = None
    """p after Holm's correction over all contrasts of its kind, primary or not."""
    effect: float | None = None
    """Cohen's d_z: mean difference over its standard deviation; from three pairs on."""

    @property
    def differences(self) -> tuple[float, ...]:
        """Change minus other, by pair."""
        return tuple(a - b for a, b in zip(self.values, self.against, strict=True))

    @property
    def coverage(self) -> float | None:
        """The most that an interval inside the smallest and largest of so few can be sure of."""
        n = len(self.seeds)
        return None if n < 2 else 1 - 2.0 ** (1 - n)

    @property
    def smallest_p(self) -> float:
        """The smallest p that the permutation test can give with so few pairs."""
        return min(1.0, 2.0 ** (1 - len(self.seeds)))


def compare(
    contrast: Contrast,
    primary: bool,
    values: Mapping[int, float | None],
    against: Mapping[int, float | None],
) -> Comparison:
    """Compare two variants by seed; a value that is None, or a seed of one side only, is missing.

    >>> from pellucid.lab.study import Contrast
    >>> found = compare(Contrast("a", "bleu", "b"), True, {0: 2.0}, {0: 1.5, 1: 3.0})
    >>> found.seeds, found.median, found.interval
    ((0,), 0.5, None)
    """
    seeds, missing = [], []
    for seed in sorted(values.keys() | against.keys()):
        pair = (values.get(seed), against.get(seed))
        if None not in pair:
            seeds.append(seed)
            continue
        for name, side, value in zip(
            (contrast.change, contrast.against), (values, against), pair, strict=True
        ):
            if value is None:
                why = "has no such value" if seed in side else "has no finished run"
                missing.append(f"{name} with seed {seed} {why}")
    left = tuple(float(values[s] or 0.0) for s in seeds)
    right = tuple(float(against[s] or 0.0) for s in seeds)
    found = Comparison(contrast, primary, tuple(seeds), left, right, tuple(missing))
    d = np.array(found.differences)
    if len(d) < 2:
        return replace(found, median=float(d[0])) if len(d) else found
    spread = float(d.std(ddof=1))
    return replace(
        found,
        median=float(np.median(d)),
        interval=_interval(d),
        p=_permutation(d),
        effect=float(d.mean() / spread) if len(d) > 2 and spread > 0 else None,
    )


def with_holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with Holm's correction, primary ones and others each by themselves.

    A comparison that was planned and has no p yet counts too, as p = 1: a first look at half of a
    study is not corrected for less than the whole. Source: Holm 1979.
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


def signed(value: float) -> str:
    """Return a difference as it is printed: three digits, its sign, none for 0.

    >>> signed(-0.03126), signed(2.0), signed(-0.0)
    ('−0.0313', '+2', '0')
    """
    return f"{value:+.3g}".replace("-", "−") if value else "0"


def verdict(comparison: Comparison) -> str:
    """Say what the interval says and no more."""
    c, n = comparison.contrast, len(comparison.seeds)
    if comparison.median is None:
        return "nothing to compare yet: no seed has both"
    amount = f"{abs(comparison.median):.3g} {unit(c.metric)}".strip()
    amount = "1 epoch" if amount == "1 epochs" else amount
    way = "lower" if comparison.median < 0 else "higher" if comparison.median > 0 else "the same"
    by = f" by {amount}" if comparison.median else ""
    if comparison.interval is None:
        return f"{way}{by} with the one seed there is: no interval, so nothing general can be said"
    low, high = comparison.interval
    agree = sum(np.sign(d) == np.sign(comparison.median) for d in comparison.differences)
    limits = f"{signed(low)} to {signed(high)}"
    if low <= 0 <= high:
        said = (
            f"no difference shown: the interval, {limits}, holds 0 (median {way}{by}, "
            f"{agree} of {n} seeds)"
        )
    else:
        said = f"{way}{by} (interval {limits}), {agree} of {n} seeds"
        if comparison.holm is not None and comparison.holm > 1 - LEVEL:
            said += (
                f"; the permutation test does not exclude chance (Holm p = {comparison.holm:.2g}"
            )
            least = comparison.smallest_p
            said += f", {n} pairs cannot give p below {least:.2g})" if least > 0.05 else ")"
    if n < ENOUGH and comparison.coverage is not None:
        said += f"; {n} pairs make it a {100 * comparison.coverage:.0f} % interval at the very most"
    return said + _expected(comparison)


def _expected(comparison: Comparison) -> str:
    expect, interval = comparison.contrast.expect, comparison.interval
    if not expect or interval is None or interval[0] <= 0 <= interval[1]:
        return ""
    came = "lower" if interval[1] < 0 else "higher"
    return ". As expected" if came == expect else f". Expected was {expect}"


def _interval(d: np.ndarray) -> tuple[float, float]:
    if np.all(d == d[0]):
        return float(d[0]), float(d[0])
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
    return float(found.low), float(found.high)


def _permutation(d: np.ndarray) -> float:
    found = _stats().permutation_test(
        (d,),
        np.mean,
        permutation_type="samples",
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(SEED),
    )
    return float(found.pvalue)


def _stats() -> Any:
    try:
        return importlib.import_module("scipy.stats")
    except ModuleNotFoundError:
        raise UserError(
            "comparing runs needs SciPy; install the lab's extra: pip install 'pellucid[lab]'"
        ) from None

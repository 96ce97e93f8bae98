"""The report's part on the scale of the scores: which p of 1/d_k^p is best, and what heads learn.

Variants that differ in `attention_scale` alone are one group. A scale s is the exponent
p = −log s / log d_k, so a fixed scale and a learned one can stand on one axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pellucid.lab.document import Block, Heading, Picture, Table, Text
from pellucid.lab.inside import spread
from pellucid.lab.metrics import lower_is_better, unit, written
from pellucid.lab.outcome import Outcome
from pellucid.lab.plots import Curves, Mark, Points, as_points, draw_exponents, draw_grid
from pellucid.lab.probe import KINDS, head_values
from pellucid.lab.results import Line
from pellucid.lab.statistics import difference, signed

FEWEST = 3
"""Of fixed exponents with a run, for a group to be looked at."""


@dataclass(frozen=True)
class Group:
    """Variants that differ in the scale of the scores alone."""

    title: str
    d_k: int
    fixed: Mapping[str, float]
    """The exponent of each variant with a fixed scale, by rising exponent."""
    learned: str | None
    """The variant whose heads learn theirs."""


def exponents(outcome: Outcome) -> list[Block]:
    """Return what there is to say of exponents, or nothing where a study does not vary them."""
    groups = groups_of(outcome)
    if not groups:
        return []
    metrics = outcome.study.plan.metrics
    drawn = [_against(outcome, groups, metric) for metric in metrics]
    blocks = [Heading("Which exponent"), *drawn, HOW, _best(outcome, groups, metrics)]
    if any(group.learned is not None for group in groups):
        blocks += [_along(outcome, groups), Text(WHERE), _where(outcome, groups)]
    return blocks


HOW = Text(
    "A scale s of q·k is the exponent p = −log s / log d_k: p = 0 leaves the scores as they are, "
    "0.5 is / √d_k, 1 is / d_k. The best fixed exponent is that of the lowest (of a score: "
    "highest) median over the seeds that every exponent here was run with; beside it stands the "
    "best of each of these seeds, which says how far to believe it. It was chosen by looking at "
    "the results, so a difference to it makes the learned scale look worse than it is, and no test "
    "is made of it."
)
WHERE = (
    "Where the learned scales ended, over layers, heads and seeds (least to most in brackets). "
    "Queries and keys grow or shrink meanwhile, and softmax sees the product alone, so this is "
    "where training took the scale from 1 / √d_k on, not the one value that would do:"
)


def exponent(scale: float, d_k: int) -> float | None:
    """Return the p with 1/d_k^p = scale; None where there is none.

    >>> exponent(0.25, 16), exponent(-0.1, 16)
    (0.5, None)
    """
    if scale <= 0 or d_k < 2:
        return None
    return -math.log(scale) / math.log(d_k) + 0.0


def groups_of(outcome: Outcome) -> list[Group]:
    """Return the groups that have enough fixed exponents with a run."""
    found: dict[Any, list[str]] = {}
    for name, config in outcome.study.variants.items():
        if outcome.done[name]:
            alike = replace(config, model=replace(config.model, attention_scale="none"))
            found.setdefault(repr(alike), []).append(name)
    groups = []
    for names in found.values():
        group = _group(outcome, names)
        if len(group.fixed) >= FEWEST:
            groups.append(group)
    widths = [g.d_k for g in groups]
    return [g if widths.count(g.d_k) == 1 else replace(g, title=_longer(g)) for g in groups]


def _longer(group: Group) -> str:
    return f"{group.title}, {next(iter(group.fixed))} and the like"


def _group(outcome: Outcome, names: Sequence[str]) -> Group:
    models = {name: outcome.study.variants[name].model for name in names}
    d_k = models[names[0]].head_width
    learned = next((n for n, m in models.items() if m.attention_scale == "learned"), None)
    fixed = {n: exponent(m.score_factor, d_k) for n, m in models.items() if n != learned}
    known = sorted((p, n) for n, p in fixed.items() if p is not None)
    return Group(f"d_k = {d_k}", d_k, {n: p for p, n in known}, learned)


def _against(outcome: Outcome, groups: Sequence[Group], metric: str) -> Block:
    curves, marks = {}, []
    for group in groups:
        found = _values(outcome, group, metric)
        seeds, ps = _common(found), list(group.fixed.values())
        curves[group.title] = [(ps, [found[name][s] for name in group.fixed]) for s in seeds]
        learned, values = _learned(outcome, group, metric, seeds)
        for kind, ends in learned.items():
            if ends and values:
                y = float(np.median(list(values.values())))
                marks.append(Mark(group.title, kind, float(np.median(ends)), y))
    said = (
        f"{metric} against the exponent: median over the seeds that every exponent of a curve was "
        "run with, band from the least to the most."
    )
    if marks:
        said += (
            " Black-rimmed marks: learned scales with the same seeds, each kind of attention at "
            "the median of its heads. All marks of a width are one model, so of one height."
        )
    label = f"{metric} ({unit(metric)})" if unit(metric) else metric
    return Picture(f"exponents-{metric}.png", draw_exponents(curves, marks, label), said)


def _values(outcome: Outcome, group: Group, metric: str) -> dict[str, dict[int, float]]:
    """Return a metric of every fixed variant, by seed."""
    return {
        name: {s: v for s, v in outcome.values(name, metric).items() if v is not None}
        for name in group.fixed
    }


def _common(values: Mapping[str, Mapping[int, float]]) -> list[int]:
    """Return the seeds that all have."""
    return sorted(set.intersection(*(set(by_seed) for by_seed in values.values())))


def _learned(
    outcome: Outcome, group: Group, metric: str, seeds: Sequence[int]
) -> tuple[dict[str, list[float]], dict[int, float]]:
    """Return, of these seeds, the exponents at the end by kind of attention, and the metric."""
    if group.learned is None:
        return {}, {}
    lines = {s: line for s, line in outcome.done[group.learned].items() if s in seeds}
    ps = {kind: [p for x in lines.values() for p in _last(x, group.d_k, kind)[0]] for kind in KINDS}
    own = outcome.values(group.learned, metric)
    return ps, {s: v for s in lines if (v := own[s]) is not None}


def _last(line: Line, d_k: int, kind: str) -> tuple[list[float], int]:
    """Return the exponents of all heads of a kind at a run's end, and how many have none."""
    probes = line.get("probes") or [{"attention": {}}]
    found = [exponent(s, d_k) for s in head_values(probes[-1], kind, "scale")]
    return [p for p in found if p is not None], found.count(None)


def _best(outcome: Outcome, groups: Sequence[Group], metrics: Sequence[str]) -> Block:
    rows = [[metric, *_row(outcome, group, metric)] for metric in metrics for group in groups]
    heads = ["metric", "variants", "seeds", "best p", "its value", "best p by seed", "learned p"]
    return Table([*heads, "its value", "learned − best"], rows)


def _row(outcome: Outcome, group: Group, metric: str) -> list[str]:
    sign = 1 if lower_is_better(metric) else -1
    values = _values(outcome, group, metric)
    seeds = _common(values)
    if not seeds:
        return [group.title, "none with every exponent yet", *["–"] * 6]

    def middle(name: str) -> float:
        return float(np.median([values[name][s] for s in seeds]))

    best = min(group.fixed, key=lambda name: sign * middle(name))
    overall = _lowest(group, {name: sign * middle(name) for name in group.fixed})
    each = [_lowest(group, {n: sign * values[n][s] for n in group.fixed}) for s in seeds]
    row = [group.title, str(len(seeds)), overall, written(middle(best)), ", ".join(each)]
    kinds, learned = _learned(outcome, group, metric, seeds)
    ps = [p for ends in kinds.values() for p in ends]
    if not learned:
        return [*row, spread(ps, ".2f"), "–", "–"]
    differences = [difference(value, values[best][s]) for s, value in learned.items()]
    own = written(float(np.median(list(learned.values()))))
    return [*row, spread(ps, ".2f"), own, _difference(differences)]


def _lowest(group: Group, judged: Mapping[str, float]) -> str:
    """Return the exponent with the lowest value, all that share it; "–" where none is finite."""
    least = min(judged.values())
    ps = [f"{group.fixed[name]:.3g}" for name, value in judged.items() if value == least]
    return " = ".join(ps) if math.isfinite(least) else "–"


def _difference(pairs: Sequence[float]) -> str:
    lower = sum(d < 0 for d in pairs)
    return f"median {signed(float(np.median(pairs)))}, lower in {lower} of {len(pairs)}"


def _along(outcome: Outcome, groups: Sequence[Group]) -> Block:
    """Each kind's exponents along training, band over layers, heads and seeds."""
    shown = [g for g in groups if g.learned is not None]
    panels: dict[tuple[str, str], Curves] = {}
    for group in shown:
        lines = outcome.done[group.learned or ""].values()
        curves = {kind: [c for x in lines for c in _heads(x, group.d_k, kind)] for kind in KINDS}
        panels["p", group.title] = {kind: c for kind, c in curves.items() if c}
    titles = [g.title for g in shown]
    marked = dict.fromkeys(titles, (0.5, "√d_k"))
    return Picture(
        "learned.png",
        draw_grid(["p"], titles, panels, "step", marked, count=False),
        "The exponents of the learned scales along training: median over layers, heads and seeds, "
        "band from the least to the most. All begin at 0.5.",
    )


def _heads(line: Line, d_k: int, kind: str) -> list[Points]:
    """Return one curve for each head of a kind in a run."""
    probes = line.get("probes") or []
    steps = [float(probe["step"]) for probe in probes]
    curves = []
    for head in zip(*(head_values(p, kind, "scale") for p in probes), strict=True):
        ps = [exponent(s, d_k) for s in head]
        there = [(x, p) for x, p in zip(steps, ps, strict=True) if p is not None]
        curves.append(as_points(there))
    return curves


def _where(outcome: Outcome, groups: Sequence[Group]) -> Block:
    rows = []
    for group in groups:
        for kind in KINDS if group.learned is not None else ():
            ends = [_last(x, group.d_k, kind) for x in outcome.done[group.learned or ""].values()]
            ps = [p for some, _ in ends for p in some]
            none = sum(count for _, count in ends)
            said = f", {none} of {len(ps) + none} heads at 0 or below" if none else ""
            scales = spread([group.d_k**-p for p in ps], ".3g")
            rows.append([group.title, kind, spread(ps, ".2f") + said, scales])
    return Table(["variants", "attention", "p", "scale of q·k"], rows)

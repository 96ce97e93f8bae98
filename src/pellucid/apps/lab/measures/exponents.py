"""Which p of 1 / d_k^p is best, and which scales heads learn.

Variants that differ in `attention_scale` only are one group. A scale s is the exponent
p = −log s / log d_k, which puts fixed and learned scales on one axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pellucid.apps.lab.document import Block, Plot, Table
from pellucid.apps.lab.measures.measure import KINDS, Measure, as_points, head_values
from pellucid.apps.lab.metrics import find_metric, format_spread, format_value
from pellucid.apps.lab.plots import (
    INK,
    WIDTH,
    Curves,
    Points,
    draw_bands,
    draw_grid,
    label_lines,
    new_figure,
    set_log_if_wide,
    styles,
    to_svg,
)
from pellucid.apps.lab.statistics import difference, signed

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings
    from pellucid.apps.lab.results import Line

FEWEST = 3
"""Fixed exponents with a run that a group needs."""
SHAPES = dict(zip(KINDS, "D^v", strict=True))
ABOUT = (
    "A scale s of q·k is the exponent p = −log s / log d_k: p = 0 does not scale, 0.5 is / √d_k, "
    "1 is / d_k. The best fixed exponent has the best median over the seeds that every exponent "
    "was run with; the best of each seed is given too, which says how far to trust it. It was "
    "chosen by looking at the results, so the difference to it makes the learned scale look worse "
    "than it is and is not tested."
)
ENDS = (
    "Where the learned scales ended, over layers, heads and seeds (least to most). Queries and "
    "keys grow or shrink meanwhile and softmax sees only the product, so this is where training "
    "moved the scale from 1 / √d_k, not the only value that works:"
)


@dataclass(frozen=True)
class Group:
    """Variants that differ in the scale of the scores only."""

    title: str
    d_k: int
    fixed: Mapping[str, float]
    """The exponent of each variant with a fixed scale, in rising order."""
    learned: str | None
    """The variant whose heads learn their scales."""


class Learned(NamedTuple):
    """What a group's learned scales reached with some seeds."""

    exponents: Mapping[str, list[float]]
    """Of every head at the end, by kind of attention."""
    values: Mapping[int, float]
    """Of a metric, by seed."""


def show(findings: Findings) -> Sequence[Block]:
    """Return pictures and tables; nothing for a study that does not vary the scale."""
    groups = groups_of(findings)
    if not groups:
        return []
    metrics = findings.study.plan.metrics
    blocks = [
        *(_against(findings, groups, metric) for metric in metrics),
        ABOUT,
        _best(findings, groups),
    ]
    learned = [(g, list(findings.done[g.learned].values())) for g in groups if g.learned]
    if learned:
        blocks += [_along(learned), ENDS, _ends(learned)]
    return blocks


def exponent(scale: float, d_k: int) -> float | None:
    """Return the p with 1 / d_k^p = scale; None where there is none.

    >>> exponent(0.25, 16), exponent(-0.1, 16)
    (0.5, None)
    """
    if scale <= 0 or d_k < 2:
        return None
    return -math.log(scale) / math.log(d_k) + 0.0


def groups_of(findings: Findings) -> list[Group]:
    """Return the groups with enough fixed exponents that have a run."""
    alike: dict[str, list[str]] = {}
    for name, config in findings.study.variants.items():
        if findings.done[name]:
            one = replace(config, model=replace(config.model, attention_scale="none"))
            alike.setdefault(repr(one), []).append(name)
    groups = []
    for names in alike.values():
        models = {name: findings.study.variants[name].model for name in names}
        d_k = models[names[0]].head_width
        learned = next((n for n, m in models.items() if m.attention_scale == "learned"), None)
        fixed = {n: exponent(m.score_factor, d_k) for n, m in models.items() if n != learned}
        known = sorted((p, n) for n, p in fixed.items() if p is not None)
        if len(known) >= FEWEST:
            groups.append(Group(f"d_k = {d_k}", d_k, {n: p for p, n in known}, learned))
    widths = [group.d_k for group in groups]
    return [
        group
        if widths.count(group.d_k) == 1
        else replace(group, title=f"{group.title}, {next(iter(group.fixed))} and alike")
        for group in groups
    ]


def _fixed(findings: Findings, group: Group, metric: str) -> dict[str, dict[int, float]]:
    """Return a metric of every fixed variant, for the seeds that all of them have."""
    values = {
        name: {s: v for s, v in findings.values(name, metric).items() if v is not None}
        for name in group.fixed
    }
    common = sorted(set.intersection(*(set(by_seed) for by_seed in values.values())))
    return {name: {s: by_seed[s] for s in common} for name, by_seed in values.items()}


def _learned(findings: Findings, group: Group, metric: str, seeds: Sequence[int]) -> Learned:
    if group.learned is None:
        return Learned({}, {})
    lines = {s: line for s, line in findings.done[group.learned].items() if s in seeds}
    found = {
        kind: [p for line in lines.values() for p in _last(line, group.d_k, kind) if p is not None]
        for kind in KINDS
    }
    own = findings.values(group.learned, metric)
    return Learned(found, {s: v for s in lines if (v := own[s]) is not None})


def _last(line: Line, d_k: int, kind: str) -> list[float | None]:
    """Return the exponent of every head of a kind at the end of a run; None for a scale ≤ 0."""
    last = line["probes"][-1] if line["probes"] else {}
    return [exponent(s, d_k) for s in head_values(last, kind, "scale")]


# a metric against the exponent --------------------------------------------------------------------


def _against(findings: Findings, groups: Sequence[Group], metric: str) -> Block:
    record = find_metric(metric)
    curves: dict[str, list[Points]] = {}
    marks: list[tuple[str, str, float, float]] = []
    for group in groups:
        found = _fixed(findings, group, metric)
        ps, seeds = list(group.fixed.values()), list(next(iter(found.values())))
        curves[group.title] = [(ps, [found[name][s] for name in group.fixed]) for s in seeds]
        learned = _learned(findings, group, metric, seeds)
        for kind, ends in learned.exponents.items():
            if ends and learned.values:
                y = float(np.median(list(learned.values.values())))
                marks.append((group.title, kind, float(np.median(ends)), y))
    title = f"{metric} over the exponent p ({record.better} is better)"
    about = (
        "Median over the seeds that every exponent of a curve was run with (number in brackets), "
        "band from least to most."
    )
    if marks:
        about += (
            " Outlined marks: learned scales with the same seeds, each kind of attention at the "
            "median of its heads (◆ encoder, ▲ decoder, ▼ cross). All marks of a width are one "
            "model, so they have one height."
        )
    from matplotlib.ticker import MaxNLocator

    with new_figure(title, WIDTH, 3.8) as figure:
        axes = figure.subplots()
        draw_bands(axes, curves, "o")
        set_log_if_wide(axes, [curves])
        points = [
            (x, y) for seeds in curves.values() for p in seeds for x, y in zip(*p, strict=True)
        ]
        ylabel = record.label + ("; no point: never" * any(math.isinf(y) for _, y in points))
        if points and all(y == round(y) for _, y in points if math.isfinite(y)):  # whole epochs
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        for group_title, kind, x, y in marks:
            colour = styles(list(curves))[group_title]["color"]
            axes.plot(x, y, SHAPES[kind], color=colour, markersize=8, markeredgecolor=INK)
        if points:  # an exponent without a finite value keeps its place
            low, high = min(x for x, _ in points), max(x for x, _ in points)
            axes.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        axes.set(xlabel="exponent p: scores / d_k^p", ylabel=ylabel)
        label_lines(axes, curves, lambda name, _: f"{name} ({len(curves[name])})")
        return Plot(f"exponents-{metric}.svg", title, to_svg(figure), about)


def _best(findings: Findings, groups: Sequence[Group]) -> Table:
    rows = [
        [metric, *_row(findings, group, metric)]
        for metric in findings.study.plan.metrics
        for group in groups
    ]
    heads = ["metric", "variants", "seeds", "best p", "its value", "best p by seed", "learned p"]
    return Table([*heads, "its value", "learned − best"], rows)


def _row(findings: Findings, group: Group, metric: str) -> list[str]:
    sign = 1 if find_metric(metric).better == "lower" else -1
    values = _fixed(findings, group, metric)
    seeds = list(next(iter(values.values())))
    if not seeds:
        return [group.title, "none with every exponent yet", *["–"] * 6]
    middles = {name: float(np.median(list(values[name].values()))) for name in group.fixed}
    best = min(group.fixed, key=lambda name: sign * middles[name])
    overall = _lowest(group, {name: sign * middle for name, middle in middles.items()})
    each = [_lowest(group, {n: sign * values[n][s] for n in group.fixed}) for s in seeds]
    learned = _learned(findings, group, metric, seeds)
    ps = [p for ends in learned.exponents.values() for p in ends]
    own, compared = "–", "–"
    if learned.values:
        own = format_value(float(np.median(list(learned.values.values()))))
        pairs = [difference(value, values[best][s]) for s, value in learned.values.items()]
        lower = sum(d < 0 for d in pairs)
        compared = f"median {signed(float(np.median(pairs)))}, lower in {lower} of {len(pairs)}"
    row = [group.title, str(len(seeds)), overall, format_value(middles[best]), ", ".join(each)]
    return [*row, format_spread(ps, ".2f"), own, compared]


def _lowest(group: Group, values: Mapping[str, float]) -> str:
    """Return the exponent with the lowest value, all that share it; "–" where none is finite."""
    least = min(values.values())
    ps = [f"{group.fixed[name]:.3g}" for name, value in values.items() if value == least]
    return " = ".join(ps) if math.isfinite(least) else "–"


# learned exponents --------------------------------------------------------------------------------


def _along(learned: Sequence[tuple[Group, Sequence[Line]]]) -> Block:
    """Draw each kind's exponents along training, band over layers, heads and seeds."""
    panels: dict[tuple[str, str], Curves] = {}
    for group, lines in learned:
        curves = {
            kind: [curve for line in lines for curve in _head_curves(line, group.d_k, kind)]
            for kind in KINDS
        }
        panels["p", group.title] = {kind: found for kind, found in curves.items() if found}
    title = "Exponents of the learned scales during training"
    columns = [group.title for group, _ in learned]
    return Plot(
        "learned.svg",
        title,
        draw_grid(["p"], columns, panels, title, "step", lines={"p": (0.5, "√d_k")}),
        "Median over layers, heads and seeds, band from least to most. All start at 0.5.",
    )


def _head_curves(line: Line, d_k: int, kind: str) -> list[Points]:
    """Return one curve for each head of a kind in a run."""
    steps = [probe["step"] for probe in line["probes"]]
    heads = zip(*(head_values(p, kind, "scale") for p in line["probes"]), strict=True)
    return [
        as_points((x, exponent(s, d_k)) for x, s in zip(steps, head, strict=True)) for head in heads
    ]


def _ends(learned: Sequence[tuple[Group, Sequence[Line]]]) -> Table:
    rows = []
    for group, lines in learned:
        for kind in KINDS:
            found = [p for line in lines for p in _last(line, group.d_k, kind)]
            ps = [p for p in found if p is not None]
            none = len(found) - len(ps)
            also = f", {none} of {len(found)} heads at 0 or below" if none else ""
            scales = format_spread([group.d_k**-p for p in ps], ".3g")
            rows.append([group.title, kind, format_spread(ps, ".2f") + also, scales])
    return Table(["variants", "attention", "p", "scale of q·k"], rows)


MEASURE = Measure(
    "exponents",
    "Which exponent",
    "each metric over the exponent p of the scale 1 / d_k^p, and the exponents of learned scales",
    show=show,
)

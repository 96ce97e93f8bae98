"""A measure of studies of the scale: which p of 1 / d_k^p is best, and which scales heads learn.

Studies read this file by their setting `imports`.

Variants that differ in `attention_scale` only are one group. A scale s is the exponent
p = −log s / log d_k, which puts fixed and learned scales on one axis.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from measuring import KINDS, draw_grid, head_values
from pellucid.apps.lab.document import Block, Plot, Table
from pellucid.apps.lab.measures import MEASURES, Measure
from pellucid.apps.lab.metrics import find_metric, format_spread, format_value
from pellucid.apps.lab.plots import Curves, Mark, Points, as_points, draw_curves
from pellucid.apps.lab.statistics import difference, signed
from pellucid.apps.lab.wording import captions, tr

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings
    from pellucid.apps.lab.results import Line

FEWEST = 3
"""Fixed exponents with a run that a group needs."""
Values = tuple[Sequence[int], Mapping[str, Sequence[float]], Mapping[int, float]]
"""Seeds, the value of each by fixed variant, and the value of the learned scales by seed."""
SHAPES = dict(zip(KINDS, "D^v", strict=True))


@dataclass(frozen=True)
class Group:
    """Variants that differ in the scale of the scores only."""

    title: str
    d_k: int
    fixed: Mapping[str, float]
    """The exponent of each variant with a fixed scale, in rising order."""
    learned: str | None
    """The variant whose heads learn their scales."""
    lines: Mapping[int, Line] = field(default_factory=dict)
    """Its finished runs, by seed."""

    def ends(self, kind: str, seeds: Container[int]) -> tuple[list[float], int]:
        """Return the learned exponents of a kind's heads at the end, and how many heads have none.

        A scale of 0 or below has none.
        """
        runs = [line for seed, line in self.lines.items() if seed in seeds]
        scales = [
            s for run in runs for p in run["probes"][-1:] for s in head_values(p, kind, "scale")
        ]
        found = [p for s in scales if (p := exponent(s, self.d_k)) is not None]
        return found, len(scales) - len(found)

    def values(self, findings: Findings, metric: str) -> Values:
        """Return a metric of the seeds that every fixed exponent has, and of the learned scales."""

        def known(name: str) -> dict[int, float]:
            return {s: v for s, v in findings.values(name, metric).items() if v is not None}

        fixed, learned = {name: known(name) for name in self.fixed}, known(self.learned or "")
        seeds = sorted(set.intersection(*map(set, fixed.values())))
        of = {name: [values[s] for s in seeds] for name, values in fixed.items()}
        return seeds, of, {s: learned[s] for s in seeds if s in learned}


def show(findings: Findings) -> Sequence[Block]:
    """Return pictures and tables; nothing for a study that does not vary the scale."""
    groups = groups_of(findings)
    if not groups:
        return []
    metrics = findings.study.plan.metrics
    rows = [[m, group.title, *_row(findings, group, m)] for m in metrics for group in groups]
    heads = ["metric", "variants", "seeds", "best p", "its value", "best p by seed", "learned p"]
    best = Table([*heads, "its value", "learned − best"], rows)
    blocks: list[Block] = [
        *(_against(findings, groups, m) for m in metrics),
        captions()["best"],
        best,
    ]
    if learned := [group for group in groups if group.learned]:
        ends = [_ends(group, kind) for group in learned for kind in KINDS]
        blocks += [_along(learned), captions()["ends"]]
        blocks.append(Table(["variants", "attention", "p", "scale of q·k"], ends))
    return blocks


def exponent(scale: float, d_k: int) -> float | None:
    """Return the p with 1 / d_k^p = scale; None where there is none.

    >>> exponent(0.25, 16), exponent(-0.1, 16)
    (0.5, None)
    """
    return None if scale <= 0 or d_k < 2 else -math.log(scale, d_k) + 0.0


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
            lines = findings.done[learned] if learned else {}
            in_order = {name: p for p, name in known}
            groups.append(Group(f"d_k = {d_k}", d_k, in_order, learned, lines))
    widths = [group.d_k for group in groups]
    return [
        group
        if widths.count(group.d_k) == 1
        else replace(group, title=f"{group.title}, {next(iter(group.fixed))} and alike")
        for group in groups
    ]


def _against(findings: Findings, groups: Sequence[Group], metric: str) -> Block:
    """Draw a metric over the exponent."""
    record, marks = find_metric(metric), list[Mark]()
    curves: dict[str, list[Points]] = {}
    for group in groups:
        seeds, fixed, learned = group.values(findings, metric)
        runs = zip(*fixed.values(), strict=True)
        curves[group.title] = [(list(group.fixed.values()), values) for values in runs]
        for kind in KINDS if learned else ():
            if ends := group.ends(kind, seeds)[0]:
                y = median(learned.values())
                label = tr("learned scale: {kind}", kind=tr(kind))
                marks.append(Mark(group.title, median(ends), y, SHAPES[kind], label))
    never = any(math.isinf(y) for runs in curves.values() for _, ys in runs for y in ys)
    better = tr(f"{record.better} is better")
    title = tr("{metric} over the exponent p ({better})", metric=metric, better=better)
    label = record.label + (tr("; no point: never") if never else "")
    axis = tr("exponent p: scores / d_k^p")
    svg = draw_curves({"": curves}, title, axis, label, marker="o", marks=marks)
    return Plot(
        f"exponents-{metric}.svg",
        title,
        svg,
        captions()["exponents"] + captions()["marks"] * bool(marks),
    )


def _row(findings: Findings, group: Group, metric: str) -> list[str]:
    """Return the cells of a group in the table of the best exponents."""
    seeds, fixed, learned = group.values(findings, metric)
    if not seeds:
        return [tr("none with every exponent yet"), *["–"] * 6]
    sign = 1 if find_metric(metric).better == "lower" else -1
    middles = {name: median(values) for name, values in fixed.items()}
    best = min(middles, key=lambda name: sign * middles[name])
    each = [
        _lowest(group, {name: sign * values[i] for name, values in fixed.items()})
        for i in range(len(seeds))
    ]
    ends = [p for kind in KINDS for p in group.ends(kind, seeds)[0]]
    own = compared = "–"
    if learned:
        own = format_value(median(learned.values()))
        at_best = dict(zip(seeds, fixed[best], strict=True))
        pairs = [difference(value, at_best[s]) for s, value in learned.items()]
        lower = sum(d < 0 for d in pairs)
        values = {"median": signed(median(pairs)), "n": lower, "all": len(pairs)}
        compared = tr("median {median}, lower in {n} of {all}", **values)
    overall = _lowest(group, {name: sign * middle for name, middle in middles.items()})
    row = [str(len(seeds)), overall, format_value(middles[best]), ", ".join(each)]
    return [*row, format_spread(ends, ".2f"), own, compared]


def _lowest(group: Group, values: Mapping[str, float]) -> str:
    """Return the exponent with the lowest value, all that share it; "–" where none is finite."""
    least = min(values.values())
    ps = [f"{group.fixed[name]:.3g}" for name, value in values.items() if value == least]
    return " = ".join(ps) if math.isfinite(least) else "–"


def _along(groups: Sequence[Group]) -> Block:
    """Draw each kind's learned exponents along training, a curve for each head of each run."""

    def curves(group: Group, kind: str) -> Iterator[Points]:
        for line in group.lines.values():
            probes = [probe for probe in line["probes"] if "attention" in probe]
            steps = [probe["step"] for probe in probes]
            heads = zip(*(head_values(p, kind, "scale") for p in probes), strict=True)
            for head in heads:
                yield as_points(zip(steps, (exponent(s, group.d_k) for s in head), strict=True))

    panels: dict[tuple[str, str], Curves] = {
        ("p", group.title): {k: found for k in KINDS if (found := list(curves(group, k)))}
        for group in groups
    }
    title = tr("Exponents of the learned scales during training")
    columns = [group.title for group in groups]
    svg = draw_grid(["p"], columns, panels, title, "step", lines={"p": (0.5, "√d_k")})
    return Plot("learned.svg", title, svg, captions()["learned"])


def _ends(group: Group, kind: str) -> list[str]:
    """Return where the learned scales of one kind of attention ended, as a row."""
    ps, none = group.ends(kind, group.lines)
    also = tr(", {n} of {all} heads at 0 or below", n=none, all=len(ps) + none) if none else ""
    scales = format_spread([group.d_k**-p for p in ps], ".3g")
    return [group.title, tr(kind), format_spread(ps, ".2f") + also, scales]


MEASURES["exponents"] = Measure("exponents", "Which exponent", show=show)

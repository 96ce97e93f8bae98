"""The report of a study: what was asked, what was found, how sure that is, how to repeat it.

Its prose is in `lab/templates`; this file has its tables, pictures and facts.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.apps.lab.document import Block, Plot, Table, captions, render, to_html
from pellucid.apps.lab.findings import UNKNOWN, Findings
from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.metrics import find_metric, format_spread, format_value
from pellucid.apps.lab.plots import Curves, Points, draw_curves, draw_forest, require_matplotlib
from pellucid.apps.lab.statistics import SIGNS, Comparison, signed, verdict
from pellucid.apps.lab.study import Bound, flat_settings
from pellucid.core.files import write_atomically

CURVES = {"train": ("train_loss", "training loss"), "valid": ("valid_loss", "validation loss")}


def write_report(findings: Findings, folder: Path) -> list[Path]:
    """Write report.html, report.md and the pictures next to it; return their paths.

    Raises `UserError` when a package of the lab extra is missing, or a file cannot be written.
    """
    require_matplotlib()
    curves, forest, sections = draw(findings)
    markdown = render(
        "report.md",
        **_answers(findings),
        **_facts(findings),
        curves=curves,
        forest=forest,
        sections=sections,
        signs=f"{SIGNS:,}",
        signed=signed,
    )
    blocks = [*curves, *forest, *chain(*sections.values())]
    pictures = {block.name: block.svg for block in blocks if isinstance(block, Plot)}
    html = to_html(markdown, findings.study.plan.question, pictures)
    contents = {"report.html": html, "report.md": markdown, **pictures}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    return [folder / name for name in contents]


def answers_to_markdown(findings: Findings, level: str = "##") -> str:
    """Return the first part of the report: what was asked, the verdicts, and every value.

    level: of its headings.
    """
    return render("answers.md", **_answers(findings) | {"level": level})


def draw(findings: Findings) -> tuple[list[Plot], list[Plot], Mapping[str, Sequence[Block]]]:
    """Return the learning curves, the differences, and by title what the measures show."""
    shown = [c for c in findings.comparisons if c.seeds]
    measures = [MEASURES[name] for name in findings.study.plan.measures]
    found = {m.title: m.show(findings) for m in measures if m.show is not None}
    sections = {title: blocks for title, blocks in found.items() if blocks}
    return _curves(findings), [_forest(shown)] if shown else [], sections


def _answers(findings: Findings) -> dict[str, Any]:
    return {
        "findings": findings,
        "level": "##",
        "unknown": UNKNOWN,
        "verdict": verdict,
        "check_bound": check_bound,
        "values": _values(findings),
    }


def check_bound(findings: Findings, bound: Bound) -> str:
    """Return the values of a variant's runs, and in how many of them a claim holds."""
    values = findings.values(bound.change, bound.metric).values()
    ordered = sorted(v for v in values if v is not None)
    lost = len(values) - len(ordered) + sum(f["change"] == bound.change for f in findings.failed)
    without = f"; {lost} more failed or have no such value" if lost else ""
    if not ordered:
        return f"{bound.change}: no value{without}" if lost else f"no run of {bound.change} yet"
    text = f"{bound.change}: {', '.join(map(format_value, ordered))}. "
    kept = sum(bound.holds(value) for value in ordered)
    if kept < len(ordered):
        return f"{text}Does not hold: {len(ordered) - kept} of {len(ordered)} break it{without}"
    return f"{text}Holds in {kept} of {kept} finished runs{without}"


def _values(findings: Findings) -> Table:
    """Return every metric of every variant: median, least and most, and published figures.

    Points of a grid, or drawn at random, are ordered by the first metric, best first.
    """
    plan = findings.study.plan
    published = {(r.change, r.metric): f"{r.value:g}" for r in plan.reference}
    columns = [
        (metric, figures)
        for metric in plan.metrics
        for figures in (False, True)
        if not figures or any(of == metric for _, of in published)
    ]
    rows = []
    order = sorted(findings.study.changes, key=lambda name: _rank(findings, name))
    for name in order:
        change = findings.study.changes[name]
        count = f"{len(findings.done[name])}/{len(findings.study.seeds_of(name))}"
        cells = [
            published.get((name, metric), "–") if figures else _spread(findings, name, metric)
            for metric, figures in columns
        ]
        rows.append([name, change.about or "–", count, *cells])
    heads = [
        f"{plan.reference_name}, {metric}" if figures else find_metric(metric).label
        for metric, figures in columns
    ]
    return Table(["variant", "description", "runs", *heads], rows)


def _rank(findings: Findings, name: str) -> float:
    """Return the place of a variant among the others: that of a point follows from its values."""
    if name not in findings.study.points:
        return -math.inf
    metric = findings.study.plan.metrics[0]
    known = [v for v in findings.values(name, metric).values() if v is not None]
    sign = 1.0 if find_metric(metric).better == "lower" else -1.0
    return sign * float(np.median(known)) if known else math.inf


def _spread(findings: Findings, change: str, metric: str) -> str:
    values = findings.values(change, metric).values()
    known = [v for v in values if v is not None]
    lacking = f", none in {len(values) - len(known)}" if len(known) < len(values) else ""
    return format_spread(known, ".4g") + lacking if known or not values else "none"


# curves and differences ---------------------------------------------------------------------------


def _curves(findings: Findings) -> list[Plot]:
    plots = []
    for key, (metric, name) in CURVES.items():
        panels: dict[str, Curves] = {}
        minus: dict[str, Curves] = {}
        for base, names in findings.study.families().items():
            found = {
                change: points
                for change in names
                if (points := _points(findings, change, key)) and all(x for x, _ in points.values())
            }
            if found:
                panels[f"compared with {base}"] = {c: [*by.values()] for c, by in found.items()}
            if base in found and any((curves := _minus(found, base)).values()):
                minus[f"minus {base}"] = curves
        ylabel = find_metric(metric).unit
        if panels:
            title = f"{name.capitalize()} by epoch (lower is better)"
            svg = draw_curves(panels, title, "epoch", ylabel)
            plots.append(Plot(f"{key}.svg", title, svg, captions()["curves"]))
        if minus:
            title = f"Difference in {name}, seed by seed (below 0 is better)"
            svg = draw_curves(minus, title, "epoch", f"difference, {ylabel}", differences=True)
            plots.append(Plot(f"{key}-differences.svg", title, svg, captions()["differences"]))
    return plots


def _minus(found: Mapping[str, Mapping[int, Points]], base: str) -> Curves:
    """Return every curve minus the base's of the same seed, at the epochs that both have.

    The base has no curves, only its place: a variant keeps its colour.
    """
    curves: dict[str, list[Points]] = {change: [] for change in found}
    for change, seeds in found.items():
        for seed in sorted(seeds.keys() & found[base].keys()) if change != base else ():
            under = dict(zip(*found[base][seed], strict=True))
            both = [(x, y - under[x]) for x, y in zip(*seeds[seed], strict=True) if x in under]
            curves[change].append(([x for x, _ in both], [y for _, y in both]))
    return curves


def _points(findings: Findings, change: str, key: str) -> dict[int, Points]:
    """Return a variant's curves by seed.

    Lines of 0.1.0 have one validation an epoch, None for an epoch without.
    """
    found: dict[int, Points] = {}
    for seed, line in findings.done[change].items():
        curve = line["curve"]
        epochs = curve.get(f"{key}_epoch", curve["epoch"])
        both = [(x, y) for x, y in zip(epochs, curve[key], strict=False) if y is not None]
        found[seed] = ([x for x, _ in both], [y for _, y in both])
    return found


def _forest(comparisons: Sequence[Comparison]) -> Plot:
    never = any(math.isinf(d) for c in comparisons for d in c.differences)
    about = captions()["forest"] + captions()["never"] * never
    return Plot("forest.svg", "Differences, seed by seed", draw_forest(comparisons), about)


# how it was made ----------------------------------------------------------------------------------


def _facts(findings: Findings) -> dict[str, Any]:
    """Return the settings, and what repeating the study takes."""
    study = findings.study
    variants = {name: flat_settings(config) for name, config in study.variants.items()}
    base = variants[study.plan.base]
    unused = {"description"}
    if base["data.train"]:  # files replace the corpus
        unused |= {"data.corpus", "data.split"}
    scored = any(config.evaluation.metric == "bleu" for config in study.variants.values())
    machines = [
        f"{title}: {', '.join(f'{name} {value}' for name, value in line[key].items())}."
        for title, key in (("Machine", "machine"), ("Versions", "environment"))
        for line in findings.lines
    ]
    return {
        "changed": {
            name: [f"{k} = {v}" for k, v in settings.items() if base.get(k) != v]
            for name, settings in variants.items()
        },
        "settings": "\n".join(f"{k} = {v}" for k, v in base.items() if k not in unused),
        "machines": list(dict.fromkeys(machines)),
        "extras": "lab,eval" if scored else "lab",
        "typed": shlex.quote(study.typed),
    }

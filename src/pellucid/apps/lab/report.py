"""The report of a study: question, results, uncertainty, and how to repeat it.

The prose is in lab/templates; this file computes the tables, pictures and facts.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.apps.lab.document import Block, Plot, Table, lab_package, render, to_html
from pellucid.apps.lab.findings import Findings
from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.metrics import find_metric, format_spread, format_value
from pellucid.apps.lab.plots import Curves, Points, as_points, draw_curves, draw_forest
from pellucid.apps.lab.statistics import SIGNS, Comparison, signed, verdict
from pellucid.apps.lab.study import Bound, flat_settings
from pellucid.apps.lab.wording import captions, tr
from pellucid.system.files import saving, write_atomically
from pellucid.system.language import Language, speaking

CURVES = {"train": ("train_loss", "training loss"), "valid": ("valid_loss", "validation loss")}


def write_report(findings: Findings, folder: Path, language: Language = "en") -> list[Path]:
    """Write report.html, report.md and its pictures into a folder; return their paths.

    Raises `UserError` if a package of the lab extra is missing or a file cannot be written.
    """
    lab_package("matplotlib", "matplotlib")
    with speaking(language):
        curves, forest, sections = draw(findings)
        markdown = render(
            "report.md",
            **answers(findings),
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
    with saving(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    return [folder / name for name in contents]


def draw(findings: Findings) -> tuple[list[Plot], list[Plot], Mapping[str, Sequence[Block]]]:
    """Draw the learning curves, the plot of differences, and the measures' sections.

    Return them in this order. The second list is empty if no comparison has a pair. The sections
    are blocks, by title.
    """
    shown = [c for c in findings.comparisons if c.seeds]
    measures = [MEASURES[name] for name in findings.study.plan.measures]
    found = {m.title: m.show(findings) for m in measures if m.show is not None}
    sections = {title: blocks for title, blocks in found.items() if blocks}
    return _curves(findings), [_forest(shown)] if shown else [], sections


def answers(findings: Findings) -> dict[str, Any]:
    """Return the values for the template of the report's first part, the results."""
    return {
        "findings": findings,
        "level": "##",
        "verdict": verdict,
        "check_bound": check_bound,
        "values": _values(findings),
    }


def check_bound(findings: Findings, bound: Bound) -> str:
    """Describe the values of a variant's runs, and how many of them break a claim."""
    values = findings.values(bound.change, bound.metric).values()
    ordered = sorted(v for v in values if v is not None)
    lost = len(values) - len(ordered) + sum(f["change"] == bound.change for f in findings.failed)
    without = tr("; {n} more failed or have no such value", n=lost) if lost else ""
    if not ordered:
        none = tr("{name}: no value", name=bound.change) + without
        return none if lost else tr("no run of {name} yet", name=bound.change)
    text = f"{bound.change}: {', '.join(map(format_value, ordered))}. "
    broken = sum(not bound.holds(value) for value in ordered)
    wrong, right = "Does not hold: {n} of {all} break it", "Holds in {all} of {all} finished runs"
    return text + tr(wrong if broken else right, n=broken, all=len(ordered)) + without


def _values(findings: Findings) -> Table:
    """Return the table of all metrics of all variants: median (range), published figures.

    Variants of a grid, of random points or of files are sorted by the first metric, best first.
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
        rows.append([name, tr(change.about) or "–", count, *cells])
    heads = [
        f"{plan.reference_name}, {metric}" if figures else find_metric(metric).label
        for metric, figures in columns
    ]
    return Table(["variant", "description", "runs", *heads], rows)


def _rank(findings: Findings, name: str) -> float:
    """Return the sort key of a variant in the table of values.

    Named variants come first.
    """
    if name not in findings.study.points:
        return -math.inf
    metric = findings.study.plan.metrics[0]
    known = [v for v in findings.values(name, metric).values() if v is not None]
    sign = 1.0 if find_metric(metric).better == "lower" else -1.0
    return sign * float(np.median(known)) if known else math.inf


def _spread(findings: Findings, change: str, metric: str) -> str:
    """Return a table cell: median and range of a metric, and how many runs lack it."""
    values = findings.values(change, metric).values()
    known = [v for v in values if v is not None]
    lacking = len(values) - len(known)
    if lacking == len(values) > 0:
        return tr("none")
    return format_spread(known, ".4g") + (tr(", none in {n}", n=lacking) if lacking else "")


# pictures -----------------------------------------------------------------------------------------


def _curves(findings: Findings) -> list[Plot]:
    """Return the plots of training and validation loss, a panel per group of variants."""
    plots = []
    for key, (metric, name) in CURVES.items():
        panels: dict[str, Curves] = {}
        for base, names in findings.study.families().items():
            curves = {change: _points(findings, change, key) for change in names}
            found = {c: runs for c, runs in curves.items() if runs and all(x for x, _ in runs)}
            if found:
                title = tr("compared with {base}", base=base) if len(names) > 1 else base
                panels[title] = found
        if panels:
            title = tr("{name} by epoch (lower is better)", name=tr(name).capitalize())
            svg = draw_curves(panels, title, tr("epoch"), tr(find_metric(metric).unit))
            plots.append(Plot(f"{key}.svg", title, svg, captions()["curves"]))
    return plots


def _points(findings: Findings, change: str, key: str) -> list[Points]:
    """Return a variant's curves, one per finished run.

    Lines of version 0.1.0 have one validation per epoch, or None in its place.
    """
    curves = [line["curve"] for line in findings.done[change].values()]
    return [as_points(zip(c.get(f"{key}_epoch", c["epoch"]), c[key], strict=False)) for c in curves]


def _forest(comparisons: Sequence[Comparison]) -> Plot:
    """Return the plot of all differences.

    The caption explains diverged runs if there are any.
    """
    never = any(math.isinf(d) for c in comparisons for d in c.differences)
    about = captions()["forest"] + captions()["never"] * never
    return Plot("forest.svg", tr("Differences, seed by seed"), draw_forest(comparisons), about)


# how it was made ----------------------------------------------------------------------------------


def _facts(findings: Findings) -> dict[str, Any]:
    """Return the settings, the machines, and the other facts needed to repeat the study."""
    study = findings.study
    variants = {name: flat_settings(config) for name, config in study.variants.items()}
    base = variants[study.plan.base]
    unused = {"description"}
    if base["data.train"]:  # files replace the corpus
        unused |= {"data.corpus", "data.split"}
    scored = any(config.evaluation.metric == "bleu" for config in study.variants.values())
    machines = [
        f"{tr(title)}: {', '.join(f'{name} {value}' for name, value in line[key].items())}."
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

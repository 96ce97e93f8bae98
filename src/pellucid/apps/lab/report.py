"""The report of a study: what was asked, what was found, how sure that is, how to repeat it.

Its prose is in `lab/templates`; this file has its tables, pictures and facts.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pellucid.apps.lab.document import Plot, Section, Table, render, to_html
from pellucid.apps.lab.findings import UNKNOWN, Findings
from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.metrics import find_metric, format_spread, format_value
from pellucid.apps.lab.plots import Curves, Points, draw_curves, draw_forest, require_matplotlib
from pellucid.apps.lab.statistics import SIGNS, Comparison, signed, verdict
from pellucid.apps.lab.study import Bound, flat_settings
from pellucid.core.files import write_atomically

CURVES = {"train": ("train_loss", "training loss"), "valid": ("valid_loss", "validation loss")}
ABOUT = "Median over seeds (number in brackets), band from least to most."
MINUS = (
    "Each variant minus what it is compared with: median over pairs, band from least to most, and "
    "the value at the end. The axis fits the second half of training; an arrow marks a variant "
    "that ends outside it."
)
FOREST = (
    "Each contrast's median difference (diamond, and the number at the right; a cross where there "
    "is one pair and so no interval), its interval, and every pair of runs (dots). Blue with a "
    "star: chosen before anything ran. A triangle at the edge lies outside the axis."
)


def write_report(findings: Findings, folder: Path) -> list[Path]:
    """Write report.html, report.md and the pictures next to it; return their paths.

    Raises `UserError` when a package of the lab extra is missing, or a file cannot be written.
    """
    require_matplotlib()
    curves, forest, sections = draw(findings)
    shown = [c for c in findings.comparisons if c.median is not None]
    markdown = render(
        "report.md",
        **_answers(findings),
        curves=curves,
        forest=forest,
        sections=sections,
        signs=f"{SIGNS:,}",
        statistics=_statistics(shown),
        others=_others([c for c in findings.comparisons if not c.primary]),
        **_settings(findings),
        **_reproduction(findings),
    )
    blocks = [*curves, *forest, *(block for section in sections for block in section.blocks)]
    pictures = {block.name: block.svg for block in blocks if isinstance(block, Plot)}
    html = to_html(markdown, findings.study.plan.question, pictures)
    contents = {"report.html": html, "report.md": markdown, **pictures}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    return [folder / name for name in contents]


def draw(findings: Findings) -> tuple[list[Plot], list[Plot], list[Section]]:
    """Return the learning curves, the differences, and the sections of the study's measures."""
    shown = [c for c in findings.comparisons if c.median is not None]
    measures = [MEASURES[name] for name in findings.study.plan.measures]
    found = [(m.title, m.show(findings)) for m in measures if m.show is not None]
    forest = [_forest(shown)] if shown else []
    return _curves(findings), forest, [Section(title, blocks) for title, blocks in found if blocks]


def answers_to_markdown(findings: Findings, level: str = "##") -> str:
    """Return the first part of the report: what was asked, the verdicts, and every value.

    level: of its headings.
    """
    return render("answers.md", **(_answers(findings) | {"level": level}))


def _answers(findings: Findings) -> dict[str, Any]:
    plan = findings.study.plan
    primary = [
        [c.contrast.claim or "–", f"{_contrast(c)}, {c.contrast.metric}", _verdict(c)]
        for c in findings.comparisons
        if c.primary
    ]
    failures = [[line["change"], str(line["seed"]), line["error"]] for line in findings.failed]
    claims = [[bound.claim, _check_bound(findings, bound)] for bound in plan.bounds]
    return {
        "plan": plan,
        "level": "##",
        "findings": findings,
        "unknown": UNKNOWN,
        "planned": len(findings.study.trials()),
        "most_seeds": max(len(seeds) for seeds in findings.done.values()),
        "seeds": len({seed for seeds in findings.done.values() for seed in seeds}),
        "data_changed": _data_changed(findings),
        "failures": Table(["variant", "seed", "why"], failures),
        "primary": Table(["claim", "contrast", "verdict"], primary),
        "bounds": Table(["claim", "here"], claims),
        "values": _values(findings),
    }


def _data_changed(findings: Findings) -> bool:
    """Return whether lines with the same data settings have different digests of the data."""
    known: dict[str, set[str]] = {}
    for line in findings.lines:
        settings = {k: v for k, v in line["settings"].items() if k.startswith("data.")}
        known.setdefault(repr(settings), set()).update({line["data"]} if "data" in line else ())
    return any(len(digests) > 1 for digests in known.values())


def _check_bound(findings: Findings, bound: Bound) -> str:
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
    """Return every metric of every variant: median, least and most, and published figures."""
    plan = findings.study.plan
    published = {(r.change, r.metric): f"{r.value:g}" for r in plan.reference}
    columns = [
        (metric, figures)
        for metric in plan.metrics
        for figures in (False, True)
        if not figures or any(of == metric for _, of in published)
    ]
    rows = []
    for name, change in findings.study.changes.items():
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
            plots.append(Plot(f"{key}.svg", title, svg, ABOUT))
        if minus:
            title = f"Difference in {name}, seed by seed (below 0 is better)"
            svg = draw_curves(minus, title, "epoch", f"difference, {ylabel}", differences=True)
            plots.append(Plot(f"{key}-differences.svg", title, svg, MINUS))
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
    """Return a variant's curves by seed."""
    found: dict[int, Points] = {}
    for seed, line in findings.done[change].items():
        curve = line["curve"]
        both = [(x, y) for x, y in zip(curve["epoch"], curve[key], strict=False) if y is not None]
        found[seed] = ([x for x, _ in both], [y for _, y in both])
    return found


def _forest(comparisons: Sequence[Comparison]) -> Plot:
    never = any(math.isinf(d) for c in comparisons for d in c.differences)
    about = FOREST + " ∞: one of the two never got there." * never
    return Plot("forest.svg", "Differences, seed by seed", draw_forest(comparisons), about)


def _statistics(comparisons: Sequence[Comparison]) -> Table:
    rows = [
        [
            ("★ " if c.primary else "") + _contrast(c),
            c.contrast.metric,
            str(len(c.seeds)),
            "–" if c.median is None else signed(c.median),
            "–" if c.interval is None else " to ".join(map(signed, c.interval)),
            "–" if c.coverage is None else f"{100 * c.coverage:.0f} %",
            *("–" if p is None else f"{p:.2g}" for p in (c.p, c.holm)),
            "–" if c.effect is None else signed(round(c.effect, 2)),
        ]
        for c in comparisons
    ]
    heads = ["contrast", "metric", "pairs", "median", "interval", "coverage at most", "p", "Holm"]
    return Table([*heads, "d_z"], rows)


def _others(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the verdicts of comparisons that are not primary, a table for each metric.

    Those without an interval or a lost run are counted: of one pair, and of none yet.
    """
    shown = [c for c in comparisons if c.interval is not None or (c.lost and c.median is None)]
    tables = [
        Table(
            [metric, "verdict"],
            [[_contrast(c), _verdict(c)] for c in shown if c.contrast.metric == metric],
        )
        for metric in dict.fromkeys(c.contrast.metric for c in shown)
    ]
    return {
        "any": any(c.median is not None or c.lost for c in comparisons),
        "tables": tables,
        "single": sum(c.median is not None and c.interval is None for c in comparisons),
        "lacking": sum(c.median is None and not c.lost for c in comparisons),
    }


def _contrast(comparison: Comparison) -> str:
    return f"{comparison.contrast.change} − {comparison.contrast.against}"


def _verdict(comparison: Comparison) -> str:
    text = verdict(comparison)
    if comparison.missing and (comparison.seeds or comparison.lost):
        text += f" (left out: {'; '.join(comparison.missing)})"
    return text


# how it was made ----------------------------------------------------------------------------------


def _settings(findings: Findings) -> dict[str, Any]:
    study = findings.study
    base = flat_settings(study.variants[study.plan.base])
    rows = []
    for name, config in study.variants.items():
        differs = [f"{k} = {v}" for k, v in flat_settings(config).items() if base.get(k) != v]
        rows.append([name, "; ".join(differs) or "the base"])
    unused = {"description"}
    if base["data.train"]:  # files replace the corpus
        unused |= {"data.corpus", "data.split"}
    return {
        "changes": Table(["variant", "what it changes"], rows),
        "settings": "\n".join(f"{k} = {v}" for k, v in base.items() if k not in unused),
    }


def _reproduction(findings: Findings) -> dict[str, Any]:
    lines, study = findings.lines, findings.study
    scored = any(config.evaluation.metric == "bleu" for config in study.variants.values())
    machines = [
        f"{title}: {', '.join(f'{name} {value}' for name, value in line[key].items())}."
        for title, key in (("Machine", "machine"), ("Versions", "environment"))
        for line in lines
    ]
    return {
        "first": lines[0],
        "minutes": [line["minutes"] for line in lines],
        "machines": list(dict.fromkeys(machines)),
        "extras": "lab,eval" if scored else "lab",
        "typed": shlex.quote(study.typed),
        "source": study.source.rstrip(),
    }

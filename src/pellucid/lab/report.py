"""The report of a study: what was asked, what came out, how sure that is, how to do it again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pellucid.core.files import write_atomically
from pellucid.lab.document import (
    Block,
    Code,
    Heading,
    Items,
    Picture,
    Table,
    Text,
    to_html,
    to_markdown,
)
from pellucid.lab.exponents import exponents
from pellucid.lab.inside import inside
from pellucid.lab.metrics import unit, written
from pellucid.lab.outcome import STRANGE, Outcome
from pellucid.lab.plots import (
    Curves,
    Points,
    as_points,
    draw_curves,
    draw_forest,
    require_matplotlib,
)
from pellucid.lab.statistics import SIGNS, Comparison, signed, verdict
from pellucid.lab.study import Bound, flat_settings


def write_report(outcome: Outcome, folder: Path) -> list[Path]:
    """Write report.html, report.md and the pictures beside it; return their paths.

    Raises `UserError` when SciPy or matplotlib is missing, or a file cannot be written.
    """
    require_matplotlib()
    blocks = report(outcome)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"report.html": to_html(blocks).encode(), "report.md": to_markdown(blocks).encode()}
    contents |= {block.name: block.png for block in blocks if isinstance(block, Picture)}
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def report(outcome: Outcome) -> list[Block]:
    """Return the whole report."""
    others = [c for c in outcome.comparisons if not c.primary]
    blocks = [
        Heading(outcome.study.plan.question, 1),
        *answers(outcome),
        *_curves(outcome),
        *exponents(outcome),
    ]
    shown = [c for c in outcome.comparisons if c.median is not None]
    if shown:
        blocks += [Heading("Differences"), _forest(shown), Text(HOW), _statistics(shown)]
    if any(c.median is not None or c.lost for c in others):
        blocks += [Heading("The other comparisons, in words"), *_others(others)]
    blocks += inside(outcome.study, outcome.done)
    return blocks + _settings(outcome) + _made(outcome)


def answers(outcome: Outcome) -> list[Block]:
    """Return how much is done, what was asked beforehand with its verdicts, and every value."""
    plan = outcome.study.plan
    primary = [c for c in outcome.comparisons if c.primary]
    blocks: list[Block] = [Text(_state(outcome))]
    if _data_changed(outcome):
        blocks.append(Text(CHANGED))
    blocks += [Items(plan.notes)] if plan.notes else []
    blocks += _failures(outcome)
    if primary:
        blocks += [Heading("What was asked before anything ran"), _primary(primary)]
    return [*blocks, *_bounds(outcome), Heading("What came out"), _values(outcome)]


CHANGED = (
    "The runs learnt from different data, though their settings name the same: files changed in "
    "between. A difference between two runs may be one between their data; to do all of them again "
    "with the same, delete the study's results file and its runs folder, and run it again."
)


def _data_changed(outcome: Outcome) -> bool:
    """Return whether lines with the same settings of their data have different digests of it."""
    known: dict[str, set[str]] = {}
    for line in outcome.lines:
        asked = {k: v for k, v in line["settings"].items() if k.startswith("data.")}
        known.setdefault(repr(asked), set()).update({line["data"]} if "data" in line else ())
    return any(len(digests) > 1 for digests in known.values())


def _forest(comparisons: Sequence[Comparison]) -> Block:
    said = (
        "Each contrast's median difference (diamond; a cross where there is one pair and so no "
        "interval), its interval, and every pair of runs with the same seed (dots). Blue "
        "with a star: chosen before anything ran."
    )
    if any(math.isinf(d) for c in comparisons for d in c.differences):
        said += " An arrow at the edge: one of the two never got there."
    return Picture("forest.png", draw_forest(comparisons), said)


HOW = (
    "Runs with the same seed share first weights and the order of the data, so differences are "
    "taken seed by seed. Median: of those differences. Interval: percentile bootstrap of the "
    "median, drawn out to the differences that make it sure of 95 %, which takes six of them; the "
    "column beside it says how sure it can be at most, counted as if no two were equal. p: "
    "permutation test of the mean difference (of the mean signed rank where one is infinite), "
    f"two-sided, all signs tried ({SIGNS:,} drawn from 17 pairs on); n pairs cannot give less "
    "than 2^(1 − n). Holm: p corrected for the number of planned contrasts, the ones chosen "
    "beforehand and the others each among themselves. d_z: mean difference over its standard "
    "deviation; large when seeds matter little, whether or not the difference matters."
)


def _state(outcome: Outcome) -> str:
    done, planned = len(outcome.lines), len(outcome.study.trials())
    said = f"{done} of {planned} planned runs are done"
    if outcome.failed:
        said += f", {len(outcome.failed)} failed"
    if outcome.missing:
        said += f", {outcome.missing} are still to come: whatever follows is provisional"
    if outcome.strangers:
        said += f". {outcome.strangers} {STRANGE}, and are left out"
    if outcome.unwritten:
        said += f". No run has a value of {', '.join(outcome.unwritten)}"
    if max(len(seeds) for seeds in outcome.done.values()) == 1:
        single = len({seed for seeds in outcome.done.values() for seed in seeds}) == 1
        few = "One seed only" if single else "No variant has two seeds"
        said += f". {few}: no intervals, and nothing general to say"
    return said + "."


def _failures(outcome: Outcome) -> list[Block]:
    if not outcome.failed:
        return []
    rows = [[f["change"], str(f["seed"]), f["error"]] for f in outcome.failed]
    return [Heading("Runs that failed"), Table(["variant", "seed", "why"], rows)]


def _primary(comparisons: Sequence[Comparison]) -> Block:
    rows = []
    for c in comparisons:
        k = c.contrast
        rows.append([k.claim or "–", f"{k.change} − {k.against}, {k.metric}", _said(c)])
    return Table(["claim", "contrast", "verdict"], rows)


def _bounds(outcome: Outcome) -> list[Block]:
    if not outcome.study.plan.bounds:
        return []
    rows = [[bound.claim, _judge(outcome, bound)] for bound in outcome.study.plan.bounds]
    return [Heading("Claims about single runs"), Table(["claim", "here"], rows)]


def _judge(outcome: Outcome, bound: Bound) -> str:
    values = outcome.values(bound.change, bound.metric).values()
    ordered = sorted(v for v in values if v is not None)
    lost = len(values) - len(ordered) + sum(f["change"] == bound.change for f in outcome.failed)
    without = f"; {lost} more failed or have no such value" if lost else ""
    if not ordered:
        return f"{bound.change}: no value{without}" if lost else f"no run of {bound.change} yet"
    said = f"{bound.change}: {', '.join(map(written, ordered))}. "
    kept = sum(bound.holds(value) for value in ordered)
    if kept < len(ordered):
        return f"{said}Does not hold: {len(ordered) - kept} of {len(ordered)} break it{without}"
    return said + (f"Holds in {'the one' if kept == 1 else f'all {kept}'} that ended{without}")


def _values(outcome: Outcome) -> Block:
    metrics = outcome.study.plan.metrics
    reference = {(r.change, r.metric): r for r in outcome.study.plan.reference}
    heads = ["variant", "what it is", "runs"]
    for metric in metrics:
        heads.append(f"{metric} ({unit(metric)})" if unit(metric) else metric)
        if any(r.metric == metric for r in outcome.study.plan.reference):
            heads.append(f"{outcome.study.plan.reference_name}, {metric}")
    rows = []
    for name, change in outcome.study.changes.items():
        count = f"{len(outcome.done[name])}/{len(outcome.study.seeds_of(name))}"
        row = [name, change.about or "–", count]
        for metric in metrics:
            row.append(_spread(list(outcome.values(name, metric).values())))
            if any(r.metric == metric for r in outcome.study.plan.reference):
                known = reference.get((name, metric))
                row.append(f"{known.value:g}" if known else "–")
        rows.append(row)
    return Table(heads, rows)


def _spread(values: Sequence[float | None]) -> str:
    there = [v for v in values if v is not None]
    if not there:
        return "none" if values else "–"
    said = written(float(np.median(there)))
    if len(there) > 1:
        said += f" ({written(min(there))} to {written(max(there))})"
    lacking = len(values) - len(there)
    return said + (f", none in {lacking}" if lacking else "")


def _curves(outcome: Outcome) -> list[Block]:
    blocks: list[Block] = []
    for key, ylabel in (
        ("train", "training loss, nats per answer"),
        ("valid", "validation loss, nats per token"),
    ):
        panels: list[tuple[str, Curves]] = []
        differences: list[tuple[str, Curves]] = []
        for title, names in outcome.study.families().items():
            found = {
                change: points
                for change in names
                if (points := _points(outcome, change, key)) and all(x for x, _ in points.values())
            }
            if found:
                panels.append((title, {n: list(points.values()) for n, points in found.items()}))
            if names[0] in found and len(found) > 1:
                differences.append((f"minus {names[0]}, seed by seed", _less(found, names[0])))
        if panels:
            said = (
                f"{ylabel.capitalize()}, by epoch: median over seeds, band from the least to the "
                "most where there are several."
            )
            if differences:
                said += " Then the difference to what each is compared with, within pairs."
            drawn = draw_curves(panels, differences, "epoch", ylabel)
            blocks.append(Picture(f"{key}.png", drawn, said))
    return [Heading("Learning curves"), *blocks] if blocks else []


def _less(found: Mapping[str, Mapping[int, Points]], base: str) -> Curves:
    """Return every curve minus the base's of the same seed, at the epochs that both have."""
    curves: dict[str, list[Points]] = {}
    for change, seeds in found.items():
        for seed in sorted(seeds.keys() & found[base].keys()):
            under = dict(zip(*found[base][seed], strict=True))
            both = [(x, y - under[x]) for x, y in zip(*seeds[seed], strict=True) if x in under]
            curves.setdefault(change, []).append(as_points(both))
    return curves


def _points(outcome: Outcome, change: str, key: str) -> dict[int, Points]:
    """Return a variant's curves by seed."""
    found = {}
    for seed, line in outcome.done[change].items():
        curve = line["curve"]
        both = [(x, y) for x, y in zip(curve["epoch"], curve[key], strict=False) if y is not None]
        found[seed] = as_points(both)
    return found


def _statistics(comparisons: Sequence[Comparison]) -> Block:
    rows = []
    for c in comparisons:
        interval = "–" if c.interval is None else " to ".join(map(signed, c.interval))
        rows.append(
            [
                ("★ " if c.primary else "") + f"{c.contrast.change} − {c.contrast.against}",
                c.contrast.metric,
                str(len(c.seeds)),
                "–" if c.median is None else signed(c.median),
                interval,
                "–" if c.coverage is None else f"{100 * c.coverage:.0f} %",
                *("–" if p is None else f"{p:.2g}" for p in (c.p, c.holm)),
                "–" if c.effect is None else signed(round(c.effect, 2)),
            ]
        )
    heads = ["contrast", "metric", "pairs", "median", "interval", "sure at most", "p", "Holm"]
    return Table([*heads, "d_z"], rows)


def _others(comparisons: Sequence[Comparison]) -> list[Block]:
    judged = [c for c in comparisons if c.interval is not None or (c.lost and c.median is None)]
    blocks: list[Block] = []
    for metric in dict.fromkeys(c.contrast.metric for c in judged):
        group = [c for c in judged if c.contrast.metric == metric]
        rows = [[f"{c.contrast.change} − {c.contrast.against}", _said(c)] for c in group]
        blocks.append(Table([metric, "verdict"], rows))
    said = []
    if single := sum(c.median is not None and c.interval is None for c in comparisons):
        said.append(
            f"{single} have one pair of runs each, so no interval and nothing general to say; "
            "their differences stand in the table above."
        )
    if lacking := sum(c.median is None and not c.lost for c in comparisons):
        said.append(f"{lacking} more have no pair of runs yet.")
    return blocks + ([Items(said)] if said else [])


def _said(comparison: Comparison) -> str:
    said = verdict(comparison)
    if comparison.missing and (comparison.seeds or comparison.lost):
        said += f" (left out: {'; '.join(comparison.missing)})"
    return said


def _settings(outcome: Outcome) -> list[Block]:
    study = outcome.study
    base = flat_settings(study.variants[study.plan.base])
    rows = []
    for name, config in study.variants.items():
        settings = flat_settings(config)
        differs = [f"{k} = {v}" for k, v in settings.items() if base.get(k) != v]
        rows.append([name, "; ".join(differs) or "the base"])
    idle = {"description"}
    if base["data.train"]:  # the files take the corpus's place
        idle |= {"data.corpus", "data.split"}
    told = "\n".join(f"{key} = {value}" for key, value in base.items() if key not in idle)
    return [
        Heading("Settings"),
        Table(["variant", "what it changes"], rows),
        Text(f"The base, {study.plan.base}, from the recipe {study.plan.recipe}:"),
        Code(told),
    ]


def _made(outcome: Outcome) -> list[Block]:
    lines, study = outcome.lines, outcome.study
    minutes = [line["minutes"] for line in lines]
    first, typed = lines[0], shlex.quote(study.typed)
    scored = any(config.evaluation.metric == "bleu" for config in study.variants.values())
    extras = "lab,eval" if scored else "lab"
    facts = [
        f"Runs took {min(minutes):.1f} to {max(minutes):.1f} minutes each, "
        f"{sum(minutes) / 60:.1f} hours together; {study.plan.minutes_per_run:g} were planned for "
        "one. The machine may have done other work beside them: these do not measure speed.",
        f"{first['parameters']:,} parameters in {first['change']}, "
        f"{first['pairs']:,} pairs to learn from, vocabulary {first['vocabulary'][1]:,}, "
        f"{first['answer_tokens']:.3f} loss tokens an answer, {first['steps']:,} steps.",
    ]
    for title, key in (("Machine", "machine"), ("Versions", "environment")):
        for said in dict.fromkeys(
            ", ".join(f"{name} {value}" for name, value in line[key].items()) for line in lines
        ):
            facts.append(f"{title}: {said}.")
    return [
        Heading("How it was made, and how to make it again"),
        Items(facts),
        Text("In a copy of Pellucid's repository:"),
        Code(f"pip install '.[{extras}]'\npellucid lab run {typed}\npellucid lab report {typed}"),
        Text("The study file:"),
        Code(study.source),
    ]

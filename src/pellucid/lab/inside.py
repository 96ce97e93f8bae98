"""The report's part on what went on inside: attention along training, lengths, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pellucid.lab.document import Block, Heading, Picture, Table, Text
from pellucid.lab.plots import Curves, Points, as_points, draw_grid
from pellucid.lab.probe import KINDS, head_values, kind_of
from pellucid.lab.results import Line
from pellucid.lab.softmax import sweep
from pellucid.lab.study import Study

MEASURES = {
    "Var[q·k], all pairs": "score_variance",
    "Var[q·k], one query's keys": "row_variance",
    "evenness: entropy / log keys": "evenness",
    "largest weight": "top",
    "‖Jacobian‖": "jacobian",
    "scale · ‖Jacobian‖": "through",
}
MOST = 8
"""More variants than this are too many for one panel."""
Done = Mapping[str, Sequence[Line]]
"""The lines of each variant's runs, by seed."""
Probe = Mapping[str, Any]


def inside(study: Study, done: Mapping[str, Mapping[int, Line]]) -> list[Block]:
    """Return what the probes saw, or nothing where there were none."""
    probed = [name for name, lines in done.items() if any(map(_probed, lines.values()))]
    names = probed[:MOST]
    if not names:
        return []
    shown = {name: [_scaled(line, study, name) for line in done[name].values()] for name in names}
    widths = {name: study.variants[name].model.head_width for name in names}
    return [
        Heading("What went on inside"),
        Text(
            "One fixed batch of training pairs, without dropout, at a few steps of every run. "
            "Curves are medians over layers and heads, then over seeds (band: least to most)."
            + (f" Drawn are the first {MOST}, {names[0]} to {names[-1]}." if probed[MOST:] else "")
        ),
        _attention(shown, set(widths.values())),
        _heads(names[0], shown[names[0]][0]),
        _keys(shown),
        _theory(),
        *_memory(shown),
        _lengths(shown),
        _gradients(shown),
        *_table(shown, widths),
    ]


def _probed(line: Line) -> bool:
    return bool(line.get("probes"))


def _scaled(line: Line, study: Study, name: str) -> Line:
    """Return a line whose probes tell of each head how much gradient reaches q·k.

    The first lines ever written have no scale; theirs is the setting's.
    """
    setting = study.variants[name].model.score_factor
    probes = []
    for probe in line["probes"]:
        attention = {}
        for layer, seen in probe["attention"].items():
            scales = seen.get("scale") or [setting] * len(seen["jacobian"])
            through = [abs(s) * j for s, j in zip(scales, seen["jacobian"], strict=True)]
            attention[layer] = {**seen, "through": through}
        probes.append({**probe, "attention": attention})
    return {**line, "probes": probes}


def _attention(done: Done, widths: set[int]) -> Block:
    curves: dict[tuple[str, str], Curves] = {}
    for kind in KINDS:
        for title, measure in MEASURES.items():
            curves[kind, title] = _by_seed(done, partial(_middle, kind=kind, measure=measure))
    lines = {}
    if len(widths) == 1:
        d_k = widths.pop()
        lines["Var[q·k], all pairs"] = (float(d_k), f"d_k = {d_k}")
    return Picture(
        "attention.png",
        draw_grid(KINDS, list(MEASURES), curves, "step", lines),
        "Attention along training. Var[q·k] is taken before any scaling, over all pairs and over "
        "the keys of one query, which is what softmax sees; the dotted line is the d_k of the "
        "textbook argument, which supposes unit variances. ‖Jacobian‖ is the size of "
        "softmax's derivative by the scores after scaling; q·k, and so queries and keys, get that "
        "times the scale.",
    )


def _middle(probe: Probe, kind: str, measure: str) -> float | None:
    values = head_values(probe, kind, measure)
    return float(np.median(values)) if values else None


def _by_seed(done: Done, take: Callable[[Probe], float | None]) -> Curves:
    """Return curves over steps, one a seed."""
    found: dict[str, list[Points]] = {}
    for name, lines in done.items():
        for line in lines:
            both = [(p["step"], take(p)) for p in line["probes"]]
            there = [(float(x), y) for x, y in both if y is not None and math.isfinite(y)]
            found.setdefault(name, []).append(as_points(there))
    return found


def _heads(name: str, line: Line) -> Block:
    """Every layer and head of one run, by itself."""
    layers = list(line["probes"][-1]["attention"])
    curves: dict[tuple[str, str], Curves] = {}
    for layer in layers:
        for title, measure in MEASURES.items():
            heads = len(line["probes"][0]["attention"][layer][measure])
            seeds = [
                (
                    [float(p["step"]) for p in line["probes"]],
                    [float(p["attention"][layer][measure][h]) for p in line["probes"]],
                )
                for h in range(heads)
            ]
            curves[_short(layer), title] = {f"head {h + 1}": [s] for h, s in enumerate(seeds)}
    rows = [_short(layer) for layer in layers]
    return Picture(
        "heads.png",
        draw_grid(rows, list(MEASURES), curves, "step", count=False),
        f"The same for every layer and head of one run: {name}, seed {line['seed']}.",
    )


def _short(layer: str) -> str:
    """Name a layer in few words.

    >>> _short("decoder.layers.0.multihead_attn")
    'cross 1'
    """
    return f"{kind_of(layer)} {int(layer.split('.')[2]) + 1}"


def _keys(done: Done) -> Block:
    """By the number of keys, at the first and the last probe."""
    rows = {"first step": 0, "last step": -1}
    titles = {"‖Jacobian‖": "jacobian", "largest weight": "top", "evenness": "evenness"}
    curves: dict[tuple[str, str], Curves] = {}
    for row, at in rows.items():
        for title, measure in titles.items():
            panel: dict[str, list[Points]] = {}
            for name, lines in done.items():
                for line in lines:
                    cells = line["probes"][at]["by_keys"].get("encoder", {})
                    xs = [float(k) for k, cell in cells.items() if cell["queries"] >= 8]
                    ys = [c[measure] for c in cells.values() if c["queries"] >= 8]
                    panel.setdefault(name, []).append((xs, ys))
            curves[row, title] = panel
    return Picture(
        "keys.png",
        draw_grid(list(rows), list(titles), curves, "number of keys", base=2),
        "The encoder's attention by the number of keys a query may look at (sentence lengths with "
        "at least 8 queries in the batch), all layers and heads, before training and at its end.",
    )


THEORY = ("‖Jacobian‖", "scale · ‖Jacobian‖", "largest weight")


def _theory() -> Block:
    titles = {title: MEASURES[title] for title in THEORY}
    widths, keys = [8, 16, 32, 64, 128, 256, 512], [2, 4, 8, 16, 32, 64, 128]
    curves: dict[tuple[str, str], Curves] = {}
    columns = ["against d_k, 8 keys", "against the number of keys, d_k = 32"]
    for title, measure in titles.items():
        sweeps = (sweep(measure, widths, [8]), sweep(measure, [32], keys))
        for column, found in zip(columns, sweeps, strict=True):
            curves[title, column] = {name: [points] for name, points in found.items()}
    return Picture(
        "softmax.png",
        draw_grid(list(titles), columns, curves, "d_k, or number of keys", base=2, count=False),
        "No model: softmax of q·k for random queries and keys with unit variances, computed here. "
        "Under / √d_k nothing depends on d_k; without a scale d_k decides the peak. The number of "
        "keys is another matter: it sets the mean weight under every scale. Queries and keys get "
        "back what softmax lets through times the scale (second row): there / d_k pays for its "
        "flatness, and without a scale the peak costs less than a scale would.",
    )


def _lengths(done: Done) -> Block:
    curves: dict[tuple[str, str], Curves] = {}
    for side in ("source", "target"):
        for part in ("token", "position"):
            curves[side, part] = _by_seed(done, partial(_length, side=side, part=part))
    return Picture(
        "lengths.png",
        draw_grid(["source", "target"], ["token", "position"], curves, "step"),
        "Mean length of what is added at the bottom of each stack, after its factors: a token's "
        "row and its position's.",
    )


GRADIENTS = {
    "all": ("all",),
    "token tables": ("source.tokens.weight", "target.tokens.weight"),
    "positions": ("source.positions.weight", "target.positions.weight"),
    "q and k": ("q_proj_weight", "k_proj_weight"),
    "v": ("v_proj_weight",),
}


def _gradients(done: Done) -> Block:
    curves = {
        ("‖gradient‖", title): _by_seed(done, partial(_norm, ends=ends))
        for title, ends in GRADIENTS.items()
    }
    shown = [title for row, title in curves if _has_points(curves[row, title])]
    return Picture(
        "gradients.png",
        draw_grid(["‖gradient‖"], shown, curves, "step"),
        "Norm of the gradient of the mean loss per token, of all parameters and of some.",
    )


def _has_points(curves: Curves) -> bool:
    """Return whether anything was measured; sinusoidal positions, for one, have no gradient."""
    return any(xs for seeds in curves.values() for xs, _ in seeds)


def _length(probe: Probe, side: str, part: str) -> float | None:
    return float(probe["lengths"][side][part])


def _norm(probe: Probe, ends: tuple[str, ...]) -> float | None:
    found = [value for name, value in probe["gradients"].items() if name.endswith(ends)]
    return math.sqrt(sum(value * value for value in found)) if found else None


def _memory(done: Done) -> list[Block]:
    """How alike a sentence's rows are, for the runs whose probes tell."""
    rows = []
    for name, lines in done.items():
        told = [line for line in lines if "memory" in line["probes"][-1]]
        cells = []
        for at in (0, 100, None):
            seen = [probe["memory"] for line in told for probe in _at(line, at)]
            totals = [m["within"] + m["between"] for m in seen]
            shares = [m["within"] / total for m, total in zip(seen, totals, strict=True) if total]
            cells += [spread(totals, ".2g"), spread(shares)]
        if told:
            rows.append([name, str(len(told)), *cells])
    said = (
        "What cross-attention has to choose from: the variance of the encoder's rows, and the "
        "share of it that lies within sentences, the rest between them (median over seeds, least "
        "and most in brackets). Near a variance of 0 all rows are one; near a share of 0 every row "
        "of a sentence is the same, and where it looks is all one."
    )
    times = ("at first", "after 100 steps", "at the end")
    heads = [head for time in times for head in (f"variance {time}", "share within")]
    return [Text(said), Table(["variant", "seeds", *heads], rows)] if rows else []


def _at(line: Line, step: int | None) -> list[Probe]:
    """Return the probe after so many steps, or the last, if there is one."""
    return [p for p in line["probes"] if step is None or p["step"] == step][-1:]


def spread(values: Sequence[float], form: str = ".3g") -> str:
    """Return a median with the least and the most, one value by itself, a dash for none.

    >>> spread([3.0, 1.0, 2.0]), spread([0.5]), spread([])
    ('2 (1 to 3)', '0.5', '–')
    """
    if not values:
        return "–"
    said = f"{np.median(values):{form}}"
    return f"{said} ({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else said


def _table(done: Done, widths: Mapping[str, int]) -> Sequence[Block]:
    """Is Var[q·k] = d_k? At the start, near step 100, and at the end."""
    rows = []
    for name, lines in done.items():
        for kind in KINDS:
            cells = []
            for at in (0, 100, None):
                probes = [probe for line in lines for probe in _at(line, at)]
                values = [v for probe in probes for v in head_values(probe, kind, "score_variance")]
                cells.append(spread(values))
            rows.append([name, kind, str(widths[name]), *cells])
    heads = ["variant", "attention", "d_k", "Var[q·k] at first", "after 100 steps", "at the end"]
    return [
        Text("Is Var[q·k] = d_k? Median over layers, heads and seeds, least and most in brackets:"),
        Table(heads, rows),
    ]

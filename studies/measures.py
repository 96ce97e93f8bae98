"""Measures that every study can record: attention, encoder rows, embeddings, gradients, dead units.

Every study reads this file; `measures` names those that it records.

Of each head of attention, over the queries n, l with at least two keys they may attend to:

    score_variance   Var[q·k] before any scaling, over all query-key pairs (000: is it d_k?)
    row_variance     the same over the keys of one query, which is what softmax sees
    entropy          −Σ w log w, nats; `evenness` is it over log(number of keys)
    top              the largest weight
    jacobian         ‖diag(w) − w wᵀ‖, Frobenius: softmax's derivative by the scaled scores
    scale            what q·k is multiplied by: the setting's, or what the head has learned so far.
                     Queries and keys receive scale times what softmax lets through
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from measuring import KINDS, Probe, draw_grid, head_values, kind_of
from pellucid.apps.lab.document import Block, Plot, Table
from pellucid.apps.lab.measures import MEASURES, Measure, Pass
from pellucid.apps.lab.metrics import format_spread
from pellucid.apps.lab.plots import Curves, Points, as_points
from pellucid.apps.lab.wording import captions, tr
from pellucid.nn.recorder import AttentionMap

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings
    from pellucid.apps.lab.results import Line

Array = np.ndarray
Lines = Mapping[str, Sequence["Line"]]
"""The lines of finished runs, by variant."""
TIMES: Mapping[str, int | None] = {"at first": 0, "after 100 steps": 100, "at the end": None}
"""When a table shows a value: the heading, and the step; None for the last."""
MOST = 8
"""Variants that one panel shows."""

THROUGH = "scale · ‖Jacobian‖"
STATISTICS = {
    "Var[q·k], all pairs": "score_variance",
    "Var[q·k], one query": "row_variance",
    "entropy / log keys": "evenness",
    "largest weight": "top",
    "‖Jacobian‖": "jacobian",
    THROUGH: "jacobian",
}
BY_KEYS = {"‖Jacobian‖": "jacobian", "largest weight": "top", "entropy / log keys": "evenness"}
FEWEST = 8
"""The fewest queries whose mean is shown."""


# attention, as recorded ---------------------------------------------------------------------------


def record(seen: Pass) -> dict[str, Any]:
    """Return the statistics of every head, and their means by the number of keys."""
    source, target = seen.batch.source.lengths, seen.batch.target.lengths - 1
    sides = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    heads: dict[str, Any] = {}
    pooled: dict[str, list[tuple[Array, dict[str, Array]]]] = {}
    for name, layer in seen.maps.items():
        allowed = allowed_keys(*sides[kind_of(name)], layer.causal)
        rows = row_statistics(layer.probabilities, allowed)
        pooled.setdefault(kind_of(name), []).append((allowed.sum(axis=-1), rows))
        heads[name] = _head_statistics(layer, allowed, rows)
    return {
        "attention": heads,
        "by_keys": {kind: _means_by_keys(layers) for kind, layers in pooled.items()},
    }


def _head_statistics(
    layer: AttentionMap, allowed: Array, rows: Mapping[str, Array]
) -> dict[str, list[float]]:
    several = allowed.sum(axis=-1) >= 2  # a single key always has all the weight
    scores = np.einsum("nhld,nhsd->nhls", layer.q, layer.k, dtype=np.float64)
    kept, count = scores * allowed[:, None], np.maximum(allowed.sum(axis=-1), 1)[:, None]
    mean = kept.sum(axis=-1) / count
    variance = np.maximum((kept**2).sum(axis=-1) / count - mean**2, 0.0)
    rows = {"row_variance": variance, **rows}
    found: dict[str, Iterable[Any]] = {
        "score_variance": [np.var(s[allowed]) for s in scores.swapaxes(0, 1)],
        **{k: values.swapaxes(0, 1)[:, several].mean(axis=1) for k, values in rows.items()},
        "scale": np.broadcast_to(np.ravel(layer.scale), layer.q.shape[1]),
    }
    return {name: [rounded(value) for value in values] for name, values in found.items()}


def allowed_keys(queries: Array, keys: Array, causal: bool) -> Array:
    """Return (N, L, S): whether query l of example n exists and may attend to key s."""
    length, s = int(queries.max()), int(keys.max())
    exists = (np.arange(length) < queries[:, None])[:, :, None]
    allowed: Array = exists & (np.arange(s) < keys[:, None])[:, None, :]
    if causal:
        allowed = allowed & (np.arange(s) <= np.arange(length)[:, None])
    return allowed


def row_statistics(weights: Array, allowed: Array) -> dict[str, Array]:
    """Return statistics of softmax's rows w: each (N, H, L), from weights (N, H, L, S).

    ‖diag(w) − w wᵀ‖² = Σ w² − 2 Σ w³ + (Σ w²)², so no matrix is made.

    >>> one = row_statistics(np.array([[[[0.5, 0.5]]]]), np.ones((1, 1, 2), bool))
    >>> round(float(one["jacobian"][0, 0, 0]), 3), float(one["evenness"][0, 0, 0])
    (0.5, 1.0)
    """
    w = weights.astype(np.float64) * allowed[:, None]
    squares, cubes = (w**2).sum(axis=-1), (w**3).sum(axis=-1)
    entropy = -(w * np.log(np.where(w > 0, w, 1.0))).sum(axis=-1)
    most = np.log(np.maximum(allowed.sum(axis=-1), 2))[:, None]
    return {
        "entropy": entropy,
        "evenness": entropy / most,
        "top": w.max(axis=-1),
        "jacobian": np.sqrt(np.maximum(squares - 2 * cubes + squares**2, 0.0)),
    }


def _means_by_keys(layers: list[tuple[Array, dict[str, Array]]]) -> dict[str, dict[str, float]]:
    """Return means by the number of keys, over layers, heads and queries."""
    found = {}
    for keys in sorted({int(k) for counts, _ in layers for k in np.unique(counts) if k >= 2}):
        found[str(keys)] = {
            statistic: rounded(
                np.concatenate(
                    [rows[statistic].swapaxes(0, 1)[:, n == keys].ravel() for n, rows in layers]
                ).mean()
            )
            for statistic in BY_KEYS.values()
        }
        found[str(keys)]["queries"] = sum(int((n == keys).sum()) for n, _ in layers)
    return found


# attention, as shown ------------------------------------------------------------------------------


def show(findings: Findings) -> Sequence[Block]:
    """Return plots over training and over the number of keys, and a table of Var[q·k]."""
    lines = lines_with(findings, "attention")
    if not lines:
        return []
    widths = {name: findings.study.variants[name].model.head_width for name in lines}
    return [
        _along(lines, set(widths.values())),
        _by_keys(lines),
        captions()["variance"],
        _variance(lines, widths),
    ]


def _along(lines: Lines, widths: set[int]) -> Block:
    """Return the plot of head statistics over training, one panel for each statistic."""

    def middle(probe: Probe, title: str, kind: str) -> float | None:
        values = head_values(probe, kind, STATISTICS[title])
        if title == THROUGH:  # a head multiplies q·k by its scale
            scales = head_values(probe, kind, "scale")
            values = [abs(s) * size for s, size in zip(scales, values, strict=False)]
        return float(np.median(values)) if values else None

    d_k = float(min(widths))
    marks = {"Var[q·k], all pairs": (d_k, f"d_k = {d_k:g}")} if len(widths) == 1 else {}
    title = "Attention during training"
    return draw_over_steps("attention", title, lines, list(STATISTICS), KINDS, middle, marks)


def _by_keys(lines: Lines) -> Block:
    """Draw statistics by the number of keys, before training and at its end."""
    columns = {"first step": 0, "last step": None}

    def curve(run: Line, title: str, column: str) -> Points:
        probes = probes_at(run, columns[column])
        means = [kv for p in probes for kv in p["by_keys"].get("encoder", {}).items()]
        return as_points((k, m[BY_KEYS[title]]) for k, m in means if m["queries"] >= FEWEST)

    title = tr("The encoder's attention by the number of keys")
    curves = panels(lines, list(BY_KEYS), list(columns), curve)
    return Plot(
        "keys.svg",
        title,
        draw_grid(list(BY_KEYS), list(columns), curves, title, "keys", base=2),
        captions()["keys"].format(fewest=FEWEST),
    )


def _variance(lines: Lines, widths: Mapping[str, int]) -> Block:
    rows = []
    for name, runs in lines.items():
        for kind in KINDS:
            variances = partial(head_values, kind=kind, statistic="score_variance")
            rows.append([name, tr(kind), str(widths[name]), *spreads(runs, variances)])
    return Table(["variant", "attention", "d_k", *(f"Var[q·k] {time}" for time in TIMES)], rows)


# the encoder's rows -------------------------------------------------------------------------------


def row_variance(rows: Array, cu_seqlens: Array) -> dict[str, float]:
    """Return the variance of packed rows (T, E) within sentences and between their means.

    Both are means over the channels; every sentence counts the same.

    >>> row_variance(np.array([[1.0], [1.0], [3.0], [5.0]]), np.array([0, 2, 4]))
    {'within': 0.5, 'between': 2.25}
    """
    sentences = np.split(rows.astype(np.float64), cu_seqlens[1:-1])
    means = [sentence.mean(axis=0) for sentence in sentences]
    return {
        "within": rounded(np.mean([sentence.var(axis=0).mean() for sentence in sentences])),
        "between": rounded(np.var(means, axis=0).mean()),
    }


def record_memory(seen: Pass) -> dict[str, Any]:
    """Measure the variance of the encoder's output rows, within sentences and between them."""
    source = seen.batch.source
    return {"memory": row_variance(seen.model.encode(source), source.cu_seqlens)}


def show_memory(findings: Findings) -> Sequence[Block]:
    """Return a table of the memory's variance, and the share of it that is within sentences."""

    def total(probe: Probe) -> list[float]:
        return [m["within"] + m["between"] for m in [probe.get("memory")] if m]

    def share(probe: Probe) -> list[float]:
        return [probe["memory"]["within"] / whole for whole in total(probe) if whole]

    rows = [
        [
            name,
            str(len(runs)),
            *chain(*zip(spreads(runs, total, ".2g"), spreads(runs, share), strict=True)),
        ]
        for name, runs in lines_with(findings, "memory").items()
    ]
    heads = [head for time in TIMES for head in (f"variance {time}", "share within")]
    return [captions()["memory"], Table(["variant", "seeds", *heads], rows)] if rows else []


# tokens and positions -----------------------------------------------------------------------------


def record_embeddings(seen: Pass) -> dict[str, Any]:
    """Return the mean length of the rows that are added: tokens and positions, after scaling."""
    model, config = seen.model, seen.model.config
    found: dict[str, dict[str, float]] = {}
    for side, part, packed in (
        ("source", model.source, seen.batch.source),
        ("target", model.target, seen.batch.target.without_last()),
    ):
        rows = {"token": part.tokens.weight.data[packed.tokens] * config.token_factor}
        if part.places is not None:  # positions may be rotations, or in the scores
            rows["position"] = part.places[packed.positions] * config.position_factor
        found[side] = {k: rounded(np.linalg.norm(x, axis=1).mean()) for k, x in rows.items()}
    return {"lengths": found}


def show_embeddings(findings: Findings) -> Sequence[Block]:
    """Return a picture of the lengths along training."""

    def length(probe: Probe, part: str, side: str) -> float | None:
        found: float | None = probe["lengths"][side].get(part)
        return found

    lines = lines_with(findings, "lengths")
    title = "Length of token and position vectors"
    parts, sides = ("token", "position"), ("source", "target")
    return [draw_over_steps("lengths", title, lines, parts, sides, length)] if lines else []


# gradients ----------------------------------------------------------------------------------------

GROUPS = {
    "all": ("all",),
    "token tables": ("source.tokens.weight", "target.tokens.weight"),
    "positions": ("source.positions.weight", "target.positions.weight"),
    "q and k": ("q_proj_weight", "k_proj_weight"),
    "v": ("v_proj_weight",),
}
"""How the names of the parameters of each group end."""


def record_gradients(seen: Pass) -> dict[str, Any]:
    """Return the norm of every matrix's gradient, q, k and v separately, and of all parameters."""
    found, total = {}, 0.0
    for name, parameter in seen.model.named_parameters():
        if parameter.grad is None:
            continue
        square = float(np.sum(np.square(parameter.grad, dtype=np.float64)))
        total += square
        if name.endswith("in_proj_weight"):
            for letter, part in zip("qkv", np.split(parameter.grad, 3), strict=True):
                short = name.replace("in_proj_weight", f"{letter}_proj_weight")
                found[short] = rounded(np.linalg.norm(part))
        elif parameter.grad.ndim > 1:
            found[name] = rounded(math.sqrt(square))
    return {"gradients": {"all": rounded(math.sqrt(total)), **found}}


def show_gradients(findings: Findings) -> Sequence[Block]:
    """Return a picture of the norms along training; what is not trained has no panel."""

    def norm(probe: Probe, group: str, _: str) -> float | None:
        ends = GROUPS[group]
        found = [value for name, value in probe["gradients"].items() if name.endswith(ends)]
        return math.sqrt(sum(value * value for value in found)) if found else None

    lines = lines_with(findings, "gradients")
    probes = [p for runs in lines.values() for run in runs for p in run["probes"]]
    rows = [group for group in GROUPS if any(norm(p, group, "") is not None for p in probes)]
    plot = ("gradients", "Gradient norms", lines, rows, ("‖gradient‖",), norm)
    return [draw_over_steps(*plot)] if rows else []


# dead units ---------------------------------------------------------------------------------------


def record_dead_units(seen: Pass) -> dict[str, Any]:
    """Return the share of units of each feed-forward network whose gradient is zero throughout."""
    return {
        "dead": {
            name.removesuffix(".linear1.weight"): rounded((~np.any(parameter.grad, axis=1)).mean())
            for name, parameter in seen.model.named_parameters()
            if name.endswith("linear1.weight") and parameter.grad is not None
        }
    }


# for all that is shown ----------------------------------------------------------------------------


def lines_with(findings: Findings, key: str) -> dict[str, list[Line]]:
    """Return the lines whose last probe has `key`, by variant: of the first `MOST` variants.

    Without the probes that lack it: of a run that was resumed with more measures.
    """
    found: dict[str, list[Line]] = {
        name: [
            {**line, "probes": [p for p in line["probes"] if key in p]}
            for line in lines.values()
            if line["probes"] and key in line["probes"][-1]
        ]
        for name, lines in findings.done.items()
    }
    names = [name for name, lines in found.items() if lines][:MOST]
    return {name: found[name] for name in names}


def panels(
    lines: Lines,
    rows: Sequence[str],
    columns: Sequence[str],
    curve: Callable[[Line, str, str], Points],
) -> dict[tuple[str, str], Curves]:
    """Return what `draw_grid` draws: in each row and column a curve of every run."""
    return {
        (row, column): {
            name: [curve(run, row, column) for run in runs] for name, runs in lines.items()
        }
        for row in rows
        for column in columns
    }


def draw_over_steps(
    name: str,
    title: str,
    lines: Lines,
    rows: Sequence[str],
    columns: Sequence[str],
    take: Callable[[Probe, str, str], float | None],
    marks: Mapping[str, tuple[float, str]] | None = None,
) -> Plot:
    """Draw a value of each probe over steps, in each row and column; marks as in `draw_grid`.

    name: of the picture's file, and of its caption.
    """

    def curve(run: Line, row: str, column: str) -> Points:
        return as_points((p["step"], take(p, row, column)) for p in run["probes"])

    title, curves = tr(title), panels(lines, rows, columns, curve)
    svg = draw_grid(rows, columns, curves, title, "step", lines=marks)
    return Plot(f"{name}.svg", title, svg, captions()[name])


def probes_at(line: Line, step: int | None) -> list[Probe]:
    """Return a run's probe at a step, or the last one for None; empty where there is none."""
    return [p for p in line["probes"] if step in (None, p["step"])][-1:]


def spreads(
    lines: Sequence[Line], take: Callable[[Probe], Iterable[float]], form: str = ".3g"
) -> list[str]:
    """Return the values of some runs' probes at each of `TIMES`, as a table shows them."""
    cells = []
    for step in TIMES.values():
        at = [p for line in lines for p in probes_at(line, step)]
        cells.append(format_spread([v for p in at for v in take(p)], form))
    return cells


def rounded(value: Any) -> float:
    """Return a number with the four digits that results files keep."""
    return float(f"{float(value):.4g}")


MEASURES |= {
    measure.name: measure
    for measure in (
        Measure("attention", "Attention", record, show),
        Measure("memory", "The encoder's rows", record_memory, show_memory),
        Measure("embeddings", "Tokens and positions", record_embeddings, show_embeddings),
        Measure("gradients", "Gradients", record_gradients, show_gradients),
        Measure("dead_units", "Dead units", record_dead_units),
    )
}

"""The scores and weights of attention, by layer and head and by the number of keys.

Of each head, over the queries n, l with at least two keys they may attend to:

    score_variance   Var[q·k] before any scaling, over all query-key pairs (000: is it d_k?)
    row_variance     the same over the keys of one query, which is what softmax sees
    entropy          −Σ w log w, nats; `evenness` is it over log(number of keys)
    top              the largest weight
    jacobian         ‖diag(w) − w wᵀ‖, Frobenius: softmax's derivative by the scaled scores
    scale            what q·k is multiplied by: the setting's, or what the head has learned so far.
                     Queries and keys receive scale times what softmax lets through
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.apps.lab.document import Block, Plot, Table
from pellucid.apps.lab.measures.measure import (
    KINDS,
    TIMES,
    Array,
    Lines,
    Measure,
    Pass,
    Probe,
    as_points,
    draw_over_steps,
    head_values,
    kind_of,
    lines_with,
    panels,
    probes_at,
    rounded,
    spreads,
)
from pellucid.apps.lab.plots import Points, draw_grid
from pellucid.apps.lab.wording import captions, tr
from pellucid.nn.recorder import AttentionMap

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings
    from pellucid.apps.lab.results import Line

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


# recorded ----------------------------------------------------------------------------------------


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


# shown -------------------------------------------------------------------------------------------


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


MEASURE = Measure("attention", "Attention", record, show)

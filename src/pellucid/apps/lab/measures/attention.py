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
    Measure,
    Pass,
    Probe,
    head_values,
    kind_of,
    lines_with,
    over_steps,
    probes_at,
    rounded,
)
from pellucid.apps.lab.metrics import format_spread
from pellucid.apps.lab.plots import Curves, draw_grid
from pellucid.nn.recorder import AttentionMap

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings
    from pellucid.apps.lab.results import Line

STATISTICS = {
    "Var[q·k], all pairs": "score_variance",
    "Var[q·k], one query": "row_variance",
    "entropy / log keys": "evenness",
    "largest weight": "top",
    "‖Jacobian‖": "jacobian",
    "scale · ‖Jacobian‖": "through",
}
BY_KEYS = {"‖Jacobian‖": "jacobian", "largest weight": "top", "entropy / log keys": "evenness"}
FEWEST = 8
"""The fewest queries whose mean is shown."""


# recorded ----------------------------------------------------------------------------------------


def record(seen: Pass) -> dict[str, Any]:
    """Return the statistics of every head, and their means by the number of keys."""
    source, target = seen.batch.source.lengths, seen.batch.target.lengths - 1
    heads: dict[str, Any] = {}
    pooled: dict[str, list[tuple[Array, dict[str, Array]]]] = {}
    for name, layer in seen.maps.items():
        kind = kind_of(name)
        queries = source if kind == "encoder" else target
        keys = target if kind == "decoder" else source
        allowed = allowed_keys(queries, keys, layer.causal)
        rows = row_statistics(layer.probabilities, allowed)
        pooled.setdefault(kind, []).append((allowed.sum(axis=-1), rows))
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
    variance = _row_variance(scores, allowed)
    found: dict[str, Iterable[Any]] = {
        "score_variance": [np.var(s[allowed]) for s in scores.swapaxes(0, 1)],
        "row_variance": variance.swapaxes(0, 1)[:, several].mean(axis=1),
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


def _row_variance(scores: Array, allowed: Array) -> Array:
    """Return the variance (N, H, L) of each query's scores over the keys it may attend to."""
    count = np.maximum(allowed.sum(axis=-1), 1)[:, None]
    kept = scores * allowed[:, None]
    mean = kept.sum(axis=-1) / count
    variance: Array = np.maximum((kept**2).sum(axis=-1) / count - mean**2, 0.0)
    return variance


def _means_by_keys(layers: list[tuple[Array, dict[str, Array]]]) -> dict[str, dict[str, float]]:
    """Return means by the number of keys, over layers, heads and queries."""
    found = {}
    for keys in sorted({int(k) for counts, _ in layers for k in np.unique(counts) if k >= 2}):
        means = {
            statistic: np.concatenate(
                [
                    rows[statistic].swapaxes(0, 1)[:, counts == keys].ravel()
                    for counts, rows in layers
                ]
            ).mean()
            for statistic in BY_KEYS.values()
        }
        queries = sum(int((counts == keys).sum()) for counts, _ in layers)
        found[str(keys)] = {**{k: rounded(v) for k, v in means.items()}, "queries": queries}
    return found


# shown -------------------------------------------------------------------------------------------


def show(findings: Findings) -> Sequence[Block]:
    """Return pictures along training and by keys, and a table of Var[q·k]."""
    variants = findings.study.variants
    lines = {
        name: [_with_through(line, variants[name].model.score_factor) for line in runs]
        for name, runs in lines_with(findings, "attention").items()
    }
    if not lines:
        return []
    widths = {name: variants[name].model.head_width for name in lines}
    return [
        _along(lines, set(widths.values())),
        _by_keys(lines),
        "Is Var[q·k] = d_k? Median over layers, heads and seeds (least to most):",
        _variance(lines, widths),
    ]


def _with_through(line: Line, setting: float) -> Line:
    """Return a line with the gradient that reaches q·k of each head: |scale| times the Jacobian.

    setting: the scale of lines that do not have it, the first ever written.
    """

    def with_through(seen: Mapping[str, Any]) -> dict[str, Any]:
        scales = seen.get("scale") or [setting] * len(seen["jacobian"])
        through = [abs(s) * j for s, j in zip(scales, seen["jacobian"], strict=True)]
        return {**seen, "through": through}

    probes = [
        {**probe, "attention": {name: with_through(x) for name, x in probe["attention"].items()}}
        for probe in line["probes"]
    ]
    return {**line, "probes": probes}


def _along(lines: Mapping[str, Sequence[Line]], widths: set[int]) -> Block:
    def middle(probe: Probe, kind: str, statistic: str) -> float | None:
        values = head_values(probe, kind, statistic)
        return float(np.median(values)) if values else None

    curves = {
        (title, kind): over_steps(lines, partial(middle, kind=kind, statistic=statistic))
        for title, statistic in STATISTICS.items()
        for kind in KINDS
    }
    d_k = float(min(widths))
    marks = {"Var[q·k], all pairs": (d_k, f"d_k = {d_k:g}")} if len(widths) == 1 else {}
    title = "Attention during training"
    return Plot(
        "attention.svg",
        title,
        draw_grid(list(STATISTICS), KINDS, curves, title, "step", lines=marks),
        "Median over layers and heads, then over seeds (band: least to most). Var[q·k] is taken "
        "before any scaling, over all query-key pairs and over the keys of one query, which "
        "is what softmax sees; the dotted line is the d_k of the textbook argument, which assumes "
        "unit variances. ‖Jacobian‖ is the norm of softmax's derivative by the scaled scores; "
        "queries and keys receive that times the scale.",
    )


def _by_keys(lines: Mapping[str, Sequence[Line]]) -> Block:
    """Draw statistics by the number of keys, at the first and the last probe."""
    curves: dict[tuple[str, str], Curves] = {}
    for column, at in {"first step": 0, "last step": -1}.items():
        for title, statistic in BY_KEYS.items():
            curves[title, column] = {
                name: [
                    (
                        [float(keys) for keys, mean in shown],
                        [mean[statistic] for _, mean in shown],
                    )
                    for line in runs
                    for cells in [line["probes"][at]["by_keys"].get("encoder", {})]
                    for shown in [[(k, m) for k, m in cells.items() if m["queries"] >= FEWEST]]
                ]
                for name, runs in lines.items()
            }
    title = "The encoder's attention by the number of keys"
    return Plot(
        "keys.svg",
        title,
        draw_grid(list(BY_KEYS), ["first step", "last step"], curves, title, "keys", base=2),
        f"Means over queries by their number of keys (those with at least {FEWEST} queries in "
        "the batch), over all layers and heads, before training and at its end.",
    )


def _variance(lines: Mapping[str, Sequence[Line]], widths: Mapping[str, int]) -> Block:
    rows = []
    for name, runs in lines.items():
        for kind in KINDS:
            cells = [
                format_spread(
                    [v for p in probes_at(runs, at) for v in head_values(p, kind, "score_variance")]
                )
                for at in TIMES.values()
            ]
            rows.append([name, kind, str(widths[name]), *cells])
    heads = [f"Var[q·k] {time}" for time in TIMES]
    return Table(["variant", "attention", "d_k", *heads], rows)


MEASURE = Measure(
    "attention",
    "Attention",
    "variance of q·k, entropy, largest weight, softmax's Jacobian and scale of every head",
    record=record,
    show=show,
)

"""Measures of a model apart from its attention: embeddings, encoder rows, gradients, dead units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.apps.lab.document import Block, Plot, Table
from pellucid.apps.lab.measures.measure import (
    TIMES,
    Array,
    Measure,
    Pass,
    Probe,
    lines_with,
    over_steps,
    probes_at,
    rounded,
)
from pellucid.apps.lab.metrics import format_spread
from pellucid.apps.lab.plots import draw_grid

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings

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
    """Return how different the encoder's rows are."""
    source = seen.batch.source
    return {"memory": row_variance(seen.model.encode(source), source.cu_seqlens)}


def show_memory(findings: Findings) -> Sequence[Block]:
    """Return a table of the variance and of the share of it within sentences."""
    rows = []
    for name, lines in lines_with(findings, "memory").items():
        cells = []
        for at in TIMES.values():
            seen = [p["memory"] for p in probes_at(lines, at) if "memory" in p]
            totals = [m["within"] + m["between"] for m in seen]
            shares = [m["within"] / total for m, total in zip(seen, totals, strict=True) if total]
            cells += [format_spread(totals, ".2g"), format_spread(shares)]
        rows.append([name, str(len(lines)), *cells])
    about = (
        "What cross-attention can choose from: the variance of the encoder's rows, and the share "
        "of it within sentences; the rest is between sentences (median over seeds, least to most). "
        "If the variance is near 0, all rows are alike. If the share is near 0, the rows of a "
        "sentence are alike, and it does not matter which of them is attended to."
    )
    heads = [head for time in TIMES for head in (f"variance {time}", "share within")]
    return [about, Table(["variant", "seeds", *heads], rows)] if rows else []


MEMORY = Measure(
    "memory",
    "The encoder's rows",
    "variance of the encoder's rows within and between sentences",
    record=record_memory,
    show=show_memory,
)

# tokens and positions -----------------------------------------------------------------------------


def record_embeddings(seen: Pass) -> dict[str, Any]:
    """Return the mean length of the rows that are added: tokens and positions, after scaling."""
    model, config = seen.model, seen.model.config
    found = {}
    for side, part, packed in (
        ("source", model.source, seen.batch.source),
        ("target", model.target, seen.batch.target.without_last()),
    ):
        tokens = part.tokens.weight.data[packed.tokens] * config.token_factor
        positions = part.places[packed.positions] * config.position_factor
        found[side] = {
            "token": rounded(np.linalg.norm(tokens, axis=1).mean()),
            "position": rounded(np.linalg.norm(positions, axis=1).mean()),
        }
    return {"lengths": found}


def show_embeddings(findings: Findings) -> Sequence[Block]:
    """Return a picture of the lengths along training."""
    lines = lines_with(findings, "lengths")
    if not lines:
        return []

    def length(probe: Probe, side: str, part: str) -> float:
        return float(probe["lengths"][side][part])

    curves = {
        (part, side): over_steps(lines, partial(length, side=side, part=part))
        for part in ("token", "position")
        for side in ("source", "target")
    }
    title = "Length of token and position vectors"
    svg = draw_grid(["token", "position"], ["source", "target"], curves, title, "step")
    about = "Mean Euclidean length of the vectors that are added, after their scale factors."
    return [Plot("lengths.svg", title, svg, about)]


EMBEDDINGS = Measure(
    "embeddings",
    "Tokens and positions",
    "mean length of token and position vectors after scaling",
    record=record_embeddings,
    show=show_embeddings,
)

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
    lines = lines_with(findings, "gradients")

    def norm(probe: Probe, ends: tuple[str, ...]) -> float | None:
        found = [value for name, value in probe["gradients"].items() if name.endswith(ends)]
        return math.sqrt(sum(value * value for value in found)) if found else None

    curves = {
        (group, "‖gradient‖"): over_steps(lines, partial(norm, ends=ends))
        for group, ends in GROUPS.items()
    }
    rows = [
        group
        for (group, _), panel in curves.items()
        if any(xs for seeds in panel.values() for xs, _ in seeds)
    ]
    title = "Gradient norms"
    about = "Norm of the gradient of the mean loss per token, of all parameters and of some."
    svg = draw_grid(rows, ["‖gradient‖"], curves, title, "step") if rows else ""
    return [Plot("gradients.svg", title, svg, about)] if rows else []


GRADIENTS = Measure(
    "gradients",
    "Gradients",
    "norm of the gradient of the mean loss, by group of parameters",
    record=record_gradients,
    show=show_gradients,
)

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


DEAD_UNITS = Measure(
    "dead_units",
    "Dead units",
    "share of feed-forward units that no row of the batch gives any gradient",
    "share of units",
    "lower",
    record=record_dead_units,
)

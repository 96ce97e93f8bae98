"""Measures of a model apart from its attention: embeddings, encoder rows, gradients, dead units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.apps.lab.document import Block, Table
from pellucid.apps.lab.measures.measure import (
    TIMES,
    Array,
    Measure,
    Pass,
    Probe,
    draw_over_steps,
    lines_with,
    rounded,
    spreads,
)
from pellucid.apps.lab.wording import captions

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


MEMORY = Measure("memory", "The encoder's rows", record_memory, show_memory)

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


EMBEDDINGS = Measure("embeddings", "Tokens and positions", record_embeddings, show_embeddings)

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


GRADIENTS = Measure("gradients", "Gradients", record_gradients, show_gradients)

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


DEAD_UNITS = Measure("dead_units", "Dead units", record_dead_units)

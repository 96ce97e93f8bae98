"""The probes' figures in docs/findings.md are those of the stored results."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
STEP, D_K = 300, 32
UPPER = ("decoder.layers.1.self_attn", "decoder.layers.2.self_attn")


def jacobians(change: str) -> dict[int, float]:
    """Return softmax's Jacobian in the decoder's upper self-attention by seed, median of heads."""
    lines = (ROOT / "results" / "studies" / "article-003.jsonl").read_text(encoding="utf-8")
    found = {}
    for run in map(json.loads, lines.splitlines()):
        if run["change"] == change:
            (probe,) = [probe for probe in run["probes"] if probe["step"] == STEP]
            heads = [size for name in UPPER for size in probe["attention"][name]["jacobian"]]
            found[run["seed"]] = median(heads)
    return found


def test_the_gradient_that_gets_through_is_smaller_under_d_k() -> None:
    root, plain = jacobians("sqrt_d_k"), jacobians("d_k")
    ratios = [(root[seed] / math.sqrt(D_K)) / (plain[seed] / D_K) for seed in plain]
    assert len(root) == len(plain) == 5
    ranges = [f"{min(v):.{n}f} to {max(v):.{n}f}" for v, n in
              ((plain.values(), 2), (root.values(), 2), (ratios, 1))]  # fmt: skip
    text = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())
    written = (
        "larger under / d_k in all five seeds "
        f"({ranges[0]}, compared with {ranges[1]}), but queries and keys receive it times the "
        f"scale, and that product is {ranges[2]} times smaller"
    )
    assert written in text

"""`pellucid bench`: how fast this machine trains, and where the time goes."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import tyro
from rich.table import Table
from threadpoolctl import threadpool_limits

from pellucid.bench import N, V, flops, pellucid_step, sgemm_rate, shares, timed
from pellucid.commands.console import Output
from pellucid.kernels.threads import available


def bench(rounds: int = 5, as_json: Annotated[bool, tyro.conf.arg(name="json")] = False) -> int:
    """Measure a training step of seed 003's model on this machine (half a minute or so).

    Utilisation is the rate of the step's matrix products over that of one large product of NumPy's,
    measured in turn with it; above 1, Pellucid's own products are faster than NumPy's. The scripts
    in benchmarks/ of the repository put PyTorch beside it.

    Args:
        rounds: Steps measured at each length; the table shows medians.
        as_json: Print JSON instead of a table.
    """
    with threadpool_limits(available()):
        rows = [measure(length, max(1, rounds)) for length in (50, 12)]
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    table = Table(title=f"Training step, {N} pairs, vocabulary {V:,}", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"length {row['length']}", justify="right")
    for name in ("milliseconds", "tokens a second", "NumPy's GFLOP/s", "utilisation"):
        table.add_row(name, *(f"{row[name]:,}" for row in rows))
    for kind in rows[0]["shares"]:
        table.add_row(f"  {kind}", *(f"{row['shares'][kind]:.0%}" for row in rows))
    Output().print(table)
    return 0


def measure(length: int, rounds: int) -> dict[str, Any]:
    """Return medians over some steps on pairs of `length` tokens a side."""
    ids = np.random.default_rng(0)
    step = pellucid_step(ids.integers(3, V, (N, length)), ids.integers(3, V, (N, length + 1)))
    step()  # compile, and fill the caches
    step()
    seconds, rates = np.median([(timed(step), sgemm_rate()) for _ in range(rounds)], axis=0)
    return {
        "length": length,
        "milliseconds": round(float(seconds) * 1e3, 1),
        "tokens a second": round(2 * N * length / float(seconds)),
        "NumPy's GFLOP/s": round(float(rates) / 1e9, 1),
        "utilisation": round(flops(N, length) / float(seconds * rates), 2),
        "shares": {kind: round(share, 3) for kind, share in shares(step).items()},
    }


def run(arguments: list[str]) -> int:
    """Run the verb."""
    return tyro.cli(bench, prog="pellucid bench", args=arguments)

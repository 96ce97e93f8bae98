"""`pellucid bench`: how fast this machine trains, compared with PyTorch if it is installed."""

from __future__ import annotations

import json as json_format
import logging
import math
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from rich.table import Table
from threadpoolctl import threadpool_limits

from pellucid.apps.cli.benchmark import real_data
from pellucid.apps.cli.benchmark.real_data import (
    Task,
    article_task,
    demo_task,
    pellucid_way,
    stretch,
    torch_way,
)
from pellucid.apps.cli.benchmark.step import (
    N,
    V,
    article_config,
    flops,
    in_turn,
    own_rate,
    pellucid_step,
    random_ids,
    sgemm_rate,
    shares,
)
from pellucid.apps.cli.benchmark.torch_model import TorchTrainer, installed
from pellucid.apps.cli.console import Output
from pellucid.core.errors import UsageError, UserError
from pellucid.core.machine import environment
from pellucid.data.corpora import find_corpus
from pellucid.kernels.backend.threads import available

_log = logging.getLogger(__name__)

Row = dict[str, Any]

BUSY = 0.25
"""Fraction of the processors that others may keep busy during a measurement."""


def bench(
    *,
    rounds: int = 5,
    seconds: float = 2.0,
    data: bool = True,
    torch: bool = True,
    json: bool = False,
) -> int:
    """Measure how fast Pellucid trains on this machine: a minute or two.

    Measures a training step of article 003's model, and useful tokens per second on real data: the
    demo's pronunciations, and chatbot-ko and multi30k-de-en if PELLUCID_DATA has them. If PyTorch
    is installed, it takes turns with Pellucid in the same process, on as many threads. All figures
    are medians over the rounds; a ratio has its quartiles.

    Utilisation is the rate of the step's matrix products as a fraction of the rate of large
    products alone: NumPy's, and Pellucid's own at its best. NumPy's may be slow on a newer
    processor; then the first is above 100 %, and the second says what could still be gained.

    Args:
        rounds: Turns for each side.
        seconds: Length of a turn on real data.
        data: Measure on real data too.
        torch: Measure PyTorch too, if it is installed.
        json: Print JSON instead of tables.
    """
    if rounds < 1:
        raise UsageError(f"--rounds must be at least 1, got {rounds}")
    if not 0 < seconds < math.inf:
        raise UsageError(f"--seconds must be above 0, got {seconds}")
    compared, busy = torch and installed(), load()
    with threadpool_limits(available()):
        steps, rates = [], []
        for length in (50, 12):
            _say(f"training steps of length {length}; the first compile kernels")
            steps.append(measure_step(length, rounds, compared))
        for task in tasks() if data else ():
            _say(f"training on {task.name}")
            rates.append(measure_data(task, rounds, seconds, compared))
    where = {**environment(), "threads": str(available()), "load before": f"{busy:.2f}"}
    if compared:
        where["torch"] = version("torch")
    if json:
        print(json_format.dumps({"step": steps, "data": rates, "environment": where}, indent=1))
        return 0
    console = Output()
    console.print(step_table(steps))
    if rates:
        console.print(data_table(rates))
    if torch and not compared:
        console.print("PyTorch is not installed; skipping the comparison.")
    if busy > BUSY * available():
        console.print(
            f"Other programs kept {busy:.1f} processors busy in the minute before. Do not trust "
            "these figures. PyTorch slows down most, because its threads wait for each other."
        )
    return 0


def _say(what: str) -> None:
    """Say what is being measured, in a line: a live display would take part of the processor."""
    print(f"measuring {what}", file=sys.stderr)


def load() -> float:
    """Return how many processors were busy in the last minute; 0 if that is not known."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def tasks() -> list[Task]:
    """Return the demo's data and what PELLUCID_DATA has; a warning names what is missing."""
    makers: dict[str, Callable[[], Task]] = {real_data.DEMO: demo_task}
    for name in real_data.SENTENCES:
        if find_corpus(name).at_hand:
            makers[name] = lambda name=name: article_task(name)  # type: ignore[misc]
    found = []
    for name, make in makers.items():
        try:
            found.append(make())
        except UserError as error:
            _log.warning("%s is not measured: %s", name, error)
    return found


def measure_step(length: int, rounds: int, compared: bool) -> Row:
    """Return medians over some steps on pairs of `length` tokens a side, none of them padding."""
    source, target = random_ids(length)
    ours = pellucid_step(source, target)
    steps: list[Callable[[], object]] = [ours]
    if compared:
        trainer = TorchTrainer(article_config(), available(), pad=-1)
        steps.append(lambda: trainer.step(source, target))
    for step in steps * 2:  # compile, and fill the caches
        step()
    own_rate()
    times, rates = [], []
    for _ in range(rounds):
        times.append(in_turn(steps, 1)[:, 0])
        rates.append((sgemm_rate(), own_rate()))
    seconds = np.median(times, axis=0)
    numpys, own = np.median(rates, axis=0)
    done = flops(N, length) / float(seconds[0])
    row: Row = {
        "length": length,
        "milliseconds": round(float(seconds[0]) * 1e3, 1),
        "tokens a second": round(2 * N * length / float(seconds[0])),
        "GFLOP/s": round(done / 1e9, 1),
        "GFLOP/s of NumPy's product": round(float(numpys) / 1e9, 1),
        "GFLOP/s of Pellucid's product": round(float(own) / 1e9, 1),
        "utilisation by NumPy's product": round(done / float(numpys), 2),
        "utilisation by Pellucid's product": round(done / float(own), 2),
        "shares": {kind: round(share, 3) for kind, share in shares(ours).items()},
    }
    if compared:
        row["PyTorch's milliseconds"] = round(float(seconds[1]) * 1e3, 1)
        row["times PyTorch's speed"] = spread([theirs / mine for mine, theirs in times])
    return row


def measure_data(task: Task, rounds: int, seconds: float, compared: bool) -> Row:
    """Return useful tokens a second on real data, each side in its best batches."""
    ways = [pellucid_way(task)]
    if compared:
        ways.append(torch_way(task))
    for way in ways:
        stretch(way, min(1.0, seconds))
    rates = np.array([[stretch(way, seconds) for way in ways] for _ in range(rounds)]).T
    row: Row = {"data": task.name, "useful tokens a second": round(float(np.median(rates[0])))}
    if compared:
        row["PyTorch's"] = round(float(np.median(rates[1])))
        row["times PyTorch's speed"] = spread(rates[0] / rates[1])
    return row


def spread(ratios: Any) -> list[float]:
    """Return the median and, around it, the quartiles."""
    return [round(float(np.quantile(ratios, q)), 2) for q in (0.25, 0.5, 0.75)]


def step_table(rows: list[Row]) -> Table:
    """Draw the training step: a column for each length, where its time goes at the end."""
    table = Table(title=f"Training step, {N} pairs, vocabulary {V:,}", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"length {row['length']}", justify="right")
    for name in rows[0]:
        if name not in ("length", "shares"):
            table.add_row(name, *(cell(name, row[name]) for row in rows))
    table.add_section()
    for kind in rows[0]["shares"]:
        table.add_row(f"time in {kind}", *(f"{row['shares'][kind]:.0%}" for row in rows))
    return table


def data_table(rows: list[Row]) -> Table:
    """Draw the rates on real data: a row for each corpus."""
    table = Table(title="Useful tokens a second, on real data", title_justify="left")
    for name in rows[0]:
        head = "Pellucid" if name == "useful tokens a second" else name
        table.add_column(head, justify="left" if name == "data" else "right")
    for row in rows:
        table.add_row(*(cell(name, value) for name, value in row.items()))
    return table


def cell(name: str, value: Any) -> str:
    """Write one value of a table."""
    if isinstance(value, list):
        return f"{value[1]:.2f} ({value[0]:.2f}–{value[2]:.2f})"
    if name.startswith("utilisation"):
        return f"{value:.0%}"
    return value if isinstance(value, str) else f"{value:,}"

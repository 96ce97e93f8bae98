"""Describe the machine of a measurement, and store results."""

from __future__ import annotations

import gzip
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.step import timed

from pellucid.kernels.backend.machine import processor, processors

# As many threads as the peers are given, however many processors there are.
os.environ.setdefault("PELLUCID_THREADS", "2")

RESULTS = Path(__file__).resolve().parents[1] / "results" / "benchmarks.jsonl"


def machine() -> dict[str, str]:
    """Return the day, the processor, its threads for this process, the load, and versions."""
    return {
        "date": date.today().isoformat(),
        "processor": f"{processor()}, {processors()} threads",
        "generation": generation(),
        "load": f"{os.getloadavg()[0]:.2f} at the start",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": version("numba"),
    }


def in_turn(calls: Iterable[Callable[[], Any]], rounds: int) -> np.ndarray:
    """Time calls that take turns; return the seconds (calls, rounds)."""
    calls = list(calls)
    return np.array([[timed(call) for call in calls] for _ in range(rounds)]).T


def apart(module: str, call: str) -> dict[str, float]:
    """Run a call of a benchmark in a process of its own, because a peak of memory never falls.

    Returns what the call returns.
    """
    program = f"import json; from benchmarks import {module}; print(json.dumps({module}.{call}))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file, gzipped or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def generation() -> str:
    """Return the processor's family and model, which its name may leave out; "" if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    facts = dict([part.strip() for part in line.split(":", 1)] for line in lines if ":" in line)
    return f"family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}"


def quartiles(values: Any, digits: int = 1) -> list[float]:
    """Return the lower quartile, the median and the upper quartile."""
    return [round(float(q), digits) for q in np.quantile(values, [0.25, 0.5, 0.75])]


def report(result: dict[str, Any], keep: bool) -> None:
    """Print a result; with `keep` append it to results/benchmarks.jsonl."""
    print(json.dumps(result, indent=1, ensure_ascii=False))
    if keep:
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")

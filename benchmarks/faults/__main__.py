"""Fault campaigns: kills, crashes, damaged files, bad input, and shared models.

    python -m benchmarks.faults [MODE …] [--cases N] [--seconds 60] [--keep]

    kills      training killed (SIGKILL) at random moments and resumed: the same bits
    crashes    training ended before or half way through every operation on the disk: the same bits
    corpora    fuzzed training data: a model, or one message
    commands   command lines made from the help texts: an answer, or one message
    models     models with one damaged file: refused, or the same answers
    anew       models changed with new checksums: an answer, or one message
    runs       runs with one damaged file, or an edited state.json with new checksums, resumed
    kernels    a damaged file in the cache of compiled kernels: the same answers
    gradients  layers with one wrong gradient: `gradient_check` sees it
    arguments  layers with one wrong argument: computed, or refused with a message
    requests   a server with wrong requests, and stopped right after right ones
    shared     one model in 8 threads for `--seconds`, and in 4 processes by spawn, fork or loky

Without a MODE all of them run. Each case is a function of its number, and of --seed if it is
random: the numbers of another seed begin at another million. The outcomes are counted and added up
after every case, in results/faults.json with --keep, else in a local file, so that a stopped
campaign continues where it was. The exit code is 1 after a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults.inputs import Commands, Corpora
from benchmarks.faults.layers import Arguments, Gradients
from benchmarks.faults.mode import Case, Mode
from benchmarks.faults.models import Kernels, Models
from benchmarks.faults.requests import Requests
from benchmarks.faults.runs import Runs
from benchmarks.faults.shared import Shared
from benchmarks.faults.training import Crashes, Kills
from benchmarks.machine import machine

from pellucid import __version__
from pellucid.system.files import write_atomically

RESULTS = Path(__file__).resolve().parents[2] / "results" / "faults.json"
Record = dict[str, Any]


def modes(seconds: float) -> dict[str, Mode]:
    """Return the campaigns by name."""
    made = (
        Mode("kills", Kills, 25),
        Mode("crashes", Crashes, None),
        Mode("corpora", Corpora, 150),
        Mode("commands", Commands, 300),
        Mode("models", Models, 210),
        Mode("anew", partial(Models, anew=True), 210),
        Mode("runs", Runs, 180),
        Mode("kernels", Kernels, 30),
        Mode("gradients", Gradients, 200),
        Mode("arguments", Arguments, 420),
        Mode("requests", Requests, 20),
        Mode("shared", partial(Shared, seconds=seconds), None),
    )
    return {mode.name: mode for mode in made}


def new_record(units: str) -> Record:
    """Return the empty record of a campaign."""
    return {
        "version": __version__, **machine(), "units_are": units, "cases": 0, "units": 0,
        "counts": {}, "slowest_s": 0.0, "figures": [], "failures": [],
    }  # fmt: skip


def add(record: Record, case: Case, number: int) -> None:
    """Add the outcome of one case to a record."""
    of_kind = record["counts"].setdefault(case.kind, {})
    of_kind[case.became] = of_kind.get(case.became, 0) + case.weight
    record["cases"], record["units"] = record["cases"] + 1, record["units"] + case.weight
    record["slowest_s"] = round(max(record["slowest_s"], case.seconds), 2)
    if case.failed:
        record["failures"].append(f"{number}, {case.kind}: {case.became} {case.figures}"[:2000])
    elif case.figures:
        record["figures"].append(f"{case.kind}: {case.figures}")


def campaign(
    mode: Mode, records: dict[str, Record], cases: int | None, file: Path, seed: int = 0
) -> None:
    """Run the remaining cases of a campaign."""
    with tempfile.TemporaryDirectory() as place:
        prepared = mode.prepare(Path(place))
        count: int = cases or mode.cases or prepared.count  # type: ignore[attr-defined]
        record = records.setdefault(mode.name, new_record(prepared.units))
        # Fewer than usual are taken from the whole range.
        apart = max(1, (mode.cases or prepared.count) // count)  # type: ignore[attr-defined]
        while record["cases"] < count:
            number = apart // 2 + apart * record["cases"]
            number += seed * 10**6 * (mode.cases is not None)  # else all there are are run
            case = prepared(number)
            add(record, case, number)
            if case.failed:
                print(record["failures"][-1], file=sys.stderr, flush=True)
            write_atomically(
                file, json.dumps(records, indent=1, ensure_ascii=False).encode() + b"\n"
            )
    print(f"{mode.name}: {record['units']}, failures {len(record['failures'])}; {record['counts']}")


def main() -> int:
    """Run the campaigns."""
    os.environ["PELLUCID_THREADS"] = "1"  # forked children share the processors
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modes", nargs="*")
    parser.add_argument("--cases", type=int, help="how many, instead of the usual number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--keep", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--file", type=Path, default=Path(f"faults-{time.strftime('%Y%m%d')}.json"))
    options = parser.parse_args()
    known = modes(options.seconds)
    if unknown := set(options.modes) - set(known):
        parser.error(f"no mode {', '.join(unknown)}; there are: {', '.join(known)}")
    file = RESULTS if options.keep else options.file
    records: dict[str, Record] = json.loads(file.read_bytes()) if file.exists() else {}
    for name in options.modes or known:
        campaign(known[name], records, options.cases, file, options.seed)
    failures = sum(len(record["failures"]) for record in records.values())
    cases = sum(record["units"] for record in records.values())
    print(f"{cases:,} cases in {len(records)} campaigns, seed {options.seed}: {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""Time a training step while another process is busy, and the processor time when idle.

    python -m benchmarks.busy [--length 12] [--rounds 8] [--keep]

A counting process is stopped and continued in turns. With n processors and n threads of Pellucid, n
+ 1 threads are ready to run, so a fair system gives each n / (n + 1) of a processor. A step then
takes (n + 1) / n of its time alone: its fair time. The result is milliseconds of a step alone and
with company (quartiles over the rounds), the latter over the fair time, and the processor time used
in the 0.3 s after a step, minus that of only sleeping. It needs a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from benchmarks.machine import machine, quartiles, report
from benchmarks.step import pellucid_step, random_ids, timed

from pellucid.kernels.backend.machine import processors

SECONDS, PAUSE = 1.0, 0.3


def stretch(step: Callable[[], float]) -> float:
    """Return the mean seconds of a step over about a second."""
    times = [timed(step)]
    while sum(times) < SECONDS:
        times.append(timed(step))
    return float(np.mean(times))


def used_while_asleep() -> float:
    """Return the milliseconds of processor time that this process uses in `PAUSE` seconds."""
    began = time.process_time()
    time.sleep(PAUSE)
    return 1e3 * (time.process_time() - began)


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    where = machine()
    step = pellucid_step(*random_ids(options.length))
    for _ in range(5):
        step()
    company = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    alone, together, after = [], [], []
    try:
        for _ in range(options.rounds):
            os.kill(company.pid, signal.SIGSTOP)
            alone.append(stretch(step))
            first = used_while_asleep()
            after.append(first - used_while_asleep())
            os.kill(company.pid, signal.SIGCONT)
            together.append(stretch(step))
    finally:
        company.kill()
        company.wait()
    n = processors()
    fair = np.array(alone) * (n + 1) / n
    result = {
        "benchmark": "busy",
        "length": options.length,
        "alone_ms": quartiles(np.array(alone) * 1e3),
        "together_ms": quartiles(np.array(together) * 1e3),
        "over_fair": quartiles(np.array(together) / fair, 2),
        "after_ms": quartiles(after, 2),
        **where,
    }
    report(result, options.keep)


if __name__ == "__main__":
    main()

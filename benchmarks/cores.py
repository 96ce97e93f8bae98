"""Predict a training step on more cores, from the serial part of each kernel.

    python -m benchmarks.cores [--length 50] [--rounds 5] [--keep]

On one thread, in processor time (so that other programs do not count): one step of article 003's
model is taken with the work divided as it would be for n threads, and each kernel call is timed. A
call of t tasks on n cores needs ⌈t / n⌉ / t of its time (of several stages, the sum of their ⌈tᵢ /
n⌉ over all tasks); everything outside the calls, which is Python and NumPy, needs all of its time
(Amdahl's law). The sum is the prediction.

It ignores what cores share: memory bandwidth, clock rates under load, and the microseconds in which
threads meet at the end of a call. So it is an upper bound of the speed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

os.environ["PELLUCID_THREADS"] = "1"  # before the pool is made

import numpy as np
from benchmarks.machine import machine, report
from benchmarks.step import pellucid_step, random_ids
from threadpoolctl import threadpool_limits

from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import Kernel

CORES = (1, 2, 4, 8, 16, 32, 64)


class Calls:
    """Time of each kernel in a step, and its predicted time on n cores."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.spent: dict[str, float] = defaultdict(float)
        self.predicted: dict[str, float] = defaultdict(float)
        self.tasks: dict[str, list[int]] = defaultdict(list)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `Kernel.__call__` with a measurement around it.

        All tasks of a call are taken to be equally long. A stage begins when the one before ends.
        """

        def measured(kernel: Kernel, *arguments: Any) -> Any:
            began = time.thread_time()
            result = call(kernel, *arguments)
            seconds = time.thread_time() - began
            parallel = isinstance(kernel, threads.ParallelKernel)
            ends = [0, *(arguments[2 : 2 + kernel.stages] if parallel else [1])]
            tasks = ends[-1]
            turns = sum(-(-(end - begin) // self.cores) for begin, end in pairwise(ends))
            module = kernel.function.__module__.removeprefix("pellucid.kernels.")
            name = f"{module}.{kernel.function.__name__}"
            self.spent[name] += seconds
            self.predicted[name] += seconds * turns / tasks
            self.tasks[name].append(tasks)
            return result

        return measured


def step_for(cores: int, step: Callable[[], float], rounds: int) -> tuple[Calls, float]:
    """Run steps with the work divided for some cores; return kernel calls and seconds of a step."""
    calls, plain, count = Calls(cores), Kernel.__call__, threads.count
    threads.count = lambda: cores
    Kernel.__call__ = calls.around(plain)  # type: ignore[method-assign]
    try:
        began = time.thread_time()
        for _ in range(rounds):
            step()
        whole = time.thread_time() - began
    finally:
        threads.count, Kernel.__call__ = count, plain  # type: ignore[method-assign]
    for spent in (calls.spent, calls.predicted):
        for name in spent:
            spent[name] /= rounds
    return calls, whole / rounds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=50, help="tokens a side of a pair")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args(arguments)
    where = machine()
    with threadpool_limits(1):
        step = pellucid_step(*random_ids(options.length))
        step()
        found = {cores: step_for(cores, step, options.rounds) for cores in CORES}
    one, whole = found[1]
    rows = {}
    for name in sorted(one.spent, key=lambda name: -one.spent[name]):
        rows[name] = {
            "share": round(one.spent[name] / whole, 4),
            "tasks on 64": int(np.median(found[64][0].tasks[name])),
            "speed-up": [
                round(one.spent[name] / calls.predicted[name], 1) for calls, _ in found.values()
            ],
        }
    outside = {cores: took - sum(calls.spent.values()) for cores, (calls, took) in found.items()}
    predicted = {
        cores: outside[cores] + sum(calls.predicted.values()) for cores, (calls, _) in found.items()
    }
    report(
        {
            "benchmark": "cores",
            "length": options.length,
            "cores": list(CORES),
            "step_ms_on_one": round(whole * 1e3, 1),
            "outside kernels": round(outside[1] / whole, 4),
            "kernels": rows,
            "predicted_ms": [round(predicted[cores] * 1e3, 1) for cores in CORES],
            "predicted_speed-up": [round(predicted[1] / predicted[cores], 2) for cores in CORES],
            **where,
        },
        options.keep,
    )


if __name__ == "__main__":
    main()

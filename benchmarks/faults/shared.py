"""One model that answers in many threads and processes: equal answers, constant memory."""

from __future__ import annotations

import multiprocessing
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.faults import models
from benchmarks.faults.mode import Case

import pellucid
from pellucid.core.errors import optional

WAYS = ("8 threads", "4 processes by spawn", "4 processes by fork", "4 processes by loky")
ROUNDS = 64


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class Shared:
    """One case for each way to share a model."""

    units = "ways to share a model"
    count = len(WAYS)

    def __init__(self, place: Path, seconds: float) -> None:
        models.write(place / "shared")
        self.trained, self.seconds = pellucid.load(place / "shared"), seconds
        self.expected = self.trained.generate(models.TEXTS)

    def __call__(self, number: int) -> Case:
        """Run one case."""
        return self.threads() if number == 0 else self.processes(WAYS[number].split()[-1])

    def threads(self) -> Case:
        """Answer in 8 threads for `seconds`; memory must hardly grow.

        At most 8 MiB more may be in use in the second half than before it, the first sixth left
        out.
        """
        counts, wrong = [0] * 8, [0] * 8
        ends = time.monotonic() + self.seconds

        def answer(i: int) -> None:
            while time.monotonic() < ends:
                counts[i] += 1
                wrong[i] += self.trained.generate(models.TEXTS) != self.expected

        workers = [threading.Thread(target=answer, args=(i,)) for i in range(len(counts))]
        for worker in workers:
            worker.start()
        sizes = []
        while time.monotonic() < ends:
            time.sleep(self.seconds / 60)
            sizes.append(resident() / 2**20)
        for worker in workers:
            worker.join()
        early, late = max(sizes[10:30]), max(sizes[30:])
        told = (
            f"{sum(counts):,} rounds in {self.seconds:g} s; at most {early:.1f} MiB resident in "
            f"the second sixth to the half, {late:.1f} MiB in the second half"
        )
        grown = late > early + 8
        became = "OTHER ANSWERS" if any(wrong) else "GROWN" if grown else "equal answers"
        return Case(WAYS[0], became, figures=told)

    def processes(self, way: str) -> Case:
        """Answer in 4 processes."""
        ask = partial(type(self.trained).generate, self.trained)
        jobs = [models.TEXTS] * ROUNDS
        if way == "loky":
            loky = optional("loky", "this campaign needs loky", extra="dev")
            found = list(loky.get_reusable_executor(4).map(ask, jobs))
        else:
            context = multiprocessing.get_context(way)
            with ProcessPoolExecutor(4, mp_context=context) as pool:
                found = list(pool.map(ask, jobs))
        right = all(some == self.expected for some in found)
        told = f"{ROUNDS} rounds"
        return Case(
            f"4 processes by {way}", "equal answers" if right else "OTHER ANSWERS", figures=told
        )

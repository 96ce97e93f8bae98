"""A study is run: what is missing is handed to workers, and each result written as it comes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from dataclasses import dataclass
from pathlib import Path

from pellucid.core.errors import UsageError, UserError
from pellucid.lab.capacity import affordable
from pellucid.lab.results import Line, append_result, hold_results, read_results
from pellucid.lab.study import Trial
from pellucid.lab.trial import failure
from pellucid.lab.workers import PATIENCE, Elsewhere, Processes, Workers
from pellucid.training.signals import handling

Say = Callable[[str], None]
Took = Callable[[Trial, Line], None]
ORPHAN = PATIENCE + 10.0
"""Seconds in which a run folder in use comes free if its study was killed: its process saves."""
PAUSE = 0.5


@dataclass(frozen=True)
class Standing:
    """How many of a study's trials are done and failed when a call of `run_study` ends."""

    done: int
    failed: int
    planned: int
    interrupted: bool
    """Whether a signal ended the call."""


def run_study(
    trials: Sequence[Trial],
    results: Path,
    runs: Path,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    gigabytes: float = 1.0,
    retry: bool = False,
    say: Say = lambda line: None,
) -> Standing:
    """Do every trial whose line is not yet in `results`, in order; append each line as it comes.

    runs: where the run folders go; trials that were stopped go on from there.
    executor: any of `concurrent.futures`' kind, Dask's and Ray's among them; its workers must see
        `runs`. Unset: `workers` processes, by default as many as processors and memory allow at
        `gigabytes` each.
    retry: do the failed ones again.

    SIGINT and SIGTERM save what is running and stop; the same call later goes on. Runs of an
    executor end at their next checkpoint; a second signal leaves them to do so by themselves.

    Raises `UsageError` for fewer workers than one, and `UserError` when another study holds the
    results file, when it cannot be read or written (what was running is then stopped likewise),
    and, once all others are done, when a run could not be: its folder in use, or its disk full.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}; unset, it is chosen")
    with hold_results(results):
        before = read_results(results)
        done = {id for id, line in before.items() if line["status"] == "done"}
        failed = set() if retry else before.keys() - done
        planned = {t.id for t in trials}
        done, failed = done & planned, failed & planned
        todo = [t for t in trials if t.id not in done | failed]
        say(f"{len(done)}/{len(trials)} done" + (f", {len(failed)} failed" if failed else ""))

        def took(trial: Trial, line: Line) -> None:
            append_result(results, line)
            (done if line["status"] == "done" else failed).add(trial.id)
            say(f"{len(done)}/{len(trials)} done: {describe(line)}")

        work = _Work(
            Processes(workers or affordable(gigabytes))
            if executor is None
            else Elsewhere(executor, runs),
            runs,
            took,
            say,
        )
        stopped = work.do(todo)
    if work.left and not stopped:
        raise UserError(
            f"{len(work.left)} of {len(trials)} runs are not done; the same command does them. "
            f"{describe(work.left[0])}"
        )
    return Standing(len(done), len(failed), len(trials), stopped)


def describe(line: Line) -> str:
    """Say a line of results in a few words.

    >>> describe({"change": "d_k", "seed": 1, "status": "failed", "error": "out of\\nmemory"})
    'd_k, seed 1: failed: out of'
    """
    name = f"{line['change']}, seed {line['seed']}"
    if line["status"] != "done":
        return f"{name}: {line['status']}: {line['error'].partition(chr(10))[0]}"
    known = {k: v for k, v in line["metrics"].items() if v is not None}
    numbers = ", ".join(f"{k} {v:.4g}" for k, v in known.items())
    return f"{name}: {numbers} ({line['minutes']:.1f} minutes)"


class _Work:
    """One go at what is to be done."""

    def __init__(self, workers: Workers, runs: Path, took: Took, say: Say) -> None:
        self.workers, self.runs, self.took, self.say = workers, runs, took, say
        self.left: list[Line] = []
        """What came of runs that are not done, though nobody stopped them."""
        self._waiting: list[tuple[float, Trial]] = []  # with the time before which not to begin
        self._deaths = Counter[str]()
        self._in_use: dict[str, float] = {}  # since when
        self._fault: UserError | None = None

    def do(self, todo: Sequence[Trial]) -> bool:
        """Have every trial done and take the lines; return whether a signal stopped it."""
        self._waiting = [(0.0, trial) for trial in todo]
        workers, told, known = self.workers, False, 0
        signals: list[int] = []
        with handling(signals.append):
            try:
                while self._waiting or len(workers):
                    if (signals or self._fault) and not told:
                        told, known = True, len(signals)
                        self._waiting.clear()
                        self.say(workers.stop())
                    elif told and len(signals) > known and workers.leave():
                        break
                    self._start()
                    if not len(workers):
                        time.sleep(PAUSE)
                    for trial, result in workers.ended(PAUSE):
                        self._take(trial, result, told)
            except BaseException:
                workers.stop()
                raise
        if self._fault:
            raise self._fault
        return bool(signals)

    def _start(self) -> None:
        now = time.monotonic()
        ready = [pair for pair in self._waiting if pair[0] <= now]
        for pair in ready[: self.workers.at_once - len(self.workers)]:
            self._waiting.remove(pair)
            self.workers.start(pair[1], self.runs / pair[1].id)

    def _take(self, trial: Trial, result: Line | Exception, stopping: bool) -> None:
        if stopping and isinstance(result, Exception):
            self.say(
                f"{trial.change}, seed {trial.seed}: its process was ended ({result}); it goes on "
                "from its last checkpoint"
            )
            return
        line = result if isinstance(result, Mapping) else self._lost(trial, result)
        if line["status"] in ("done", "failed"):
            try:
                self.took(trial, line)
            except UserError as error:  # its result is in its folder
                self._fault = self._fault or error
        elif not stopping and not self._again(trial, line):
            self.left.append(line)

    def _lost(self, trial: Trial, error: Exception) -> Line:
        self._deaths[trial.id] += 1
        said = f"its process ended, killed or out of memory ({type(error).__name__}: {error})"
        line = failure(trial, said, 0.0)
        if isinstance(error, CancelledError | BrokenExecutor):
            return {**line, "status": "cancelled", "error": "the executor gave it up"}
        if self._deaths[trial.id] < self.workers.attempts:
            return {**line, "status": "lost"}
        return line

    def _again(self, trial: Trial, line: Line) -> bool:
        """Return whether a run that came to nothing is worth another try, which is then due."""
        now, known = time.monotonic(), trial.id in self._in_use
        if line["status"] == "lost":
            self._waiting.insert(0, (now, trial))
            return True
        if line["status"] == "in use" and now - self._in_use.setdefault(trial.id, now) < ORPHAN:
            if not known:
                self.say(f"{describe(line)} (tried again for {ORPHAN:.0f} seconds)")
            self._waiting.append((now + 4 * PAUSE, trial))
            return True
        return False

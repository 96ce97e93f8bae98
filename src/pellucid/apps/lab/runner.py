"""Run a study: submit what is missing to an executor, append each result as it comes."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pellucid.apps.lab.processes import PATIENCE, FreshProcesses, affordable
from pellucid.apps.lab.results import Line, open_results, read_results
from pellucid.apps.lab.study import Trial
from pellucid.apps.lab.trial import failure, run_trial
from pellucid.core.errors import UsageError, UserError
from pellucid.training.signals import handling

Say = Callable[[str], None]
Took = Callable[[Trial, Line], None]
ATTEMPTS = 3
"""Processes of ours that one run may lose before it counts as failed."""
ORPHAN = PATIENCE + 10.0
"""Seconds in which a run folder in use is released if its study was killed: its process saves."""
PAUSE = 0.5


@dataclass(frozen=True)
class Progress:
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
) -> Progress:
    """Do every trial whose line is not yet in `results`, in order; append each line as it comes.

    runs: the folder of the run folders; trials that were stopped are resumed.
    executor: any `concurrent.futures.Executor`, Dask's and Ray's among them; its workers must see
        `runs`. Unset: `workers` processes, by default as many as processors and memory allow at
        `gigabytes` each.
    retry: do failed trials again.

    SIGINT and SIGTERM make the runs save and end; the same call later resumes them. Runs in a main
    thread end after their step, others at their next checkpoint. A second signal returns without
    waiting for them.

    Raises `UsageError` for fewer than one worker, and `UserError` when another study holds the
    results file, when it cannot be read or written (the runs are then stopped likewise), and, once
    all others are done, when a run could not be done: its folder in use, or its disk full.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}")
    with open_results(results) as append:
        before = read_results(results)
        done = {id for id, line in before.items() if line["status"] == "done"}
        failed = set() if retry else before.keys() - done
        planned = {t.id for t in trials}
        done, failed = done & planned, failed & planned
        todo = [t for t in trials if t.id not in done | failed]
        say(f"{len(done)}/{len(trials)} done" + (f", {len(failed)} failed" if failed else ""))

        def took(trial: Trial, line: Line) -> None:
            append(line)
            (done if line["status"] == "done" else failed).add(trial.id)
            say(f"{len(done)}/{len(trials)} done: {describe(line)}")

        if executor is None:
            limit = workers or affordable(gigabytes)
            work = _Work(FreshProcesses(), limit, ATTEMPTS, runs, took, say)
        else:  # it has its own queue, and itself tries again
            work = _Work(executor, len(trials), 1, runs, took, say)
        stopped = work.do(todo)
    if work.left and not stopped:
        raise UserError(
            f"{len(work.left)} of {len(trials)} runs are not done; the same command does them. "
            f"{describe(work.left[0])}"
        )
    return Progress(len(done), len(failed), len(trials), stopped)


def describe(line: Line) -> str:
    r"""Return a line of results in a few words.

    >>> describe({"change": "d_k", "seed": 1, "status": "failed", "error": "out of\nmemory"})
    'd_k, seed 1: failed: out of'
    """
    name = f"{line['change']}, seed {line['seed']}"
    if line["status"] != "done":
        return f"{name}: {line['status']}: {line['error'].partition(chr(10))[0]}"
    known = {k: v for k, v in line["metrics"].items() if v is not None}
    numbers = ", ".join(f"{k} {v:.4g}" for k, v in known.items())
    return f"{name}: {numbers} ({line['minutes']:.1f} minutes)"


class _Work:
    """One pass over the trials that are to be done."""

    def __init__(
        self, executor: Executor, limit: int, attempts: int, runs: Path, took: Took, say: Say
    ) -> None:
        self.executor, self.limit, self.attempts = executor, limit, attempts
        self.runs, self.took, self.say = runs, took, say
        self.left: list[Line] = []
        """Lines of runs that were not stopped and are not done."""
        self._stop = runs / f".stop-{uuid4().hex[:12]}"
        self._running: dict[Future[dict[str, Any]], Trial] = {}
        self._waiting: deque[Trial] = deque()
        self._lost = Counter[str]()
        self._in_use: dict[str, float] = {}  # since when
        self._stopping = False
        self._error: UserError | None = None

    def do(self, todo: Sequence[Trial]) -> bool:
        """Do every trial and take the lines; return whether a signal stopped it."""
        self._waiting.extend(todo)
        signals: list[int] = []
        known = 0
        with handling(signals.append):
            try:
                while self._waiting or self._running:
                    if (signals or self._error) and not self._stopping:
                        known = len(signals)
                        self._stop_runs()
                    elif self._stopping and len(signals) > known:
                        for future in self._running:
                            future.cancel()
                        break  # the rest sees the file and stops, or finishes
                    while self._waiting and len(self._running) < self.limit:
                        trial = self._waiting.popleft()
                        folder = self.runs / trial.id
                        future = self.executor.submit(run_trial, trial, folder, self._stop)
                        self._running[future] = trial
                    for future in wait(self._running, PAUSE, FIRST_COMPLETED).done:
                        self._take(self._running.pop(future), future)
            except BaseException:
                self._stop_runs()
                raise
        if not self._running:
            self._stop.unlink(missing_ok=True)
        if self._error:
            raise self._error
        return bool(signals)

    def _stop_runs(self) -> None:
        """Start no more, and create the file that runs look for."""
        self._stopping, count = True, len(self._running)
        self._waiting.clear()
        also = "interrupt again to leave without waiting; the same command resumes them"
        try:
            self._stop.parent.mkdir(parents=True, exist_ok=True)
            self._stop.touch()
        except OSError as error:
            self.say(f"cannot stop the runs ({error}): they continue to their end; {also}")
        else:
            self.say(f"stopping: the runs in progress ({count}) save and end; {also}")

    def _take(self, trial: Trial, future: Future[dict[str, Any]]) -> None:
        try:
            line: Line = future.result()
        except (Exception, CancelledError) as error:  # the worker died, or was taken away
            if self._stopping:
                self.say(
                    f"{trial.change}, seed {trial.seed}: its process ended ({error}); it resumes "
                    "from its last checkpoint"
                )
                return
            line = self._line_of(trial, error)
        if line["status"] in ("done", "failed"):
            try:
                self.took(trial, line)
            except UserError as error:  # the result is in the run folder
                self._error = self._error or error
        elif line["status"] == "lost":
            self._waiting.appendleft(trial)
        elif line["status"] == "in use" and not self._stopping and self._is_patient(trial, line):
            time.sleep(PAUSE)
            self._waiting.append(trial)
        elif not self._stopping:
            self.left.append(line)

    def _line_of(self, trial: Trial, error: BaseException) -> Line:
        """Return a line for a run whose worker died; "lost" if it is to be tried again."""
        self._lost[trial.id] += 1
        reason = f"its process ended, killed or out of memory ({type(error).__name__}: {error})"
        line = failure(trial, reason, 0.0)
        if self._lost[trial.id] < self.attempts:
            return {**line, "status": "lost"}
        if self.attempts == 1 and isinstance(error, CancelledError | BrokenExecutor):
            return {**line, "status": "cancelled", "error": "the executor gave it up"}
        return line

    def _is_patient(self, trial: Trial, line: Line) -> bool:
        """Return whether a run folder in use may still be released, by an orphan that saves."""
        now = time.monotonic()
        if trial.id not in self._in_use:
            self.say(f"{describe(line)} (tried again for {ORPHAN:.0f} seconds)")
        return now - self._in_use.setdefault(trial.id, now) < ORPHAN

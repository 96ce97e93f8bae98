"""Run a study: submit the missing runs to an executor, append each result."""

from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pellucid.apps.lab.processes import FreshProcesses, affordable
from pellucid.apps.lab.results import Line, open_results, read_results
from pellucid.apps.lab.study import Trial
from pellucid.apps.lab.trial import failure, run_trial
from pellucid.core.errors import UsageError, UserError
from pellucid.core.parts import imported
from pellucid.training.signals import handling

Say = Callable[[str], None]
PAUSE = 0.5
"""Seconds between two checks for signals."""


@dataclass(frozen=True)
class Progress:
    """Counts of a study's runs when a call of `run_study` ends."""

    done: int
    failed: int
    planned: int
    interrupted: bool
    """Whether a signal asked the runs to stop."""


def run_study(
    trials: Sequence[Trial],
    results: Path,
    runs: Path,
    *,
    executor: futures.Executor | None = None,
    workers: int | None = None,
    gigabytes: float = 1.0,
    retry: bool = False,
    say: Say = lambda line: None,
) -> Progress:
    """Run all trials that have no line in `results` yet.

    The line of each run is appended to `results` when the run is done or failed. runs: the folder
    of the run folders; trials that were stopped are resumed.

    executor: any `concurrent.futures.Executor`, also Dask's and Ray's; its workers must see `runs`.
    Default: `workers` processes, which default to as many as processors and memory allow at
    `gigabytes` each.

    retry: run failed trials again. say: receives lines of progress.

    SIGINT and SIGTERM make the runs save and stop; the same call later resumes them. A run in the
    main thread of its process stops after its step, others at their next checkpoint. A second
    signal returns without waiting for them.

    Raises `UsageError` for fewer than one worker. Raises `UserError` if another study holds the
    results file, or if it cannot be read or written; the runs are then stopped in the same way; and
    if psutil is missing, which the default number of workers needs.
    Raises `UserError` after all others are done if a run could not be done: its folder is in use,
    its disk is full, or the executor gave it up.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}")
    signals: list[int] = []
    left: list[Line] = []  # of runs that were not stopped and are not done
    error: UserError | None = None
    stopped: int | None = None  # how many signals had come
    stop = runs / f".stop-{uuid4().hex[:12]}"
    with open_results(results) as append, handling(signals.append):
        before = read_results(results)
        planned = {trial.id for trial in trials}
        done = {id for id in planned if before.get(id, {}).get("status") == "done"}
        failed = set() if retry else planned & before.keys() - done
        begun = f"{len(done)}/{len(trials)} done"
        say(f"{len(done)}/{len(trials)} done, {len(failed)} failed" if failed else begun)
        pool = executor or FreshProcesses(workers or affordable(gigabytes))
        running: dict[futures.Future[dict[str, Any]], Trial] = {
            pool.submit(run_trial, trial, runs / trial.id, stop, imported()): trial
            for trial in trials
            if trial.id not in done | failed
        }
        try:
            while running and (stopped is None or len(signals) <= stopped):
                if stopped is None and (signals or error):
                    stopped = len(signals)
                    _stop(stop, {} if executor else running, say)
                for future in futures.wait(running, PAUSE, futures.FIRST_COMPLETED).done:
                    trial = running.pop(future)
                    line = _line_of(trial, future)
                    if line["status"] not in ("done", "failed"):
                        left.append(line)
                        continue
                    try:
                        append(line)
                    except UserError as full:  # the result is in the run folder
                        error = error or full
                    (done if line["status"] == "done" else failed).add(trial.id)
                    say(f"{len(done)}/{len(trials)} done: {describe(line)}")
        except BaseException:
            _stop(stop, {} if executor else running, say)
            raise
        if not running:  # else what runs sees the file and stops, or finishes
            stop.unlink(missing_ok=True)
    if error:
        raise error
    if left and not signals:
        raise UserError(
            f"{len(left)} of {len(trials)} runs are not done; the same command does them. "
            f"{describe(left[0])}"
        )
    return Progress(len(done), len(failed), len(trials), bool(signals))


def describe(line: Line) -> str:
    r"""Describe a line of results in a few words.

    >>> describe({"change": "d_k", "seed": 1, "status": "failed", "error": "out of\nmemory"})
    'd_k, seed 1: failed: out of'
    """
    name = f"{line['change']}, seed {line['seed']}"
    if line["status"] != "done":
        return f"{name}: {line['status']}: {line['error'].partition(chr(10))[0]}"
    known = {k: v for k, v in line["metrics"].items() if v is not None}
    numbers = ", ".join(f"{k} {v:.4g}" for k, v in known.items())
    return f"{name}: {numbers} ({line['minutes']:.1f} minutes)"


def _stop(path: Path, ours: dict[futures.Future[Any], Trial], say: Say) -> None:
    """Cancel the runs in `ours` that have not started, and tell the others to stop.

    The cancelled ones are removed from `ours`. The others look for the file `path`; if it cannot be
    made, `say` tells that they continue.
    """
    for future in [future for future in ours if future.cancel()]:
        del ours[future]
    also = "interrupt again to leave without waiting; the same command resumes them"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        say(f"cannot stop the runs ({error}): they continue to their end; {also}")
    else:
        say(f"stopping: the runs in progress save and end; {also}")


def _line_of(trial: Trial, future: futures.Future[dict[str, Any]]) -> Line:
    """Return the line of a finished run; make one if its worker died or was cancelled."""
    try:
        return future.result()
    except (futures.BrokenExecutor, futures.CancelledError):
        return {**failure(trial, "the executor gave it up", 0.0), "status": "cancelled"}
    except Exception as error:
        return failure(trial, f"its process ended, killed or out of memory ({error})", 0.0)

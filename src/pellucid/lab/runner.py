"""A study is run: what is missing is handed to an executor, and each result written as it comes.

Any executor of `concurrent.futures`' kind will do. Without one, processes of this machine are used:
one thread each, and no more of them than memory holds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.lab.results import append_result, read_results
from pellucid.lab.study import Trial
from pellucid.lab.trial import failure, run_trial

Say = Callable[[str], None]
Took = Callable[[Trial, Mapping[str, Any]], None]
ATTEMPTS = 3
"""How often a run may take its process down with it before it counts as failed."""
PATIENCE = 60.0  # seconds in which a worker without a parent finishes its step and saves
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PELLUCID_THREADS")


@dataclass(frozen=True)
class Progress:
    """What a call of `run_study` did."""

    done: int
    failed: int
    planned: int
    interrupted: bool = False


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

    runs: where the run folders go; trials that were stopped go on from there.
    executor: any of `concurrent.futures`' kind, Dask's and Ray's among them; its workers must see
        `runs`. Unset: `workers` processes, by default as many as processors and memory allow at
        `gigabytes` each.
    retry: do the failed ones again.

    SIGINT and SIGTERM save what is running and stop; the same call later goes on.

    Raises `UserError` when the results file cannot be read or written.
    """
    before = read_results(results)
    done = {id for id, line in before.items() if line["status"] == "done"}
    failed = set() if retry else {id for id, line in before.items() if line["status"] == "failed"}
    planned = {t.id for t in trials}
    done, failed = done & planned, failed & planned
    todo = [t for t in trials if t.id not in done | failed]
    say(f"{len(done)}/{len(trials)} done" + (f", {len(failed)} failed" if failed else ""))

    def took(trial: Trial, line: Mapping[str, Any]) -> None:
        append_result(results, line)
        (done if line["status"] == "done" else failed).add(trial.id)
        say(f"{len(done)}/{len(trials)} done: {describe(line)}")

    if executor is not None:
        stopped = _feed(executor, todo, runs, took)
    else:
        count = workers or affordable(gigabytes)
        stopped = _feed_processes(min(count, max(len(todo), 1)), todo, runs, took)
    return Progress(len(done), len(failed), len(trials), stopped)


def describe(line: Mapping[str, Any]) -> str:
    """Say a line of results in a few words.

    >>> describe({"change": "d_k", "seed": 1, "status": "failed", "error": "out of\\nmemory"})
    'd_k, seed 1: failed: out of'
    """
    name = f"{line['change']}, seed {line['seed']}"
    if line["status"] != "done":
        return f"{name}: {line['status']}: {str(line.get('error', '')).splitlines()[0]}"
    numbers = ", ".join(f"{k} {v:.4g}" for k, v in line["metrics"].items())
    return f"{name}: {numbers} ({line['minutes']:.1f} minutes)"


def affordable(gigabytes: float) -> int:
    """Return how many runs of this size this machine has processors and free memory for."""
    free = _free_memory()
    by_memory = int(free / (gigabytes * 1e9)) if free is not None else 1
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(count or 1, by_memory))


def _free_memory() -> float | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: how much is free is not known
    return None


# executors ----------------------------------------------------------------------------------------


def _feed(executor: Executor, todo: Sequence[Trial], runs: Path, took: Took) -> bool:
    """Give an executor every trial and take the lines; return whether a signal stopped one."""
    futures = {executor.submit(run_trial, trial, runs / trial.id): trial for trial in todo}
    stopped = False
    try:
        for future in as_completed(futures):
            try:
                line = future.result()
            except Exception as error:  # the worker is gone, and the engine gave the run up
                line = _lost(futures[future], error)
            if line["status"] == "interrupted":
                stopped = True
            else:
                took(futures[future], line)
    finally:
        for future in futures:
            future.cancel()
    return stopped


def _feed_processes(workers: int, todo: Sequence[Trial], runs: Path, took: Took) -> bool:
    """Run trials in processes; one that dies takes its pool along, and a new pool goes on."""
    left = list(todo)
    attempts = Counter[str]()
    with _stopping() as stop:
        while left and not stop.is_set():
            with _processes(workers) as pool:
                lost = _feed_pool(pool, workers, left, runs, took, stop)
            for trial, error in lost:  # whichever of them it was, all count one attempt
                attempts[trial.id] += 1
                if attempts[trial.id] == ATTEMPTS:
                    took(trial, _lost(trial, error))
                    left.remove(trial)
    return stop.is_set()


def _feed_pool(
    pool: ProcessPoolExecutor,
    workers: int,
    left: list[Trial],
    runs: Path,
    took: Took,
    stop: threading.Event,
) -> list[tuple[Trial, Exception]]:
    """Run what is `left`, taking out what ends; return what was under way when the pool broke."""
    waiting = list(left)
    running: dict[Future[dict[str, Any]], Trial] = {}
    lost: list[tuple[Trial, Exception]] = []
    told = False
    while (waiting and not stop.is_set() and not lost) or running:
        while waiting and len(running) < workers and not stop.is_set() and not lost:
            trial = waiting.pop(0)
            try:
                running[pool.submit(_run_child, trial, runs / trial.id)] = trial
            except BrokenProcessPool as error:
                lost.append((trial, error))
        if stop.is_set() and not told:
            told = True  # once only: a second signal would end them without saving
            for process in list((pool._processes or {}).values()):
                process.terminate()
        for future in wait(running, timeout=0.2, return_when=FIRST_COMPLETED).done:
            trial = running.pop(future)
            try:
                line = future.result()
            except BrokenProcessPool as error:
                lost.append((trial, error))
                continue
            if line["status"] != "interrupted":
                took(trial, line)
                left.remove(trial)
    return lost


def _lost(trial: Trial, error: Exception) -> dict[str, Any]:
    said = f"its process ended, killed or out of memory ({type(error).__name__}: {error})"
    return failure(trial, said, 0.0)


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of fresh processes with one thread each, for BLAS reads these when it loads."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_watch_parent
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


_parent = 0


def _watch_parent() -> None:
    """In a worker: save and end when the parent is gone, even by kill -9."""
    global _parent
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches the parent alone, which then asks us, once
    _parent = os.getppid()

    def watch() -> None:
        while os.getppid() == _parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_child(trial: Trial, folder: Path) -> dict[str, Any]:
    """Do a run in a worker, which then has nobody to tell if the parent is gone."""
    line = run_trial(trial, folder)
    if os.getppid() != _parent:
        os._exit(1)
    return line


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, where Python allows handlers."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

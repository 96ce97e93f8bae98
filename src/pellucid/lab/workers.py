"""Who does the runs: processes of this machine, or any executor of `concurrent.futures`' kind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pellucid.lab.results import Line
from pellucid.lab.study import Trial
from pellucid.lab.trial import run_trial

Ended = tuple[Trial, Line | Exception]
"""A run that ended: its line, or what befell its worker."""
PATIENCE = 60.0  # seconds in which a process without a parent finishes its step and saves
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PELLUCID_THREADS")


class Workers(Protocol):
    """Do runs, several at a time."""

    at_once: int
    """How many they may be given."""
    attempts: int
    """How often a run may lose its worker before it counts as failed."""

    def __len__(self) -> int:
        """Return how many runs they have."""

    def start(self, trial: Trial, folder: Path) -> None:
        """Take on one run more."""

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield the runs that ended; wait for one as long as this."""

    def stop(self) -> str:
        """Ask all runs to save and end; return in words what is to be expected."""

    def leave(self) -> bool:
        """Let go of all runs, which end by themselves; False where they cannot do without us."""


class LostError(Exception):
    """A process ended without a word."""


class Processes:
    """Processes of this machine with one thread each, a fresh one for every run.

    So a process that dies takes down one run, and it is known which.
    """

    attempts = 3

    def __init__(self, count: int) -> None:
        self.at_once = count
        self._running: dict[Connection, tuple[Trial, SpawnProcess]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, trial: Trial, folder: Path) -> None:
        """Begin a run in a process of its own."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_do, args=(there, trial, folder))
        with _one_thread():
            process.start()
        there.close()
        self._running[here] = trial, process

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield the runs whose process sent a line, or ended."""
        for here in wait_for_any(list(self._running), seconds):
            assert isinstance(here, Connection)
            trial, process = self._running.pop(here)
            line: Line | None = None
            with suppress(EOFError, OSError):
                line = here.recv()
            process.join()
            here.close()
            yield trial, LostError(_fate(process.exitcode)) if line is None else line

    def stop(self) -> str:
        """Send every process a SIGTERM: it finishes its step and saves."""
        for _, process in self._running.values():
            process.terminate()
        return f"stopping: the runs under way ({len(self)}) finish their step and save"

    def leave(self) -> bool:
        """Return False: a process that is still saving is waited for."""
        return False


class Elsewhere:
    """An executor's workers, which know us only by the files that they see.

    Python's executors cannot end what is running, so a run looks for a file after each checkpoint.
    """

    at_once, attempts = sys.maxsize, 1  # it has its own queue, and itself tries again

    def __init__(self, executor: Executor, runs: Path) -> None:
        self._executor, self._stop = executor, runs / f".stop-{uuid4().hex[:12]}"
        self._running: dict[Future[dict[str, Any]], Trial] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, trial: Trial, folder: Path) -> None:
        """Submit a run."""
        self._running[self._executor.submit(run_trial, trial, folder, self._stop)] = trial

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield the runs whose future is done."""
        for future in wait(self._running, seconds, FIRST_COMPLETED).done:
            trial = self._running.pop(future)
            try:
                yield trial, future.result()
            except Exception as error:  # the worker is gone, and the engine gave the run up
                yield trial, error
        if not self._running and self._stop.exists():
            self._stop.unlink()

    def stop(self) -> str:
        """Put the file there that runs look for."""
        again = "interrupt again to leave them to it; the same command takes what they have done"
        try:
            self._stop.parent.mkdir(parents=True, exist_ok=True)
            self._stop.touch()
        except OSError as error:
            return f"cannot stop the executor's runs ({error}): they go on to their end; {again}"
        return f"stopping: the executor's runs end at their next checkpoint; {again}"

    def leave(self) -> bool:
        """Take back what has not begun; the rest sees the file, or comes to its end."""
        for future in self._running:
            future.cancel()
        return True


def _fate(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set what a process reads when it loads BLAS."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _do(there: Connection, trial: Trial, folder: Path) -> None:
    """Do a run in a process of its own, which saves and ends when the parent does, however."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches the parent alone, which then asks us, once
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    line = run_trial(trial, folder)
    if not parent.is_alive():
        os._exit(1)  # nobody to tell
    there.send(line)

"""The models' threads: compute the jobs of all models, and notify the event loop.

There is one thread per processor; each runs at most one batch of every model (`batcher`). One more
thread runs calls: models that do not generate text, and log p of tokens for OpenAI's `logprobs`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from pellucid.apps.serve.batcher import SPLIT, Batcher, Job
from pellucid.kernels.backend import threads

T = TypeVar("T")


class BusyError(Exception):
    """The queue is full, the server is stopping, or the client has a record being made."""


class Worker:
    """The threads of all models.

    `start` them, and `stop` them when nothing more is submitted.
    """

    def __init__(self, most_waiting: int = 256) -> None:
        self.most_waiting = most_waiting
        self.tokens = 0
        """Number of tokens generated since the start."""
        self._condition = threading.Condition()
        self._calls = 0
        self._pool = ThreadPoolExecutor(1, "pellucid-call")
        self._stopping = False
        self._changed: deque[asyncio.Event] = deque()
        self._active: list[list[Batcher]] = [[] for _ in range(threads.available())]
        """For each thread, the batchers that have jobs."""
        self._threads = [
            threading.Thread(target=self._run, args=(mine,), name=f"pellucid-{i}", daemon=True)
            for i, mine in enumerate(self._active)
        ]

    @property
    def waiting(self) -> int:
        """Number of jobs that have not begun, and of calls that have not returned."""
        return sum(len(batcher.waiting) for batcher in chain(*self._active)) + self._calls

    @property
    def running(self) -> int:
        """The most rows that the running jobs of all models can take."""
        return sum(batcher.running for batcher in chain(*self._active))

    def start(self) -> None:
        """Start the threads; to be called on the event loop that submits jobs."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish all submitted jobs, and end the threads."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()
        self._pool.shutdown()

    def submit(self, batchers: Sequence[Batcher], job: Job, changed: asyncio.Event) -> None:
        """Submit a job, and set its `notify`; to be called on the event loop.

        batchers: those of the job's model; the job runs in one of them. changed: set when the
        answer has ended, and with the job's `each` also when it has grown; several jobs may share
        it. Raises `BusyError` if the queue is full or the threads are stopping.
        """
        job.notify = lambda _: self._changed.append(changed)
        with self._condition:
            self._enter()
            few = (i for i, batcher in enumerate(batchers) if batcher.load < SPLIT)
            i = next(few, min(range(len(batchers)), key=lambda i: batchers[i].load))
            batchers[i].add(job)
            if batchers[i] not in self._active[i]:
                self._active[i].append(batchers[i])
            self._condition.notify_all()

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function on a separate thread, one call after another; return its result.

        Raises `BusyError` if the queue is full or the server is stopping, and whatever the function
        raises. A call that has not begun is skipped if its caller is gone.
        """
        self._enter()
        self._calls += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(function, *arguments))
        finally:
            self._calls -= 1

    def _enter(self) -> None:
        """Raise `BusyError` if the queue is full or the server is stopping."""
        if self._stopping or self.waiting >= self.most_waiting:
            raise BusyError(f"{self.waiting} texts wait already; try again in a second")

    def _run(self, mine: list[Batcher]) -> None:
        """Run rounds of the batchers in `mine` until the worker stops."""
        while True:
            with self._condition:
                while not mine and not self._stopping:
                    self._condition.wait()
                now = list(mine)
            if not now:
                return
            made = sum(batcher.round() for batcher in now)
            self._wake()
            with self._condition:
                self.tokens += made
                mine[:] = [batcher for batcher in mine if not batcher.idle]

    def _wake(self) -> None:
        """Set the events of all jobs that changed, on the event loop."""
        changed: set[asyncio.Event] = set()
        with suppress(IndexError):  # another thread may take some
            while True:
                changed.add(self._changed.popleft())
        if changed:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_set, changed)


def _set(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()

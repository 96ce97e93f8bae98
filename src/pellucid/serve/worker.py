"""The model's thread: answers the jobs of all models, and wakes the event loop once a round."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from pellucid.generation import SampleConfig, SearchConfig
from pellucid.serve.batcher import Batcher, Job

T = TypeVar("T")


class BusyError(Exception):
    """The queue is full, or the server stops."""


class Ticket:
    """A job as the event loop sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.changed = loop, asyncio.Event()
        self.job: Job

    async def change(self) -> None:
        """Wait until the answer has grown or ended. Raises what the model raised."""
        await self.changed.wait()
        self.changed.clear()
        if self.job.error is not None:
            raise self.job.error

    async def end(self) -> Job:
        """Wait for the whole answer."""
        while not self.job.done:
            await self.change()
        if self.job.error is not None:
            raise self.job.error
        return self.job

    def cancel(self) -> None:
        """Let the job leave the batch before its next token; an ended one does not mind."""
        self.job.cancelled = True


class Worker:
    """One thread for all models; `start` it, and `stop` it once nothing more is submitted."""

    def __init__(self, most_waiting: int = 256) -> None:
        self.most_waiting = most_waiting
        self.waiting = 0
        """Jobs and calls that have not begun."""
        self.running = 0
        """Rows in the batches of all models."""
        self.tokens = 0
        """Tokens generated since the start."""
        self._condition = threading.Condition()
        self._arrived: deque[tuple[Batcher, Job]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._changed: list[Ticket] = []
        self._thread = threading.Thread(target=self._run, name="pellucid-model", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish all that was submitted, and end the thread."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join()

    def submit(
        self,
        batcher: Batcher,
        opening: Sequence[int],
        config: SearchConfig | SampleConfig,
        *,
        number: int = 0,
        client: str = "",
        each: bool = False,
    ) -> Ticket:
        """Queue one input; call it on the event loop. Raises `BusyError` if the queue is full."""
        ticket = Ticket(asyncio.get_running_loop())
        ticket.job = Job(
            opening, config, lambda job: self._changed.append(ticket), number, client, each
        )
        with self._condition:
            self._enter()
            self._arrived.append((batcher, ticket.job))
        return ticket

    async def call(self, function: Callable[[], T]) -> T:
        """Return what a function returns, called between two rounds on the model's thread.

        Raises `BusyError` if the queue is full, and what the function raises. A call that nobody
        waits for any more is left out.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def settle(set_result: Callable[[], None]) -> None:
            def once() -> None:
                if not result.done():
                    set_result()

            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(once)

        def work() -> None:
            if result.cancelled():
                return
            try:
                value = function()
            except Exception as error:
                settle(lambda error=error: result.set_exception(error))  # type: ignore[misc]
            else:
                settle(lambda: result.set_result(value))

        with self._condition:
            self._enter()
            self._calls.append(work)
        return await result

    def _enter(self) -> None:
        if self._stopping or self.waiting >= self.most_waiting:
            raise BusyError(f"{self.waiting} requests wait already; try again in a second")
        self.waiting += 1
        self._condition.notify()

    def _run(self) -> None:
        active: list[Batcher] = []
        while True:
            with self._condition:
                while not (active or self._arrived or self._calls or self._stopping):
                    self._condition.wait()
                arrived = [self._arrived.popleft() for _ in range(len(self._arrived))]
                work = self._calls.popleft() if self._calls else None
            if not (active or arrived or work):
                return
            for batcher, job in arrived:
                batcher.waiting.add(job)
                if batcher not in active:
                    active.append(batcher)
            if work is not None:
                work()
            for batcher in active:
                self.tokens += batcher.round()
            self._wake()
            active = [batcher for batcher in active if not batcher.idle]
            self.running = sum(batcher.running for batcher in active)
            with self._condition:
                still = sum(len(batcher.waiting) for batcher in active)
                self.waiting = still + len(self._arrived) + len(self._calls)

    def _wake(self) -> None:
        changed, self._changed = self._changed, []
        for loop in {ticket.loop for ticket in changed}:
            events = [ticket.changed for ticket in changed if ticket.loop is loop]
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_set, events)


def _set(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        event.set()

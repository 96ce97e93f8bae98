"""Continuous batching: inputs join a running batch between tokens, and leave it when answered.

The rows of a compiled model keep their bits in any batch, so every answer is the one that its
input gets alone. A model without that property answers its inputs side by side, each in a batch of
its own.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pellucid.core.batch import Packed
from pellucid.generation.constraints import constrain
from pellucid.generation.model import Decodes
from pellucid.generation.sampling import SampleConfig, choose, uniform_draws
from pellucid.generation.search import Search, SearchConfig, Searches, extend, ranked
from pellucid.kernels.backend import threads
from pellucid.pipelines.causal_lm import Continuing

Array = np.ndarray

Survivors = list[tuple[int, int]]
"""(row it continues, token) of each hypothesis that goes on."""


SPLIT = 8
"""Rows that a batch has before another is begun next to it, for another processor."""


FEW = 4
"""Waiting jobs are few where those that run are more than so many times as many."""


class Progress(Protocol):
    """How one input's answer grows; `generated` and `finished` are what is known of it so far."""

    generated: list[int]
    finished: bool

    @property
    def rows(self) -> int:
        """The most rows of a batch that it can take."""

    def advance(self, log_p: Array, eos: int) -> Survivors:
        """Choose the next tokens from log p (rows, V); return nothing once it is answered."""


class Sampled:
    """An answer drawn token by token: `generation.sample_stream` for one input."""

    def __init__(self, config: SampleConfig, number: int, limit: int) -> None:
        self.config, self.number, self.limit = config, number, limit
        self.generated: list[int] = []
        self.finished = False
        self.rows = 1

    def advance(self, log_p: Array, eos: int) -> Survivors:
        """Draw the next token."""
        allowed = constrain(log_p[0], self.generated, self.config.constraints, (), eos)
        draws = uniform_draws(self.config.seed, len(self.generated), np.array([self.number]))
        return self.say(choose(allowed, self.config, draws[0]), eos)

    def say(self, token: int, eos: int) -> Survivors:
        """Take a token that was chosen."""
        if token == eos:
            self.finished = True
            return []
        self.generated.append(token)
        return [(0, token)] if len(self.generated) < self.limit else []


class Greedy(Sampled):
    """The likeliest token at every step, ties to the lower: `generation.search` with beam 1."""

    def __init__(self, config: SearchConfig, limit: int) -> None:
        super().__init__(SampleConfig(constraints=config.constraints), 0, limit)
        self.free = not config.constraints.active
        """Whether the next token is the likeliest of all."""

    def advance(self, log_p: Array, eos: int) -> Survivors:
        """Take the likeliest token."""
        allowed = constrain(log_p[0], self.generated, self.config.constraints, (), eos)
        return self.say(int(allowed.argmax()), eos)


class Searched:
    """The best answer of a beam search: `generation.search` for one input."""

    def __init__(self, config: SearchConfig, limit: int) -> None:
        self.config, self.search, self.length = config, Search(limit, ()), 0
        self.generated: list[int] = []
        self.finished = False
        self.rows = config.beam

    def advance(self, log_p: Array, eos: int) -> Survivors:
        """Extend every hypothesis by a token."""
        self.length += 1
        survivors = extend(self.search, log_p, eos, self.config, self.length)
        if not survivors:
            best = ranked(self.search.done)[0]
            self.generated, self.finished = list(best.tokens), best.finished
        return survivors


def progress(config: SearchConfig | SampleConfig, number: int, limit: int) -> Progress:
    """Return how an answer of at most `limit` tokens is made."""
    if isinstance(config, SampleConfig):
        return Sampled(config, number, limit)
    return Greedy(config, limit) if config.beam == 1 else Searched(config, limit)


@dataclass(eq=False)
class Job:
    """One input to be answered."""

    opening: Sequence[int]
    """The tokens that the model reads; there is room for an answer after them."""
    config: SearchConfig | SampleConfig
    notify: Callable[[Job], object]
    """Called by the model's thread after every round in which the answer grew or ended."""
    number: int = 0
    """What sampling is keyed by, with the seed and the step."""
    client: str = ""
    """Whose it is: clients take turns."""
    each: bool = False
    """Whether to notify after each token, not only at the end."""
    cancelled: bool = False
    """Set by any thread; the job leaves the batch before the next token."""
    answer: list[int] = field(default_factory=list)
    """The tokens so far; only ever extended. Of a beam search all come at the end."""
    finished: bool = False
    """Whether the end token was generated."""
    done: bool = False
    error: Exception | None = None


class Waiting:
    """Jobs that wait, in turns: one of each client, then the next of each."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[Job]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def add(self, job: Job) -> None:
        """Put a job behind its client's others."""
        self._clients.setdefault(job.client, deque()).append(job)

    def prefer(self, running: Counter[str]) -> None:
        """Let the clients with the fewest running jobs come first; ties keep their turn."""
        order = sorted(self._clients, key=lambda client: running[client])
        self._clients = OrderedDict((client, self._clients[client]) for client in order)

    def next(self) -> Job | None:
        """Return the job whose turn it is, still waiting."""
        for jobs in self._clients.values():
            return jobs[0]
        return None

    def take(self) -> Job:
        """Remove the job whose turn it is; its client goes to the end of the line."""
        client, jobs = self._clients.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self._clients[client] = jobs
        return job

    def drop_cancelled(self) -> list[Job]:
        """Remove the jobs that nobody waits for any more, and return them."""
        gone = [job for jobs in self._clients.values() for job in jobs if job.cancelled]
        kept = {
            client: deque(job for job in jobs if not job.cancelled)
            for client, jobs in self._clients.items()
        }
        self._clients = OrderedDict((client, jobs) for client, jobs in kept.items() if jobs)
        return gone


@dataclass
class _Group:
    """Jobs in one batch: a state, the next token of every row, and each job's rows in order."""

    state: Any
    tokens: Array
    jobs: list[tuple[Job, Progress, int]]
    """(job, its answer so far, how many rows it has)."""


class Batcher:
    """A model that answers jobs a token a round. For one thread; only `Job.cancelled` is shared."""

    def __init__(self, speaker: Decodes, rows: int = 64, opening_tokens: int = 2048) -> None:
        self.speaker, self.rows, self.opening_tokens = speaker, rows, opening_tokens
        self.waiting = Waiting()
        self.bos: int = speaker.config.bos_token_id
        self.eos: int = speaker.config.eos_token_id
        inner = speaker.model if isinstance(speaker, Continuing) else speaker
        self._joins = isinstance(inner, Searches)  # rows keep their bits in any batch
        self._groups: list[_Group] = []
        self._held = False  # whether jobs waited for a round, though there was room
        self._most_groups = threads.available()  # each is stepped by a thread of its own
        self._pool = ThreadPoolExecutor(self._most_groups, "pellucid-step")

    @property
    def running(self) -> int:
        """How many rows the batch may grow to with the jobs in it."""
        return sum(answer.rows for group in self._groups for _, answer, _ in group.jobs)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._groups and not len(self.waiting)

    def round(self) -> int:
        """Let waiting jobs join and generate one token of every answer; return how many tokens."""
        for job in self.waiting.drop_cancelled():
            _end(job)
        generated = 0
        if self._joins and len(self._groups) > 1:
            generated += sum(self._pool.map(self._step_or_fail, self._groups))
        else:
            generated += sum(map(self._step_or_fail, self._groups))
        self._groups = [group for group in self._groups if group.jobs]
        for jobs in self._admit() if self._turn() else []:
            with _failing(jobs):
                generated += self._begin(jobs)
        return generated

    def _turn(self) -> bool:
        """Whether waiting jobs may begin; a few next to many running ones wait for one round.

        To begin two jobs costs hardly more than to begin one, and the batch stands still meanwhile.
        """
        few = FEW * len(self.waiting) < self.running
        self._held = few and not self._held
        return not self._held

    def _step_or_fail(self, group: _Group) -> int:
        with _failing([job for job, _, _ in group.jobs]):
            return self._step(group)
        group.jobs = []
        return 0

    def _admit(self) -> list[list[Job]]:
        """Take the waiting jobs that there is room for, in the parts that begin together."""
        self.waiting.prefer(Counter(job.client for g in self._groups for job, _, _ in g.jobs))
        rows, tokens = self.running, 0
        taken: list[Job] = []
        while (job := self.waiting.next()) is not None:
            wide = job.config.beam if isinstance(job.config, SearchConfig) else 1
            long = len(job.opening)
            if rows and (rows + wide > self.rows or tokens + long > self.opening_tokens):
                break
            taken.append(self.waiting.take())
            rows, tokens = rows + wide, tokens + long
        if not self._joins:
            return [[job] for job in taken]
        parts = max(1, min(self._most_groups, len(taken) // SPLIT))
        return [taken[part::parts] for part in range(parts)] if taken else []

    def _begin(self, jobs: list[Job]) -> int:
        """Read the inputs, generate the first token of each answer, and join the batch."""
        source = Packed.of([job.opening for job in jobs])
        most = np.minimum(self.speaker.room(source), [job.config.max_length for job in jobs])
        for job, limit in zip(jobs, most, strict=True):
            if limit <= 0:
                _end(job)
        kept = np.flatnonzero(most > 0)
        if not len(kept):
            return 0
        group = _Group(
            self.speaker.start(source.select(kept)),
            np.full(len(kept), self.bos),
            [(jobs[i], progress(jobs[i].config, jobs[i].number, int(most[i])), 1) for i in kept],
        )
        generated = self._step(group)
        running = self._smallest()
        if group.jobs and running is not None:
            running.state = running.state.join(group.state)
            running.tokens = np.concatenate([running.tokens, group.tokens])
            running.jobs += group.jobs
        elif group.jobs:
            self._groups.append(group)
        return generated

    def _smallest(self) -> _Group | None:
        """Return the batch that new jobs join; None: they begin another."""
        smallest = min(self._groups, key=lambda group: len(group.tokens), default=None)
        if smallest is None or not self._joins:
            return None
        spare = len(self._groups) < self._most_groups
        return None if spare and len(smallest.tokens) >= SPLIT else smallest

    def _step(self, group: _Group) -> int:
        """Generate one token of every answer in a group; answered and cancelled jobs leave it."""
        self._leave(group)
        if not group.jobs:
            return 0
        log_p, state = self.speaker.step(group.state, group.tokens)
        likeliest = log_p.argmax(axis=1).tolist()  # of all rows at once
        going: list[tuple[Job, Progress, int]] = []
        rows: list[int] = []
        tokens: list[int] = []
        generated = first = 0
        for job, answer, count in group.jobs:
            if isinstance(answer, Greedy) and answer.free:
                survivors = answer.say(likeliest[first], self.eos)
            else:
                survivors = answer.advance(log_p[first : first + count], self.eos)
            rows += [first + parent for parent, _ in survivors]
            tokens += [token for _, token in survivors]
            first, generated = first + count, generated + max(1, len(survivors))
            job.answer += answer.generated[len(job.answer) :]
            if survivors:
                going.append((job, answer, len(survivors)))
                if job.each and job.answer:
                    job.notify(job)
            else:
                job.finished = answer.finished
                _end(job)
        if going and rows != list(range(len(log_p))):
            state = state.select(np.array(rows))
        group.state, group.tokens, group.jobs = state, np.array(tokens, np.int64), going
        return generated

    def _leave(self, group: _Group) -> None:
        """Take the rows of cancelled jobs out of a group."""
        if not any(job.cancelled for job, _, _ in group.jobs):
            return
        rows: list[int] = []
        kept: list[tuple[Job, Progress, int]] = []
        first = 0
        for job, answer, count in group.jobs:
            if job.cancelled:
                _end(job)
            else:
                rows += range(first, first + count)
                kept.append((job, answer, count))
            first += count
        group.jobs = kept
        if kept:
            group.state, group.tokens = group.state.select(np.array(rows)), group.tokens[rows]


@contextmanager
def _failing(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """End the unfinished of these jobs with the exception of the block, and note them."""
    failed: list[Job] = []
    try:
        yield failed
    except Exception as error:
        failed += [job for job in jobs if not job.done]
        for job in failed:
            job.error = error
            _end(job)


def _end(job: Job) -> None:
    job.done = True
    job.notify(job)

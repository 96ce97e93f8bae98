"""Continuous batching: inputs join a running batch between tokens, and leave it.

The rows of a compiled model have the same bits in any batch, so that every answer is the same as
for its input alone. A model that is not compiled runs each sampled or greedy answer in a separate
batch, and beam searches one after another.

A compiled model has a batch for each processor, each on a thread of its own (`worker`); another has
one. A compiled model's answers of one kind of search are computed by the engine
(`compiled.answering`), which returns to Python after `ROUNDS` tokens at most, and earlier when
answers have ended or a job has come. Sampled answers, and greedy ones of a model that is not
compiled, are computed here token by token.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from pellucid.apps.serve.limits import ROWS
from pellucid.compiled.answering import Answering
from pellucid.core.batch import Packed
from pellucid.generation.sampling import SampleConfig, choose, uniform_draws
from pellucid.generation.search import Searches, ranked, search_once
from pellucid.kernels.backend import threads
from pellucid.models.decoding import (
    Array,
    Decodes,
    Hypothesis,
    SearchConfig,
    constrain,
    limits_of,
)
from pellucid.models.prefix import Prefix
from pellucid.tasks.causal_lm import without_last

SPLIT = 8
"""Number of rows from which a batch shares its work with another one."""

OPENING_TOKENS = 2048
"""The most input tokens that join a batch together; a longer input joins only an empty batch."""

ROUNDS = 4
"""The most tokens that are generated before a batch checks for new and finished rows."""

FEW = 4
"""A batch only stops to check for jobs that wait or have ended if its running rows are at most this
many times their number, because a check takes about the same time whether it finds any."""

KINDS = 8
"""The most kinds of search that keep their memory; with more of them, the idle ones lose theirs."""


@dataclass(eq=False)
class Job:
    """One input to answer, and its answer so far."""

    opening: Sequence[int]
    """Token ids that the model reads; an answer must fit behind them."""
    config: SearchConfig | SampleConfig
    """Settings of search or sampling."""
    notify: Callable[[Job], object] = lambda job: None
    """Called by the model's thread when the job has ended; with `each` also after every round in
    which the answer grew."""
    number: int = 0
    """Key of the random draws, with the seed and the step."""
    client: str = ""
    """Name of the client that sent it; clients take turns."""
    each: bool = False
    """Whether to notify after each token, and not only at the end; beam search: only at the end."""
    beginning: Prefix | None = None
    """Constraint on the beginning of the answer."""
    cancelled: bool = False
    """Set by `cancel`."""
    answer: list[int] = field(default_factory=list)
    """Token ids so far, which are only extended; a beam search yields all of them at its end."""
    limit: int = 0
    """The most tokens of the answer, known once it has begun."""
    finished: bool = False
    """Whether the end token was generated."""
    done: bool = False
    error: Exception | None = None
    batcher: Batcher | None = None
    """The batcher that it was added to."""

    @property
    def rows(self) -> int:
        """The most rows of a batch that the job can take."""
        return self.config.beam if isinstance(self.config, SearchConfig) else 1

    def grow(self, answer: Sequence[int]) -> None:
        """Extend the answer to these tokens, which begin with those it has."""
        self.answer += answer[len(self.answer) :]

    def take(self, best: Hypothesis) -> None:
        """Take the best answer of a search, and end."""
        self.grow(best.tokens)
        self.finished = best.finished
        self.end()

    def cancel(self) -> None:
        """Ask the job to end early, unless it has ended; called from any thread.

        It ends within a few tokens, at most `ROUNDS` if many others run. A beam search of a model
        that is not compiled is computed to its end once it has begun.
        """
        self.cancelled = True
        if self.batcher is not None and not self.done:
            self.batcher.interrupt(1)

    def end(self) -> None:
        """Mark the job as done, and notify."""
        self.done = True
        self.notify(self)


class Waiting:
    """The queue of jobs: the next is that of the client with the fewest running jobs."""

    def __init__(self) -> None:
        self.taken = Counter[str]()
        """Number of running jobs of each client; `take` increases it."""
        self._jobs: list[Job] = []

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def rows(self) -> int:
        """The most rows that the waiting jobs can take; called from any thread."""
        return sum(job.rows for job in list(self._jobs))

    def add(self, job: Job) -> None:
        """Add a job to the end of the queue."""
        self._jobs.append(job)

    def next(self) -> Job | None:
        """Return the next job without removing it, the oldest among equal clients, or None."""
        return min(self._jobs, key=lambda job: self.taken[job.client], default=None)

    def take(self, job: Job) -> None:
        """Remove a job, and count it as a running job of its client."""
        self._jobs.remove(job)
        self.taken[job.client] += 1

    def drop_cancelled(self) -> list[Job]:
        """Remove and return the cancelled jobs."""
        gone = [job for job in self._jobs if job.cancelled]
        self._jobs = [job for job in self._jobs if not job.cancelled]
        return gone


@dataclass
class _Group:
    """Jobs that are sampled in one batch: the model's state, and each job's last token."""

    state: Any
    tokens: Array
    jobs: list[Job]


@dataclass
class _Search:
    """Jobs with the same kind of search, by their place in `answering`."""

    answering: Answering
    jobs: dict[int, Job] = field(default_factory=dict)


class Batcher:
    """One batch of a model; a single thread runs it.

    rows: the most rows of the batch; a job that needs more runs alone. continues: whether the model
    continues its input (a decoder alone), and so reads the input from its last token on.
    """

    def __init__(
        self,
        decoder: Decodes,
        rows: int = ROWS,
        continues: bool = False,
    ) -> None:
        self.decoder: Any = decoder
        self.rows = rows
        self.waiting = Waiting()
        self.running = 0
        """Number of rows that the running jobs may need."""
        self.groups: list[_Group] = []
        self.searches: dict[SearchConfig, _Search] = {}
        self.bos: int = decoder.config.bos_token_id
        self.eos: int = decoder.config.eos_token_id
        self._continues = continues  # what a job reads, from its last token on
        self._joins = isinstance(decoder, Searches)  # rows keep their bits in any batch
        self._stop = np.zeros(1, np.int64)  # set by any thread: return after this token
        self._lock = threading.Lock()  # of what waits

    @property
    def load(self) -> int:
        """Number of rows that all jobs can take, running or waiting."""
        return self.running + self.waiting.rows

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.load

    def add(self, job: Job) -> None:
        """Queue a job for the next round; called from any thread."""
        job.batcher = self
        with self._lock:
            self.waiting.add(job)
        self.interrupt(len(self.waiting))

    def interrupt(self, jobs: int) -> None:
        """Stop after the present token if at most `FEW` times `jobs` rows are running.

        jobs: the number of jobs that wait or were cancelled. Called from any thread.
        """
        if FEW * jobs >= self.running:
            self._stop[0] = 1

    def round(self) -> int:
        """Let waiting jobs join, and generate a few tokens; return their number.

        A sampled answer gets one token, a compiled search at most `ROUNDS` for each hypothesis. A
        beam search of a model that is not compiled is computed to its end. The tokens of all
        hypotheses count.
        """
        self._stop[0] = 0
        with self._lock:
            gone, taken = self.waiting.drop_cancelled(), self._admit()
        for job in gone:
            job.end()
        generated = 0
        for group in self.groups:
            with _failing(group.jobs) as failed:
                generated += self._draw(group)
            if failed:
                group.jobs = []
        self.groups = [group for group in self.groups if group.jobs]
        for kind, jobs in taken.items():
            with _failing(jobs):
                generated += self._begin(kind, jobs)
        if len(self.searches) > KINDS:  # a request may have constraints of its own
            self.searches = {kind: one for kind, one in self.searches.items() if one.jobs}
        for kind, search in list(self.searches.items()):
            with _failing(list(search.jobs.values())) as failed:
                generated += self._search(search)
            if failed:
                del self.searches[kind]
        self.running = sum(job.rows for job in self._jobs())
        return generated

    def _jobs(self) -> list[Job]:
        """Return the running jobs."""
        searched = chain(*(search.jobs.values() for search in self.searches.values()))
        return [*searched, *(job for group in self.groups for job in group.jobs)]

    def _admit(self) -> dict[Any, list[Job]]:
        """Take waiting jobs while there is room; return them grouped by how they run."""
        if len(self.waiting):
            self.waiting.taken = Counter(job.client for job in self._jobs())
        taken: dict[Any, list[Job]] = {}
        tokens = 0
        while (job := self.waiting.next()) is not None:
            config, long, rows = job.config, len(job.opening), self.running + job.rows
            if self.running and (rows > self.rows or tokens + long > OPENING_TOKENS):
                break
            self.running = rows
            self.waiting.take(job)
            kind: Any = job
            if self._joins:
                search = isinstance(config, SearchConfig)
                kind = replace(config, max_length=1) if search else None
            taken.setdefault(kind, []).append(job)
            tokens += long
        return taken

    def _begin(self, kind: Any, jobs: list[Job]) -> int:
        """Read the inputs of jobs; let them join a search, or sample their first token.

        A beam search of a model that is not compiled is computed completely here.
        """
        source = Packed.of([job.opening for job in jobs])
        first = np.full(len(jobs), self.bos)
        if self._continues:
            source, first = without_last(source)
        most = limits_of(
            self.decoder, source, [job.config.max_length for job in jobs],
            [job.beginning for job in jobs],
        )  # fmt: skip
        for job, limit in zip(jobs, most.tolist(), strict=True):
            job.limit = limit
            if limit <= 0:
                job.end()
        kept = np.flatnonzero(most > 0)
        if not len(kept):
            return 0
        source, most, first = source.select(kept), most[kept], first[kept]
        jobs = [jobs[i] for i in kept]
        begun = [job.beginning for job in jobs]
        if isinstance(kind, SearchConfig):
            if kind not in self.searches:
                self.searches[kind] = _Search(Answering(self.decoder, kind, stop=self._stop))
            search = self.searches[kind]
            places = search.answering.join(source, most, first, begun)
            search.jobs.update(zip(places, jobs, strict=True))
            return 0
        config = jobs[0].config
        if isinstance(config, SearchConfig) and config.beam > 1:
            best = ranked(search_once(self.decoder, source, config, begun, first)[0].done)[0]
            jobs[0].take(best)
            return config.beam * len(best.tokens)
        group = _Group(self.decoder.start(source), first, jobs)
        generated = self._draw(group)
        if group.jobs and self.groups and self._joins:
            running = self.groups[0]
            running.state = running.state.join(group.state)
            running.tokens = np.concatenate([running.tokens, group.tokens])
            running.jobs += group.jobs
        elif group.jobs:
            self.groups.append(group)
        return generated

    def _search(self, search: _Search) -> int:
        """Generate at most `ROUNDS` tokens of each hypothesis in a search, or fewer.

        One token if a greedy job wants to be notified of each; fewer than `ROUNDS` also if answers
        have ended or a job has come. Returns the number of tokens of all hypotheses.
        """
        answering, jobs = search.answering, search.jobs
        gone = [place for place, job in jobs.items() if job.cancelled]
        if gone:
            answering.drop(gone)
            for place in gone:
                jobs.pop(place).end()
        if not jobs:
            return 0
        greedy = answering.config.beam == 1
        each = [(place, job) for place, job in jobs.items() if job.each] if greedy else []
        before = answering.steps
        answering.run(1 if each else ROUNDS, ends=max(1, len(jobs) // FEW))
        for place in answering.ended():
            jobs.pop(place).take(answering.take(place)[0])
        if each:
            generated = answering.generated()
            for place, job in each:
                if not job.done and len(generated[place]) > len(job.answer):
                    job.grow(generated[place])
                    job.notify(job)
        return answering.steps - before

    def _draw(self, group: _Group) -> int:
        """Draw one token for each job of a group that is not cancelled; return their number before.

        Jobs that end or are cancelled leave the group.
        """
        log_p, state = self.decoder.step(group.state, group.tokens)
        going: list[int] = []
        for row, job in enumerate(group.jobs):
            if job.cancelled or not self._draw_next(job, log_p[row]):
                job.end()
                continue
            going.append(row)
            if job.each:
                job.notify(job)
        if 0 < len(going) < len(log_p):
            state = state.select(np.array(going))
        jobs = [group.jobs[row] for row in going]
        tokens = np.array([job.answer[-1] for job in jobs], np.int64)
        group.state, group.tokens, group.jobs = state, tokens, jobs
        return len(log_p)

    def _draw_next(self, job: Job, log_p: Array) -> bool:
        """Draw a job's next token from log p (V,), as `generation.sample_stream` does.

        A greedy job takes the likeliest. Returns whether another token follows.
        """
        config = job.config
        if isinstance(config, SearchConfig):
            config = SampleConfig(top_k=1, constraints=config.constraints)
        left = job.limit - len(job.answer)
        allowed = constrain(log_p, job.answer, config.constraints, job.beginning, self.eos, left)
        draws = uniform_draws(config.seed, len(job.answer), np.array([job.number]))
        token = choose(allowed, config, draws[0])
        job.finished = token == self.eos
        if not job.finished:
            job.answer.append(token)
        return not job.finished and len(job.answer) < job.limit


@contextmanager
def _failing(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """End the unfinished of these jobs if the block raises; yield a list of them."""
    failed: list[Job] = []
    try:
        yield failed
    except Exception as error:
        failed += [job for job in jobs if not job.done]
        for job in failed:
            job.error = error
            job.end()


def batchers_for(decoder: Decodes, rows: int = ROWS, continues: bool = False) -> list[Batcher]:
    """Make a batcher per processor, or a single one for a model that is not compiled.

    Together they hold at least `rows` rows. continues: as for `Batcher`.
    """
    count = threads.available() if isinstance(decoder, Searches) else 1
    return [Batcher(decoder, -(-rows // count), continues=continues) for _ in range(count)]

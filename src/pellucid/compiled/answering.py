"""A running search over several inputs; inputs can be added and removed between two tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pellucid.compiled.decode import ENDS, READ, ROUNDS, ROWS_LEFT, STEPS, SWAPPED, USED
from pellucid.compiled.records import Answers, Beam, Hypotheses, Inputs, Memory, Source
from pellucid.core.batch import Packed
from pellucid.models.decoding import Hypothesis, SearchConfig, penalty
from pellucid.models.prefix import FREE, Prefix, joined

if TYPE_CHECKING:
    from pellucid.compiled.engine import Engine

Array = np.ndarray
Record = TypeVar("Record", Answers, Hypotheses, Inputs)

FOREVER = 2**62
_NONE = np.zeros(0, np.int64)
_NOTHING = Source(_NONE, _NONE, np.zeros(1, np.int64))


class Answering:
    """A running search (greedy or beam) over several inputs, on one thread.

    `join` adds inputs and gives each a place, an index; `run` generates tokens; `ended` lists the
    places that are finished; `take` returns the answers to an input and frees the place. A server
    adds requests this way while others are being answered. inputs: for how many to allocate memory
    at first. stop: the array to use as `stop`. Raises `UsageError` for a forced token outside the
    vocabulary.
    """

    def __init__(
        self, engine: Engine, config: SearchConfig, inputs: int = 1, stop: Array | None = None
    ) -> None:
        self.engine, self.config = engine, config
        self.keys, self.memory = engine.cache(), engine.cache(engine.packed.memory)
        self.rows = 0
        """The number of unfinished hypotheses of all inputs."""
        self.steps = 0
        """The number of tokens fed so far, summed over hypotheses."""
        self.stop = np.zeros(1, np.int64) if stop is None else stop
        """Another thread may set it to 1, which ends `run` after the current token."""
        self._places: set[int] = set()
        self._free: list[int] = []
        self._source, self._read = _NOTHING, 0  # sources to encode next, and their first memory row
        size, n = config.beam, _NONE
        self._inputs = Inputs(np.empty((0, 2), np.int64), n, n, n, n)
        self._prefixes: dict[int, Prefix] = {}
        self._beginnings = joined([])[0]
        self._now = Hypotheses(
            n, np.empty(0), n, n, np.empty((0, 0), np.int64), np.empty((0, 0), np.int32)
        )
        self._next = self._now
        self._answers = Answers(
            np.empty((0, size, 0), np.int32), np.zeros((0, size, 2), np.int64),
            np.empty((0, size)), np.empty((0, size)), n,
        )  # fmt: skip
        self._beam = self._rules(0)
        self._grow(inputs, 0, 0)

    def join(
        self,
        source: Packed,
        limits: Array,
        first: Array,
        prefixes: Sequence[Prefix | None] = (),
    ) -> list[int]:
        """Add inputs; return their places, in the same order.

        A decoder-only model reads its inputs here, an encoder in the next `run`.
        limits: (N,) the maximum numbers of tokens of the answers. first: (N,) the tokens to feed
        before the answers. prefixes: a required beginning for each input, or None; empty: none.
        Raises `IndexError` for an input with a token outside the vocabulary, `ValueError` for one
        longer than the model's positions.
        """
        read, spans = self.engine.sources_of(source)
        prompts, names = self.engine.prompts_of(source, self.keys)
        n, wide, longest = len(source), names.shape[1], int(limits.max(initial=0))
        while len(self._free) < n:
            self._grow(2 * len(self._inputs.limits), 0, 0)
        self._grow(0, wide + longest + 1, longest + 1)
        if longest + 3 > len(self._beam.penalties):
            self._beam = self._rules(longest)
        spans[:, 0] += self._await_memory(read)
        places = [self._free.pop() for _ in range(n)]
        self._places.update(places)
        inputs, now, answers = self._inputs, self._now, self._answers
        inputs.sources[places], inputs.prompts[places] = spans, prompts
        inputs.limits[places], inputs.lengths[places] = limits, 0
        for place in places:
            self._prefixes.pop(place, None)
        inputs.beginnings[places] = FREE
        begun = {p: own for p, own in zip(places, prefixes, strict=False) if own is not None}
        if begun:
            self._begin(begun)
        answers.scores[places], answers.ends[places], answers.finished[places] = -np.inf, 0, 0
        rows = slice(self.rows, self.rows + n)
        now.owners[rows], now.totals[rows], now.tokens[rows] = places, 0.0, first
        now.names[rows, :wide] = names
        self.rows += n
        return places

    def _begin(self, prefixes: dict[int, Prefix]) -> None:
        """Add the prefixes of new inputs, by place, and remove those of inputs that are gone."""
        kept = {place: own for place, own in self._prefixes.items() if place in self._places}
        self._prefixes = kept | prefixes
        self._beginnings, starts = joined(list(self._prefixes.values()))
        self._inputs.beginnings[list(self._prefixes)] = starts

    def run(self, rounds: int = FOREVER, ends: int = FOREVER) -> None:
        """Generate at most `rounds` tokens per hypothesis.

        Stops early when all inputs are finished, when `ends` inputs have finished, or when `stop`
        is set. If `ends` is given it may also stop before, each time that the key/value cache is
        full; call it again then.
        """
        progress = np.zeros(7, np.int64)
        progress[ROWS_LEFT], progress[ROUNDS], progress[ENDS] = self.rows, rounds, ends
        progress[READ] = self._read
        while progress[ROWS_LEFT] and progress[ROUNDS]:
            self._make_room(int(progress[ROWS_LEFT]))
            progress[SWAPPED], before = 0, progress[ROUNDS]
            self.engine.kernels.search(
                self.engine.packed, self._source, Memory(self.memory.rows, self.memory.capacity),
                self.keys.here(), self._inputs, self._beginnings, self._beam, self._now,
                self._next, self._answers, progress, self.stop,
            )  # fmt: skip
            self._source, self._read = _NOTHING, self.memory.used
            self.keys.used = int(progress[USED])
            if progress[SWAPPED]:
                self._now, self._next = self._next, self._now
            self.rows = int(progress[ROWS_LEFT])
            full = self.keys.used + self.rows > self.keys.capacity
            if not full or (ends < FOREVER and progress[ROUNDS] < before):
                break
        self.steps += int(progress[STEPS])

    def ended(self) -> list[int]:
        """Return the places of finished inputs that were not taken yet, in ascending order."""
        return sorted(self._places - set(self._now.owners[: self.rows].tolist()))

    def take(self, place: int) -> list[Hypothesis]:
        """Return the answers to an input, at most `config.best`, best first; free its place."""
        self._places.discard(place)
        self._free.append(place)
        answers = self._answers
        return [
            Hypothesis(
                tuple(answers.tokens[place, rank, :length].tolist()),
                float(answers.log_p[place, rank]),
                float(answers.scores[place, rank]),
                bool(finished),
            )
            for rank, (length, finished) in enumerate(answers.ends[place].tolist())
            if rank < self.config.best and answers.scores[place, rank] > -np.inf
        ]

    def generated(self) -> dict[int, list[int]]:
        """Return the tokens of the likeliest hypothesis of every unfinished input, by place."""
        owners = self._now.owners[: self.rows].tolist()
        lengths, generated = self._inputs.lengths, self._now.generated
        rows = {owner: row for row, owner in reversed([*enumerate(owners)])}
        return {owner: generated[row, : lengths[owner]].tolist() for owner, row in rows.items()}

    def drop(self, places: Collection[int]) -> None:
        """Abandon the inputs at these places, and free the places."""
        kept = np.flatnonzero(~np.isin(self._now.owners[: self.rows], list(places)))
        for array in self._now:
            array[: len(kept)] = array[kept]
        self.rows = len(kept)
        self._places.difference_update(places)
        self._free += places

    def _rules(self, longest: int) -> Beam:
        """Build the kernel's record of the search settings.

        It has length penalties for answers of up to twice the length `longest`.
        """
        config, constraints = self.config, self.config.constraints
        forced = constraints.forced(self.engine.packed.output.vocabulary)
        return Beam(
            config.beam, config.best, self.engine.config.eos_token_id,
            np.array([penalty(length, config.length_penalty) for length in range(2 * longest + 3)]),
            config.length_penalty > 0,
            np.float32(min(constraints.repetition_penalty, float(np.finfo(np.float32).max))),
            min(constraints.no_repeat_ngram, 2**62), min(constraints.min_length, 2**62),
            -1 if forced is None else forced,
        )  # fmt: skip

    def _grow(self, inputs: int, names: int, generated: int) -> None:
        """Enlarge the arrays for at least so many inputs, and keys and tokens of a hypothesis."""
        before, size = self._answers.scores.shape
        n = max(inputs, before)
        old = self._now.names.shape[1], self._now.generated.shape[1]
        wide, long = max(names, old[0]), max(generated, old[1])
        if (n, wide, long) == (before, *old):
            return
        most = n * size
        self._free += range(before, n)
        self._inputs = _larger(self._inputs, [(n, 2), *[(n,)] * 4])
        shapes: list[tuple[int, ...]] = [(most,)] * 4 + [(most, wide), (most, long)]
        self._now, self._next = _larger(self._now, shapes), _larger(self._next, shapes)
        self._answers = _larger(
            self._answers, [(n, size, long), (n, size, 2), (n, size), (n, size), (n,)]
        )

    def _make_room(self, rows: int) -> None:
        """Make room in the key/value cache for a further token of each hypothesis.

        Drops keys that no hypothesis uses if that frees half of the cache, else enlarges it.
        """
        if self.keys.used + rows <= self.keys.capacity:
            return
        now, owners = self._now, self._now.owners[:rows]
        counts = self._inputs.prompts[owners] + self._inputs.lengths[owners]
        visible = np.arange(now.names.shape[1]) < counts[:, None]
        kept, places = np.unique(now.names[:rows][visible], return_inverse=True)
        if 2 * (len(kept) + rows) <= self.keys.capacity:
            now.names[:rows][visible] = places
            self.keys.keep(kept)
        else:
            self.keys.reserve(max(2 * self.keys.capacity, self.keys.used + 16 * rows))

    def _await_memory(self, new: Source) -> int:
        """Queue sources to be encoded by the next `run`.

        Returns the memory row where they begin.
        """
        before, used, more = self._source, self.memory.used, len(new.tokens)
        if used + more > self.memory.capacity and not len(before.tokens):
            self._leave_out_memory()
            self._read = self.memory.used
        first = self.memory.add(more).first
        self._source = Source(
            np.concatenate([before.tokens, new.tokens]),
            np.concatenate([before.positions, new.positions]),
            np.concatenate([before.starts[:-1], before.starts[-1] + new.starts]),
        )
        return first

    def _leave_out_memory(self) -> None:
        """Drop the encoder output of freed places if it is at least half of the memory."""
        going = sorted(self._places)
        spans = self._inputs.sources[going]
        if 2 * spans[:, 1].sum() > self.memory.used:
            return
        kept = [np.arange(first, first + count) for first, count in spans.tolist()]
        self.memory.keep(np.concatenate([np.empty(0, np.int64), *kept]))
        self._inputs.sources[going, 0] = np.cumsum(spans[:, 1]) - spans[:, 1]


def _larger(record: Record, shapes: list[tuple[int, ...]]) -> Record:
    """Return a record with its arrays enlarged to these shapes, filled up with zeros."""
    arrays = []
    for array, shape in zip(record, shapes, strict=True):
        larger: Any = np.zeros(shape, array.dtype)
        larger[tuple(map(slice, array.shape))] = array
        arrays.append(larger)
    made: Record = type(record)(*arrays)
    return made

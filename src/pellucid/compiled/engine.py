"""A model made ready for decoding on the kernels of `kernels.decode`.

Every row's bits are its own: they do not change with the batch, so answers need no margins here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pellucid.compiled import decode
from pellucid.compiled.weights import Laid, Layout
from pellucid.core.batch import Packed
from pellucid.generation.answers import Hypothesis, SearchConfig, limits_of, penalty
from pellucid.kernels.backend import threads
from pellucid.models.causal_lm import CausalLM
from pellucid.models.embed import Embed
from pellucid.models.seq2seq import Seq2Seq

Array = np.ndarray

AT_ONCE = 64  # inputs that one thread answers together


@dataclass
class _Keys:
    """Keys and values of every row said so far, whoever said it; rows are only ever added."""

    layers: int
    width: int
    used: int = 0
    capacity: int = 0
    rows: Array = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def add(self, more: int) -> int:
        """Make room for more rows in every layer; return the first one's number."""
        if self.used + more > self.capacity:
            room = max(2 * self.capacity, self.used + more, 64)
            rows = np.empty((self.layers, room, self.width), np.float32)
            rows[:, : self.used] = self.kept()
            self.capacity, self.rows = room, rows.reshape(-1, self.width)
        first, self.used = self.used, self.used + more
        return first

    def kept(self) -> Array:
        """Return the rows so far, layer by layer: (layers, used, width)."""
        return self.rows.reshape(self.layers, self.capacity, self.width)[:, : self.used]


class _Memory(NamedTuple):
    """What was read, as every layer's keys and values, and how many rows of it there are."""

    rows: Array  # (layers · U, 2 · heads · width)
    each: int  # U
    spans: Array  # (N, 2): each input's first row and number of rows


class _Reading(NamedTuple):
    """The sources, and the encoder that reads them; `kernels.decode.read` says what each is."""

    tokens: Array
    positions: Array
    starts: Array
    program: Array
    sizes: Array
    table: Array
    places: Array
    projections: Array

    @property
    def spans(self) -> Array:
        """(N, 2): each input's first row of the memory and number of rows."""
        return np.stack([self.starts[:-1], np.diff(self.starts)], axis=1)


@dataclass(frozen=True)
class EngineState:
    """Where decoding stands; any number of states may go on from one."""

    keys: _Keys
    names: Array  # (B, longest): the numbers of the rows each hypothesis has said
    counts: Array  # (B,): how many
    memory: Array
    each: int
    spans: Array  # (B, 2)

    def select(self, rows: Array) -> EngineState:
        """Return the state of these hypotheses, in this order; one may come several times."""
        return EngineState(
            self.keys,
            self.names[rows],
            self.counts[rows],
            self.memory,
            self.each,
            self.spans[rows],
        )


class Engine:
    """A float32 `Seq2Seq` or `CausalLM` as it is now; decodes as the model does, faster.

    It offers `start`, `step` and `select` like a model, and `search`, which answers a whole batch
    without Python between the words.
    """

    def __init__(self, model: Seq2Seq | CausalLM) -> None:
        self.model, self.config = model, model.config
        layout = Layout(self.config)
        self.numbers = layout.numbers()
        self.decoder = layout.stack(model.decoder)
        self.encoder: Laid | None = None
        self.projections = np.zeros((0, 2), np.int64)
        if isinstance(model, Seq2Seq):
            self.encoder = layout.stack(model.encoder)
            self.projections = layout.memory(model.decoder)
        bias = model.output.bias
        self.output = layout.output(model.output.weight.data, None if bias is None else bias.data)
        self.vocabulary = len(model.output.weight.data)
        self.padded = -(-self.vocabulary // layout.panel) * layout.panel
        self.w = layout.weights()
        self.width = 2 * layout.span

    @property
    def dtype(self) -> Any:
        """float32."""
        return self.model.dtype

    def room(self, source: Packed) -> Array:
        """Return the most tokens that the answer to each of these can have: (N,)."""
        return self.model.room(source)

    def start(self, source: Packed) -> EngineState:
        """Return the state before the first token, one hypothesis per source."""
        memory = self._read(source)
        keys = _Keys(self.decoder.layers, self.width)
        n = len(source)
        if isinstance(self.model, Seq2Seq) or not len(source.tokens):
            names, counts = np.zeros((n, 0), np.int64), np.zeros(n, np.int64)
        else:
            names, counts = self._read_text(source, keys)
        return EngineState(keys, names, counts, memory.rows, memory.each, memory.spans)

    def step(self, state: EngineState, tokens: Array) -> tuple[Array, EngineState]:
        """Say one token to every hypothesis; return (log p of the next (B, V), state)."""
        tokens = _within(tokens, self.vocabulary)
        self._embed.check(state.counts)
        first = state.keys.add(len(tokens))
        names = np.zeros((len(tokens), max(state.names.shape[1], int(state.counts.max()) + 1)), int)
        names[:, : state.names.shape[1]] = state.names
        names[np.arange(len(tokens)), state.counts] = first + np.arange(len(tokens))
        counts = state.counts + 1
        log_p = np.empty((len(tokens), self.padded), np.float32)
        after = EngineState(state.keys, names, counts, state.memory, state.each, state.spans)
        self._say(tokens, state.counts, after, first, log_p)
        return log_p[:, : self.vocabulary], after

    def search(
        self, source: Packed, config: SearchConfig, at_once: int = AT_ONCE
    ) -> list[list[Hypothesis]]:
        """Return each input's best answers; `decoding.search` without prefixes and constraints.

        Inputs of like length are answered together, at most `at_once` of them by one thread.
        """
        found: list[list[Hypothesis]] = [[] for _ in range(len(source))]
        limits = limits_of(self, source, config.max_length)
        penalties = np.array(
            [penalty(length, config.length_penalty) for length in range(limits.max(initial=0) + 3)]
        )
        order = np.argsort(-source.lengths, kind="stable")
        size = max(1, min(at_once, -(-len(order) // threads.available())))
        chunks = [order[at : at + size] for at in range(0, len(order), size)]

        def part(i: int) -> None:
            chunk = chunks[i]
            best = self._search(source.select(chunk), config, limits[chunk], penalties)
            for place, answers in zip(chunk, best, strict=True):
                found[place] = answers

        if len(chunks) == 1:
            part(0)
        else:
            with ThreadPoolExecutor(threads.available()) as pool:
                list(pool.map(part, range(len(chunks))))
        return found

    @property
    def _embed(self) -> Embed:
        model = self.model
        return model.target if isinstance(model, Seq2Seq) else model.embed

    def _read(self, source: Packed) -> _Memory:
        reading = self._reading(source)
        u = len(reading.tokens)
        rows = np.empty((len(reading.projections) * u, self.width), np.float32)
        spans = np.zeros((len(source), 2), np.int64)
        if len(reading.projections):
            *stack, table, places, projections = reading
            decode.read(*stack, self.numbers, self.w, table, places, projections, rows)
            spans = reading.spans
        return _Memory(rows, u, spans)

    def _reading(self, source: Packed) -> _Reading:
        """Return what the kernels need to read the sources, if there is an encoder to do it."""
        model = self.model
        if self.encoder is None:
            nothing = np.zeros(0, np.int64)
            table = np.empty((1, 1), np.float32)
            stack = self.decoder
            return _Reading(nothing, nothing, nothing, *stack, table, table, self.projections)
        assert isinstance(model, Seq2Seq)
        table = model.source.tokens.weight.data
        tokens = _within(source.tokens, len(table))
        model.source.check(source.positions)
        starts = np.ascontiguousarray(source.cu_seqlens, np.int64)
        return _Reading(
            tokens,
            source.positions,
            starts,
            *self.encoder,
            table,
            model.source.places,
            self.projections,
        )

    def _read_text(self, source: Packed, keys: _Keys) -> tuple[Array, Array]:
        """Say every text to a decoder that has no encoder; return its rows' names and counts."""
        tokens = _within(source.tokens, self.vocabulary)
        self._embed.check(source.positions)
        first = keys.add(len(tokens))
        starts = np.repeat(source.cu_seqlens[:-1], source.lengths)
        longest = np.arange(int(source.lengths.max()))
        state = EngineState(
            keys,
            first + starts[:, None] + longest,
            source.positions + 1,
            np.empty((1, self.width), np.float32),
            0,
            np.zeros((len(tokens), 2), np.int64),
        )
        self._say(tokens, source.positions, state, first, np.empty((0, self.padded), np.float32))
        return first + source.cu_seqlens[:-1, None] + longest, source.lengths

    def _say(
        self, tokens: Array, positions: Array, state: EngineState, first: int, log_p: Array
    ) -> None:
        embed = self._embed
        decode.say(tokens, positions, *self.decoder, self.numbers, self.w,
                   embed.tokens.weight.data, embed.places, state.keys.rows, state.keys.capacity,
                   first, state.names, state.counts, state.memory, state.each, state.spans,
                   *self.output, log_p)  # fmt: skip

    def _search(
        self, source: Packed, config: SearchConfig, limits: Array, penalties: Array
    ) -> list[list[Hypothesis]]:
        """Answer one batch; `penalties` are those of every length up to 2 beyond the limits."""
        n, beam, limit = len(source), config.beam, int(limits.max())
        keys, reading = _Keys(self.decoder.layers, self.width), self._reading(source)
        names, counts, spans = np.zeros((n, 0), int), np.zeros(n, int), np.zeros((n, 2), int)
        if self.encoder is not None:
            spans = reading.spans
        elif len(source.tokens):
            names, counts = self._read_text(source, keys)
        said = np.empty((n, beam, limit), np.int32)
        done = np.zeros((n, beam, 3), np.int64)
        log_p, scores = np.zeros((n, beam)), np.full((n, beam), -np.inf)
        embed = self._embed
        decode.search(*reading, beam, config.best, self.config.bos_token_id,
                      self.config.eos_token_id, limits, penalties, config.length_penalty > 0,
                      *self.decoder, self.numbers, self.w, embed.tokens.weight.data, embed.places,
                      np.ascontiguousarray(keys.kept()).reshape(-1, self.width), keys.layers, names,
                      counts, spans, *self.output, self.vocabulary, self.padded, said, done, log_p,
                      scores, np.zeros(n, np.int64))  # fmt: skip
        return [
            [
                Hypothesis(
                    tuple(said[i, place, : done[i, place, 0]].tolist()),
                    float(log_p[i, place]),
                    float(scores[i, place]),
                    bool(done[i, place, 2]),
                )
                for place in range(config.best)
                if scores[i, place] > -np.inf
            ]
            for i in range(n)
        ]


def _within(tokens: Array, entries: int) -> Array:
    """Return the tokens as the kernels take them. Raises `IndexError` for one without an entry."""
    tokens = np.ascontiguousarray(tokens, np.int64)
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < entries:
        raise IndexError(f"expected tokens from 0 to {entries - 1}, got {tokens.min()} to "
                         f"{tokens.max()}")  # fmt: skip
    return tokens

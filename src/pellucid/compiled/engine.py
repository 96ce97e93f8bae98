"""`Engine`, a model compiled for decoding: packed weights and the kernels of `compiled.decode`.

The bits of a row do not depend on the batch. So an input gets the same answer alone and in a batch,
and no search is repeated, as `generation.search` does with other models for decisions that rounding
could have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pellucid.compiled.answering import Answering
from pellucid.compiled.decode import Kernels, kernels_of
from pellucid.compiled.pack import pack
from pellucid.compiled.records import Keys, Memory, PackedInputs, Source, Visible
from pellucid.core.batch import Packed
from pellucid.kernels.backend import threads
from pellucid.models.decoding import Decodes, Hypothesis, SearchConfig, limits_of
from pellucid.models.embed import check_positions
from pellucid.models.prefix import Prefix
from pellucid.models.quantize import Arithmetic

Array = np.ndarray

BATCH_SIZE = 64  # maximum number of inputs that one thread answers at the same time


@dataclass
class _Cache:
    """A growing array of keys and values of all rows so far, for every layer."""

    layers: int
    width: int
    used: int = 0
    capacity: int = 0
    rows: Array = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def add(self, more: int) -> Keys:
        """Append uninitialised rows to every layer; return the record for writing them."""
        if self.used + more > self.capacity:
            self.reserve(max(2 * self.capacity, self.used + more, 64))
        keys = self.here()
        self.used += more
        return keys

    def reserve(self, capacity: int) -> None:
        """Set the capacity of every layer, in rows; the rows in use are copied."""
        rows = np.empty((self.layers, capacity, self.width), np.float32)
        rows[:, : self.used] = self.kept()
        self.capacity, self.rows = capacity, rows.reshape(-1, self.width)

    def here(self) -> Keys:
        """Return the record with which kernels write rows, beginning at row `used`."""
        return Keys(self.rows, self.capacity, self.used)

    def keep(self, rows: Array) -> None:
        """Keep only these rows, given in ascending order."""
        kept = self.rows.reshape(self.layers, self.capacity, self.width)
        kept[:, : len(rows)] = kept[:, rows]
        self.used = len(rows)

    def kept(self) -> Array:
        """Return the rows in use as a view (layers, used, width)."""
        return self.rows.reshape(self.layers, self.capacity, self.width)[:, : self.used]

    def take(self, other: _Cache) -> int:
        """Append the rows of another cache; return the index of the first of them."""
        first = self.used
        self.add(other.used)
        self.kept()[:, first:] = other.kept()
        return first

    def only(self, rows: Array) -> _Cache:
        """Return a new cache with copies of these rows."""
        kept = np.ascontiguousarray(self.kept()[:, rows]).reshape(-1, self.width)
        return _Cache(self.layers, self.width, len(rows), len(rows), kept)


@dataclass(frozen=True)
class EngineState:
    """The decoding state of B hypotheses between two tokens.

    Its hypotheses never change. But `step` and `join` append rows to the caches, which a state
    shares with those that continue it.
    """

    cache: _Cache
    names: Array
    """(B, longest): the row numbers in the cache of each hypothesis's tokens."""
    counts: Array
    """(B,): the number of tokens of each hypothesis."""
    memory: _Cache
    """The encoder's output as keys and values of every decoder layer."""
    spans: Array
    """(B, 2): the first row and the number of rows in the memory."""

    def select(self, rows: Array) -> EngineState:
        """Return the state of the hypotheses `rows`, in that order; indices may repeat."""
        return replace(
            self, names=self.names[rows], counts=self.counts[rows], spans=self.spans[rows]
        )

    def join(self, other: EngineState) -> EngineState:
        """Return the state of these hypotheses followed by the other's, of the same engine.

        Unused rows are removed first if they are the larger part; a row that several hypotheses use
        counts once for each.
        """
        own = self._compact() if self._wasted() else self
        first, spans = own.cache.take(other.cache), other.spans.copy()
        spans[:, 0] += own.memory.take(other.memory)
        names = np.zeros(
            (len(own.names) + len(other.names), max(own.names.shape[1], other.names.shape[1])),
            np.int64,
        )
        names[: len(own.names), : own.names.shape[1]] = own.names
        names[len(own.names) :, : other.names.shape[1]] = other.names + first
        return EngineState(
            own.cache,
            names,
            np.concatenate([own.counts, other.counts]),
            own.memory,
            np.concatenate([own.spans, spans]),
        )

    def _wasted(self) -> bool:
        """Return whether hypotheses use fewer than half of the rows.

        A row that several of them use counts once for each.
        """
        read = self.counts.sum() + self.spans[:, 1].sum()
        return bool(self.cache.used + self.memory.used > 2 * read)

    def _compact(self) -> EngineState:
        """Return the same state without the rows that no hypothesis uses."""
        visible = np.arange(self.names.shape[1]) < self.counts[:, None]
        rows, places = np.unique(self.names[visible], return_inverse=True)
        names = np.zeros_like(self.names)
        names[visible] = places
        read = np.zeros(self.memory.used + 1, bool)
        for first, count in self.spans:
            read[first : first + count] = True
        before = np.cumsum(read) - read
        spans = np.stack([before[self.spans[:, 0]], self.spans[:, 1]], axis=1)
        kept = self.memory.only(np.flatnonzero(read))
        return EngineState(self.cache.only(rows), names, self.counts, kept, spans)


class Engine:
    """A copy of a float32 model with a decoder, compiled to generate faster.

    Its weights are copies: further training of the model does not change it.

    It has `room`, `start` and `step` like a model, and `search`, which answers a whole batch
    without returning to Python between tokens. In float32 arithmetic the log-probabilities are the
    model's up to rounding errors. In int8 arithmetic every product rounds both factors
    (`kernels.backend.int8`), so that they are only close.

    Raises `UnsupportedError` for a model that the kernels cannot compute.
    """

    def __init__(self, model: Any, arithmetic: Arithmetic = "float32") -> None:
        self.model: Decodes = model
        self.config = model.config
        self.packed, self._activation = pack(model, arithmetic)
        self.width = 2 * self.packed.decoder.key_heads * self.packed.decoder.padded_head

    @property
    def kernels(self) -> Kernels:
        """The compiled kernels; looked up at each use, so that an engine can be pickled."""
        return kernels_of(self._activation)

    def room(self, source: Packed) -> Array:
        """Return the maximum number of tokens of the answer to each source, (N,).

        A number below 0 means that the source is too long.
        """
        return self.model.room(source)

    def start(self, source: Packed) -> EngineState:
        """Run encoder or prompts; return the state before the first token of each source.

        Raises `IndexError` for a token outside the vocabulary, `ValueError` for a source longer
        than the model's positions.
        """
        cache = self.cache()
        new, spans = self.sources_of(source)
        length = len(new.tokens)
        rows = np.empty((len(self.packed.memory) * length, self.width), np.float32)
        if len(self.packed.memory):
            self.kernels.encode(self.packed, new, rows)
        memory = _Cache(len(self.packed.memory), self.width, length, length, rows)
        counts, names = self.prompts_of(source, cache)
        return EngineState(cache, names, counts, memory, spans)

    def step(self, state: EngineState, tokens: Array) -> tuple[Array, EngineState]:
        """Feed a token to every hypothesis; return the next log-probabilities and the new state.

        tokens: (B,). The log-probabilities are (B, V), after `models.model.choices`. Raises
        `IndexError` for a token outside the vocabulary, `ValueError` after the model's last
        position.
        """
        target, output = self.packed.target, self.packed.output
        tokens = _within(tokens, target)
        check_positions(state.counts, self.config)
        batch = np.arange(len(tokens))
        own = state.cache.add(len(tokens))
        names = np.zeros((len(tokens), max(state.names.shape[1], int(state.counts.max()) + 1)), int)
        names[:, : state.names.shape[1]] = state.names
        names[batch, state.counts] = own.first + batch
        after = replace(state, names=names, counts=state.counts + 1)
        visible = Visible(names, after.counts, state.spans)
        log_p = np.empty((len(tokens), output.padded), np.float32)
        memory = Memory(state.memory.rows, state.memory.capacity)
        self.kernels.step(self.packed, tokens, state.counts, own, visible, memory, log_p)
        return log_p[:, : output.vocabulary], after

    def search(
        self,
        source: Packed,
        config: SearchConfig,
        first: Array | None = None,
        prefixes: Sequence[Prefix | None] = (),
        batch_size: int = BATCH_SIZE,
    ) -> list[list[Hypothesis]]:
        """Return the best answers to each input, as `generation.search` does.

        first: (N,) the token to feed before each answer, by default `config.bos_token_id`.
        prefixes: a required beginning for each answer, or None; empty: none. Inputs are sorted by
        length and divided among threads, in batches of at most `batch_size`. Raises `ValueError` as
        `models.decoding.limits_of` does, `IndexError` for a token outside the vocabulary.
        """
        found: list[list[Hypothesis]] = [[] for _ in range(len(source))]
        limits = limits_of(self, source, config.max_length, prefixes)
        if first is None:
            first = np.full(len(source), self.config.bos_token_id)
        order = np.argsort(-source.lengths, kind="stable")
        size = max(1, min(batch_size, -(-len(order) // threads.available())))
        chunks = [order[at : at + size] for at in range(0, len(order), size)]

        def answer(chunk: Array) -> None:
            answering = Answering(self, config, len(chunk))
            begun = [prefixes[i] for i in chunk] if prefixes else ()
            places = answering.join(source.select(chunk), limits[chunk], first[chunk], begun)
            answering.run()
            for i, place in zip(chunk, places, strict=True):
                found[i] = answering.take(place)

        if len(chunks) == 1:
            answer(chunks[0])
        else:
            with ThreadPoolExecutor(threads.available()) as pool:
                list(pool.map(answer, chunks))
        return found

    def cache(self, memory: Array | None = None) -> _Cache:
        """Return an empty cache for the decoder or, given the table `memory`, for the memory."""
        return _Cache(self.packed.decoder.layers if memory is None else len(memory), self.width)

    def sources_of(self, source: Packed) -> tuple[Source, Array]:
        """Return the encoder's inputs, and the first row and number of rows of each source, (N, 2).

        Both are empty or zero for a model without an encoder. Raises `IndexError` for a token
        outside the vocabulary, `ValueError` for a source longer than the model's positions.
        """
        if not self.packed.has_encoder:
            nothing, no_start = np.zeros(0, np.int64), np.zeros(1, np.int64)
            return Source(nothing, nothing, no_start), np.zeros((len(source), 2), np.int64)
        inputs = self.packed.source
        tokens = _within(source.tokens, inputs)
        check_positions(source.positions, self.config)
        starts = np.ascontiguousarray(source.cu_seqlens, np.int64)
        spans = np.stack([starts[:-1], np.diff(starts)], axis=1)
        return Source(tokens, source.positions, starts), spans

    def prompts_of(self, source: Packed, cache: _Cache) -> tuple[Array, Array]:
        """Run a decoder-only model on the sources as prompts, filling the cache.

        Returns the number of rows of each source, (N,), and their row numbers in the cache,
        (N, longest); those after the end of a shorter source are meaningless. Both are empty or
        zero for a model with an encoder, and if all sources are empty. Raises as `sources_of` does.
        """
        if self.packed.has_encoder or not len(source.tokens):
            return np.zeros(len(source), np.int64), np.zeros((len(source), 0), np.int64)
        tokens = _within(source.tokens, self.packed.target)
        check_positions(source.positions, self.config)
        own = cache.add(len(tokens))
        begins, longest = source.cu_seqlens[:-1], np.arange(int(source.lengths.max()))
        visible = Visible(
            own.first + np.repeat(begins, source.lengths)[:, None] + longest,
            source.positions + 1,
            np.zeros((len(tokens), 2), np.int64),
        )
        memory = Memory(np.empty((1, self.width), np.float32), 0)
        no_output = np.empty((0, self.packed.output.padded), np.float32)
        self.kernels.step(self.packed, tokens, source.positions, own, visible, memory, no_output)
        return source.lengths, own.first + begins[:, None] + longest


def _within(tokens: Array, inputs: PackedInputs) -> Array:
    """Return tokens as contiguous int64; raise `IndexError` for one outside the vocabulary."""
    tokens = np.ascontiguousarray(tokens, np.int64)
    entries = len(inputs.tokens) + len(inputs.rounded)  # one of the two is empty
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < entries:
        raise IndexError(
            f"expected tokens from 0 to {entries - 1}, got {tokens.min()} to {tokens.max()}"
        )
    return tokens

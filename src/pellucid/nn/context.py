"""The context in which a layer runs, and the keys and values cached between decoding steps.

Layers compute on rows x (T, E), the sequences of a batch one after another. Training on packed
batches, a padded call as in torch and one-token decoding are the same call,
`run(x, context) -> (y, backward)`, with different contexts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pellucid.core.array import Array, like, namespace, take
from pellucid.core.batch import followed, positions_of, selected
from pellucid.core.rng import Rng
from pellucid.core.vjp import joined
from pellucid.ops.rule import EVERYTHING, Rule


class Memory(NamedTuple):
    """The rows that cross-attention attends to: an encoder's output.

    rows: (U, E). cu_seqlens (N + 1,): the queries of sequence n attend to rows
    cu_seqlens[n] : cu_seqlens[n + 1]. rule: an attention rule, as in `Context`.
    """

    rows: Array
    cu_seqlens: Array
    rule: Rule = EVERYTHING

    def select(self, index: Array) -> Memory:
        """Return the memory of the sequences `index` (N',), in that order; indices may repeat.

        The result has no rule: that of this memory is left out.
        """
        rows, cu_seqlens = selected(self.cu_seqlens, index)
        return Memory(take(self.rows, like(rows, self.rows), axis=0), cu_seqlens)


class KeysValues(NamedTuple):
    """Keys and values, (U, G, D) of G key and value heads, packed by cu_seqlens (N + 1,)."""

    k: Array
    v: Array
    cu_seqlens: Array

    def take(self, rows: Array, cu_seqlens: Array) -> KeysValues:
        """Return the keys and values of these row indices, with the new cu_seqlens."""
        index = like(rows, self.k)
        return KeysValues(take(self.k, index, axis=0), take(self.v, index, axis=0), cu_seqlens)


@dataclass
class Cache:
    """The key/value cache: the keys and values of earlier steps, by the full name of the layer.

    `Attention.run` appends to it, and `run_cross` stores those of the memory in its first step.
    Decoding passes it from step to step in the context.

    >>> import numpy as np
    >>> cache, one = Cache(), np.ones((1, 2, 3))
    >>> cu = np.array([0, 1])
    >>> cache.append("self_attn", KeysValues(one, one, cu)).k.shape
    (1, 2, 3)
    >>> cache.append("self_attn", KeysValues(one, one, cu)).cu_seqlens
    array([0, 2])
    """

    layers: dict[str, KeysValues] = field(default_factory=dict)

    def append(self, path: str, new: KeysValues) -> KeysValues:
        """Append a layer's new keys and values to those of each sequence; return all of them.

        The cache keeps them too, under the layer's full name `path`.
        """
        old = self.layers.get(path)
        if old is not None:
            xp = namespace(new.k)
            both = KeysValues(xp.concat([old.k, new.k]), xp.concat([old.v, new.v]), new.cu_seqlens)
            rows = followed(old.cu_seqlens, new.cu_seqlens)
            new = both.take(rows, old.cu_seqlens + new.cu_seqlens)
        self.layers[path] = new
        return new

    def copy(self) -> Cache:
        """Return a copy to which steps can be appended without changing this one; shares arrays."""
        return Cache(dict(self.layers))

    def select(self, index: Array) -> Cache:
        """Return a cache of the sequences `index` (N',), in that order; indices may repeat.

        Beam search uses it to reorder and copy hypotheses.
        """
        layers = self.layers.items()
        return Cache({path: kept.take(*selected(kept.cu_seqlens, index)) for path, kept in layers})


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything that a layer needs to know about its rows x (T, E) besides their values.

    cu_seqlens (N + 1,): rows cu_seqlens[n] : cu_seqlens[n + 1] are one sequence.
    causal: whether self-attention is causal.
    rule: an attention rule (`ops.rules`), applied after those of the layers.
    positions (T,): the position of each row; by default counted from 0 in each sequence.
    memory: the rows that cross-attention attends to.
    rng: random bits for dropout in training; `rng.rows` (T,) are the keys of the rows.
    cache: keys and values of earlier steps. A run with a cache has no backward.
    inference: switches dropout off, even if the layers are in training mode.
    path: full name of the running layer, by which observers and the cache identify it.
    """

    cu_seqlens: Array
    causal: bool = False
    rule: Rule = EVERYTHING
    positions: Array | None = None
    memory: Memory | None = None
    rng: Rng | None = None
    cache: Cache | None = None
    inference: bool = False
    path: str = ""

    def child(self, name: str, site: int | None = None) -> Context:
        """Return the context of a part: `name` appended to the path, `site` folded into the rng."""
        made = object.__new__(Context)  # `replace` would take longer than a small kernel runs
        made.__dict__.update(self.__dict__)
        if name:
            made.__dict__["path"] = joined(self.path, name)
        if self.rng is not None and site is not None:
            made.__dict__["rng"] = self.rng.fold(site)
        return made

    def row_positions(self) -> Array:
        """Return the position of each row, (T,)."""
        return positions_of(self.cu_seqlens) if self.positions is None else self.positions

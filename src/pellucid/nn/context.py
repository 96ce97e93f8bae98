"""Context of a layer's rows, and the keys and values kept between decoding steps.

Everything inside works on rows x (T, E): sequences one after another. Training on packed batches, a
padded torch call, one-token decoding and a recorded run are different contexts of the same
`run(x, context) -> (y, backward)`.
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
    """Rows that cross-attention looks at: an encoder's output.

    rows: (U, E). cu_seqlens (N + 1,): sequence n of the queries looks at rows
    cu_seqlens[n] : cu_seqlens[n + 1]. `rule` is as in `Context`.
    """

    rows: Array
    cu_seqlens: Array
    rule: Rule = EVERYTHING

    def select(self, index: Array) -> Memory:
        """Return the memory of these sequences, in this order; one may come several times."""
        rows, cu_seqlens = selected(self.cu_seqlens, index)
        return Memory(take(self.rows, like(rows, self.rows), axis=0), cu_seqlens)


class KeysValues(NamedTuple):
    """Keys and values of every head, (U, H, D), packed by cu_seqlens (N + 1,)."""

    k: Array
    v: Array
    cu_seqlens: Array

    def take(self, rows: Array, cu_seqlens: Array) -> KeysValues:
        """Return these rows, in this order."""
        index = like(rows, self.k)
        return KeysValues(take(self.k, index, axis=0), take(self.v, index, axis=0), cu_seqlens)


@dataclass
class Cache:
    """The key/value cache: what every attention layer has computed so far, by its full name.

    Attention fills it while it runs (`MultiheadAttention.run`); a model's `step` hands it on.

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
        """Append new rows to each sequence; return the rows of all."""
        old = self.layers.get(path)
        if old is not None:
            xp = namespace(new.k)
            both = KeysValues(xp.concat([old.k, new.k]), xp.concat([old.v, new.v]), new.cu_seqlens)
            rows = followed(old.cu_seqlens, new.cu_seqlens)
            new = both.take(rows, old.cu_seqlens + new.cu_seqlens)
        self.layers[path] = new
        return new

    def copy(self) -> Cache:
        """Return a cache that can grow without changing this one; arrays are shared."""
        return Cache(dict(self.layers))

    def select(self, index: Array) -> Cache:
        """Return a cache of the sequences `index` (N',), in that order; an index may repeat.

        Beam search reorders and repeats its hypotheses with it.
        """
        return Cache(
            {
                path: kept.take(*selected(kept.cu_seqlens, index))
                for path, kept in self.layers.items()
            }
        )


@dataclass(frozen=True, kw_only=True)
class Context:
    """The context of a layer's rows x (T, E).

    cu_seqlens (N + 1,): rows cu_seqlens[n] : cu_seqlens[n + 1] are one sequence.
    causal: a row may not look at later rows of its sequence.
    rule: a further rule of its attention (`ops.rules`), applied after those of the layers.
    positions (T,): each row's position; its place in its sequence unless given.
    memory: what cross-attention looks at.
    rng: needed by dropout while training; `rng.rows` (T,) names the rows.
    cache: keys and values of earlier steps. A run with a cache has no backward.
    inference: dropout is off, whatever mode the layers are in.
    path: full name of the layer that runs; observers and the cache know it by that.
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
        """Return the context inside: `name` added to the path, `site` folded into the rng."""
        made = object.__new__(Context)  # `replace` would take longer than a small kernel
        made.__dict__.update(self.__dict__)
        if name:
            made.__dict__["path"] = joined(self.path, name)
        if self.rng is not None and site is not None:
            made.__dict__["rng"] = self.rng.fold(site)
        return made

    def row_positions(self) -> Array:
        """Return (T,) the position of each row."""
        return positions_of(self.cu_seqlens) if self.positions is None else self.positions

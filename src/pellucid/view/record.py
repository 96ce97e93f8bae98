"""What there is to see of one sentence in one model: data only, no drawing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from pellucid.view.tokens import Label

Array = np.ndarray
Kind = Literal["encoder", "decoder", "cross"]
Side = Literal["source", "target"]

KINDS: dict[Kind, tuple[Side, Side]] = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "cross": ("target", "source"),
}
"""The sequences that the queries and the keys of each kind of attention come from."""


@dataclass(frozen=True)
class Map:
    """One attention layer, all heads of it.

    q, doutputs: (H, L, D); k, v: (H, S, D); probabilities: (H, L, S).
    """

    name: str
    kind: Kind
    layer: int
    """Counted from 1, as people do."""
    causal: bool
    scale: float | Array
    """What q·k is multiplied by: a number, or what each head has learned, (H, 1, 1)."""
    q: Array
    k: Array
    v: Array
    doutputs: Array
    """Gradient of the loss with respect to each head's output, Z = W V."""
    probabilities: Array

    @property
    def scales(self) -> Array:
        """What each head's q·k is multiplied by, (H,)."""
        return np.broadcast_to(np.ravel(self.scale), len(self.q))

    @property
    def entropies(self) -> Array:
        """Mean entropy of each head's rows in nats, (H,): e to its power counts the keys looked at.

        >>> zeros = np.zeros((1, 2, 3))
        >>> even = Map("a", "cross", 1, False, 1.0, *[zeros] * 4, np.full((1, 2, 4), 0.25))
        >>> np.exp(even.entropies)
        array([4.])
        """
        p = self.probabilities.astype(np.float64)
        rows: Array = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)
        mean: Array = rows.mean(axis=-1)
        return mean


class Candidate(NamedTuple):
    """A token that might have come next."""

    label: Label
    probability: float


class Step(NamedTuple):
    """One token of the answer and what the model held likely in its place."""

    label: Label
    probability: float
    place: int
    """The row of the maps that predicts it, counted from 0."""
    candidates: tuple[Candidate, ...]
    """The likeliest tokens, likeliest first."""


class Node(NamedTuple):
    """A token in the tree of a search."""

    parent: int
    """Index of the node before it; −1 for the begin token."""
    label: Label
    probability: float
    """Of this token after those before it."""
    log_p: float
    """Σ log p from the beginning to here."""
    state: Literal["kept", "dropped", "end"]
    """Gone on with, left at this token, or an answer that ends here."""
    rank: int = 0
    """1 for the last token of the best answer, 2 of the second; 0 for all others."""


@dataclass(frozen=True)
class Record:
    """Everything a picture of one sentence is drawn from.

    `target` are the tokens that the decoder reads, `source` those of the encoder; a model that has
    one stack only has one of them.
    """

    title: str
    model: str
    source: tuple[Label, ...]
    target: tuple[Label, ...]
    maps: tuple[Map, ...]
    loss: float
    """Σ −log p of the tokens asked for, in nats: what the gradients are of."""
    steps: tuple[Step, ...] = ()
    tree: tuple[Node, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What a reader should know: unknown characters, an answer that did not end."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention there are, in the order data passes them."""
        return tuple(kind for kind in KINDS if any(m.kind == kind for m in self.maps))

    def side(self, side: Side) -> tuple[Label, ...]:
        """Return the labels of a sequence."""
        return self.source if side == "source" else self.target

    def queries(self, kind: Kind) -> tuple[Label, ...]:
        """Return the labels of the rows."""
        return self.side(KINDS[kind][0])

    def keys(self, kind: Kind) -> tuple[Label, ...]:
        """Return the labels of the columns."""
        return self.side(KINDS[kind][1])

    def layers(self, kind: Kind) -> tuple[Map, ...]:
        """Return the layers of a kind, first to last."""
        return tuple(m for m in self.maps if m.kind == kind)

"""The record of one sentence in one model: data only, no drawing."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from pellucid.apps.view.tokens import Label
from pellucid.core.errors import UsageError
from pellucid.ops.rule import EVERYTHING, Rule
from pellucid.system.language import Language as Language  # what a page is written in
from pellucid.system.language import Text as Text

Array = np.ndarray
Kind = Literal["encoder", "decoder", "cross"]
Side = Literal["source", "target"]

KINDS: dict[Kind, tuple[Side, Side]] = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "cross": ("target", "source"),
}
"""The sequences that the queries and the keys of each kind of attention come from."""

NO_LAYERS = "there is no attention to draw: this model has no layers"
TITLES: dict[Kind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


@dataclass(frozen=True)
class Map:
    """One attention layer, all heads of it.

    q, doutputs: (H, L, D); k, v: (H, S, D); probabilities: (H, L, S).
    """

    name: str
    kind: Kind
    layer: int
    """Counted from 1."""
    scale: float | Array
    """The factor of q·k: a number, or a learned one for each head, (H, 1, 1)."""
    q: Array
    k: Array
    v: Array
    doutputs: Array
    """Gradient of the loss with respect to each head's output, Z = W V."""
    probabilities: Array
    dqueries: Array | None = None
    """Gradient of the rows that the queries are made of, by their projection: (L, E)."""
    dkeys: Array | None = None
    """The same for the rows that keys and values are made of: (S, E)."""
    added: Array | None = None
    """Added to the scores for distances −(n − 1) … n − 1 of query from key, (H, 2 n − 1)."""
    rule: Rule = EVERYTHING
    """Who attends to whom, and what happens to a score."""

    @property
    def causal(self) -> bool:
        """Whether a query attends only to itself and to what is before it."""
        return self.kind == "decoder"

    @property
    def scales(self) -> Array:
        """The factor of each head's q·k, (H,)."""
        return np.broadcast_to(np.ravel(self.scale), len(self.q))

    @property
    def entropies(self) -> Array:
        """Mean entropy of each head's rows in nats, (H,); e to that power counts keys.

        >>> zeros = np.zeros((1, 2, 3))
        >>> even = Map("a", "cross", 1, 1.0, *[zeros] * 4, np.full((1, 2, 4), 0.25))
        >>> np.exp(even.entropies)
        array([4.])
        """
        mean: Array = entropy(self.probabilities).mean(axis=-1)
        return mean

    @property
    def information(self) -> Array:
        """Mutual information of query and key in nats, (H,): how far keys depend on the query.

        H(mean row) − mean H(row): 0 where every query attends to the same keys.
        """
        gained: Array = entropy(self.probabilities.mean(axis=1)) - self.entropies
        return gained


def entropy(p: Array) -> Array:
    """Return −Σ p log p over the last axis, in float64 nats."""
    p = p.astype(np.float64)
    total: Array = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)
    return total


def rule_parts(rule: Rule) -> list[dict[str, Any]]:
    """Return the parts of a rule as the page reads them: the class, and its numbers.

    >>> from pellucid.ops import rules
    >>> rule_parts(rules.causal & rules.window(3))
    [{'part': 'Causal'}, {'part': 'Window', 'size': 3}]
    """
    return [
        {"part": type(part).__name__}
        | {name: x for name, x in vars(part).items() if isinstance(x, int | float)}
        for part in (*rule.allowed, *rule.score)
    ]


class Cell(NamedTuple):
    """One weight of one head; every index counts from 0."""

    kind: Kind
    layer: int
    head: int
    query: int
    key: int


class Check(NamedTuple):
    """A gradient of one head compared with a finite difference of the whole model's loss."""

    cell: Cell
    entry: int
    """Which entry of the head's output z, counted from 0."""
    by_hand: float
    """Σ_i dz_i of that entry: the gradient of its value bias."""
    difference: float
    step: float


class Candidate(NamedTuple):
    """A token that might have come next."""

    label: Label
    probability: float


class Step(NamedTuple):
    """One token of the answer and the most likely tokens in its place."""

    label: Label
    probability: float
    place: int
    """The row of the maps that predicts it, counted from 0."""
    token: int
    candidates: tuple[Candidate, ...]
    """The most likely tokens, in descending order."""


class Node(NamedTuple):
    """A token in the tree of a search."""

    parent: int
    """Index of the node before it; −1 for the begin token."""
    label: Label
    probability: float
    """Probability of this token after those before it."""
    log_p: float
    """Σ log p of all tokens up to this one."""
    state: Literal["kept", "dropped", "end"]
    """Extended, dropped by the search, or an answer that ends here."""
    rank: int = 0
    """1 for the last token of the best answer, 2 of the second; 0 for all others."""


Role = Literal[
    "embedding", "positions", "segments", "sum", "norm", "queries", "keys", "values", "scores",
    "softmax", "heads", "projection", "feed_forward", "residual", "transform", "output",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Part:
    """One step of the model's forward pass, and the rows that it returned."""

    role: Role
    stack: str
    side: Side
    """The sequence that its rows are of."""
    layer: int | None = None
    """Counted from 0; None outside the layers."""
    block: int | None = None
    """The residual step of the layer, from 0."""
    kind: str = ""
    """The model's name for the part: "rms_norm", "swiglu"; several words where several apply:
    "qk_norm rotary"."""
    shape: tuple[tuple[str, int], ...]
    """Shape of the output: the letter and the size of each axis."""
    tensors: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    """Its parameters: name, shape, and the name of the parameter it shares its array with."""
    factor: float | None = None
    """The factor that the part multiplies by."""
    map: str = ""
    """The attention layer that it is a part of, by its full name."""
    rows: Array | None = None
    """(T, n); None where the map has them."""
    drows: Array | None = None
    """Their gradient."""


@dataclass(frozen=True)
class Record:
    """Everything that a picture of one sentence is drawn from.

    `source` are the tokens that the encoder reads, `target` those of the decoder; a model with only
    one stack has only one of them.
    """

    title: str
    model: Text
    source: tuple[Label, ...]
    target: tuple[Label, ...]
    maps: tuple[Map, ...]
    loss: float
    """Σ −log p of the predicted tokens, in nats; the gradients are its gradients."""
    steps: tuple[Step, ...] = ()
    tree: tuple[Node, ...] = ()
    own: str = ""
    """The model's own answer, also where another is given; "" where nothing is searched."""
    answer: tuple[int, ...] | None = None
    """The tokens of the answer in view; None where nothing is generated or masked."""
    ended: bool = True
    """Whether the end token was expected after the answer; False for one that was cut."""
    check: Check | None = None
    notes: tuple[Text, ...] = ()
    """Unknown characters, an answer that did not end."""
    parts: tuple[Part, ...] = ()
    """The whole forward pass, in order."""
    name: str = ""
    """The model's name, where two are compared."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that the model has, in the order in which they run."""
        return tuple(kind for kind in KINDS if any(m.kind == kind for m in self.maps))

    def labels(self, side: Side) -> tuple[Label, ...]:
        """Return the labels of the source or of the target."""
        return self.source if side == "source" else self.target

    def queries(self, kind: Kind) -> tuple[Label, ...]:
        """Return the labels of the rows."""
        return self.labels(KINDS[kind][0])

    def keys(self, kind: Kind) -> tuple[Label, ...]:
        """Return the labels of the columns."""
        return self.labels(KINDS[kind][1])

    def layers(self, kind: Kind) -> tuple[Map, ...]:
        """Return the layers of a kind, first to last."""
        return tuple(m for m in self.maps if m.kind == kind)


def select_maps(
    record: Record, kind: Kind | None = None, layer: int | None = None, head: int | None = None
) -> tuple[Kind, tuple[Map, ...], range]:
    """Return a kind, the last that the model has unless named, its layers, and its heads from 0.

    `layer` and `head`, counted from 1, choose one. Raises `UsageError` for what the model lacks.
    """
    if not record.kinds:
        raise UsageError(NO_LAYERS)
    kind = record.kinds[-1] if kind is None else kind
    if kind not in record.kinds:
        raise UsageError(f"this model has no {TITLES[kind]}; it has: {', '.join(record.kinds)}")
    layers = record.layers(kind)
    if layer is not None:
        if not 1 <= layer <= len(layers):
            raise UsageError(f"no layer {layer} of {TITLES[kind]}; layers are 1 to {len(layers)}")
        layers = layers[layer - 1 : layer]
    heads = range(len(layers[0].q))
    if head is not None:
        if not 1 <= head <= len(heads):
            raise UsageError(f"no head {head}; heads are 1 to {len(heads)}")
        heads = heads[head - 1 : head]
    return kind, layers, heads


def select_cell(
    record: Record, kind: Kind | None = None, layer: int | None = None, head: int | None = None
) -> Cell:
    """Return the cell that a page opens on: layers and heads are counted from 1.

    Without `layer` or `head` it is the head whose keys depend most on the query
    (`Map.information`); the cell is its largest weight among queries that may see several keys.

    Raises `UsageError` for a kind, layer or head that the model lacks.
    """
    kind, layers, heads = select_maps(record, kind, layer, head)
    each = [(float(m.information[h]), m, h) for m in layers for h in heads]
    _, m, chosen = max(each, key=lambda one: one[0])
    weights = m.probabilities[chosen]
    first = 1 if m.causal and len(weights) > 1 else 0
    query, key = np.unravel_index(weights[first:].argmax(), weights[first:].shape)
    return Cell(kind, m.layer - 1, chosen, int(query) + first, int(key))

"""Records of a model's attention on one sentence: the data behind the pictures."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from pellucid.apps.view.tokens import Label
from pellucid.core.errors import UsageError
from pellucid.ops.rule import EVERYTHING, Rule
from pellucid.system.language import Language as Language
from pellucid.system.language import Text as Text

Array = np.ndarray
Kind = Literal["encoder", "decoder", "cross"]
Side = Literal["source", "target"]

KINDS: dict[Kind, tuple[Side, Side]] = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "cross": ("target", "source"),
}
"""For each kind of attention, the sides of its queries and of its keys."""

TITLES: dict[Kind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


@dataclass(frozen=True)
class Map:
    """The numbers of one attention layer on one sentence, for all heads.

    q, doutputs: (H, L, D); k, v: (H, S, D); probabilities: (H, L, S).
    """

    name: str
    kind: Kind
    layer: int
    """Number of the layer, from 1."""
    scale: float | Array
    """Factor of q·k: one number, or a learned number per head, (H, 1, 1)."""
    q: Array
    k: Array
    v: Array
    doutputs: Array
    """Gradient of the loss with respect to the output of each head, Z = W V."""
    probabilities: Array
    dqueries: Array | None = None
    """Gradient of the input of the query projection, (L, E)."""
    dkeys: Array | None = None
    """Gradient of the input of the key and value projections, (S, E)."""
    added: Array | None = None
    """Relative position bias: added to the scores by distance −(n − 1) … n − 1, (H, 2 n − 1)."""
    rule: Rule = EVERYTHING
    """Attention rule: which queries see which keys, and how scores are changed."""

    @property
    def scales(self) -> Array:
        """Factor of q·k for each head, (H,)."""
        return np.broadcast_to(np.ravel(self.scale), len(self.q))

    @property
    def entropies(self) -> Array:
        """Mean entropy of the attention weights of each head, in nats, (H,).

        exp(entropy) is the effective number of keys that a query attends to.

        >>> zeros = np.zeros((1, 2, 3))
        >>> even = Map("a", "cross", 1, 1.0, *[zeros] * 4, np.full((1, 2, 4), 0.25))
        >>> np.exp(even.entropies)
        array([4.])
        """
        mean: Array = entropy(self.probabilities).mean(axis=-1)
        return mean

    @property
    def information(self) -> Array:
        """Mutual information of query and key for each head, in nats, (H,).

        H(mean over queries of the weights) − mean over queries of H(weights). It is 0 if all
        queries attend to the same keys in the same way, as heads that ignore the query do.
        """
        gained: Array = entropy(self.probabilities.mean(axis=1)) - self.entropies
        return gained


def entropy(p: Array) -> Array:
    """Compute the entropy −Σ p log p over the last axis, in nats and in float64."""
    p = p.astype(np.float64)
    total: Array = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)
    return total


def rule_parts(rule: Rule) -> list[dict[str, Any]]:
    """Convert an attention rule for the page: class name and numbers of each part.

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
    """Position of one attention weight of one head; all indices from 0."""

    kind: Kind
    layer: int
    head: int
    query: int
    key: int


class Check(NamedTuple):
    """A gradient of one head compared with a finite difference of the model's loss."""

    cell: Cell
    entry: int
    """Entry of the head's output z that is checked, from 0."""
    by_hand: float
    """Σ_i dz_i of that entry, from the backward pass: the gradient of its value bias."""
    difference: float
    """The same gradient as a finite difference."""
    step: float
    """Step of the finite difference."""


class Candidate(NamedTuple):
    """One of the most likely next tokens, with its probability."""

    label: Label
    probability: float


class Step(NamedTuple):
    """One token of the answer and the most likely tokens at its position."""

    label: Label
    probability: float
    place: int
    """Row of the maps that predicts the token, from 0; -1 for the row of the whole text."""
    token: int
    """Token id."""
    candidates: tuple[Candidate, ...]
    """The most likely tokens, in descending order."""


class Node(NamedTuple):
    """A token in the tree of a search."""

    parent: int
    """Index of the parent node; −1 for the root, the begin token."""
    label: Label
    probability: float
    """Probability of this token given the tokens of its ancestors."""
    log_p: float
    """Σ log p of all tokens from the root to this one."""
    state: Literal["kept", "dropped", "end"]
    """kept: the search extended it; dropped: it did not; end: an answer ends here."""
    rank: int = 0
    """1 at the last token of the best answer, 2 of the second; 0 at all other tokens."""


Role = Literal[
    "embedding", "positions", "segments", "sum", "norm", "queries", "keys", "values", "scores",
    "softmax", "heads", "projection", "feed_forward", "residual", "transform", "mean", "pooler",
    "output",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Part:
    """One step of the forward pass, and its output rows."""

    role: Role
    stack: str
    side: Side
    """The side whose tokens the rows belong to."""
    layer: int | None = None
    """Number of the layer, from 0; None outside the layers."""
    block: int | None = None
    """Number of the residual block within the layer, from 0."""
    kind: str = ""
    """Variant of the part, such as "rms_norm" or "swiglu"; several are separated by spaces, as in
    "qk_norm rotary"."""
    shape: tuple[tuple[str, int], ...]
    """Shape of the output: the letter and the size of each axis."""
    tensors: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    """Parameters: name, shape, and, for a shared array, the name of its first parameter."""
    factor: float | None = None
    """Number that the part multiplies by."""
    map: str = ""
    """Full name of the attention layer that the part belongs to."""
    rows: Array | None = None
    """Output (T, n); None if the `Map` has the numbers."""
    drows: Array | None = None
    """Gradient of `rows`."""


@dataclass(frozen=True)
class Record:
    """All data for the picture of one sentence.

    source: the tokens that the encoder reads; target: those that the decoder reads. A model with
    only one of the two stacks has only that stack's tokens.
    """

    title: str
    model: Text
    source: tuple[Label, ...]
    target: tuple[Label, ...]
    maps: tuple[Map, ...]
    loss: float
    """Σ −log p of the predicted tokens, in nats; all recorded gradients are of this loss."""
    steps: tuple[Step, ...] = ()
    tree: tuple[Node, ...] = ()
    own: str = ""
    """The model's own answer, even if another one is shown; "" if it gives none."""
    answer: tuple[int, ...] | None = None
    """Ids of the tokens or labels of the answer shown; None if there is none: in a masked language
    model for a text without a mask."""
    ended: bool = True
    """Whether an end token follows the answer; False if it was cut off."""
    check: Check | None = None
    notes: tuple[Text, ...] = ()
    """Notes for the reader, such as unknown characters or an answer that did not end."""
    parts: tuple[Part, ...] = ()
    """All parts of the forward pass, in order."""
    name: str = ""
    """Name of the model, on a page that compares two."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that the model has, in the order in which they run."""
        return tuple(kind for kind in KINDS if any(m.kind == kind for m in self.maps))

    def labels(self, side: Side) -> tuple[Label, ...]:
        """Return the labels of the source or of the target."""
        return self.source if side == "source" else self.target

    def queries(self, kind: Kind) -> tuple[Label, ...]:
        """Return the labels of the rows of a kind's maps: the tokens of the queries."""
        return self.labels(KINDS[kind][0])

    def keys(self, kind: Kind) -> tuple[Label, ...]:
        """Return the labels of the columns of a kind's maps: the tokens of the keys."""
        return self.labels(KINDS[kind][1])

    def layers(self, kind: Kind) -> tuple[Map, ...]:
        """Return the maps of a kind, first layer first."""
        return tuple(m for m in self.maps if m.kind == kind)


def select_maps(
    record: Record, kind: Kind | None = None, layer: int | None = None, head: int | None = None
) -> tuple[Kind, tuple[Map, ...], range]:
    """Select maps of a record; return the kind, its layers, and its heads' indices from 0.

    kind: default, the last that the model has. layer, head: one of them, counted from 1; default,
    all. Raises `UsageError` for a kind, layer or head that the model lacks.
    """
    if not record.kinds:
        raise UsageError("there is no attention to draw: this model has no layers")
    kind = record.kinds[-1] if kind is None else kind
    if kind not in record.kinds:
        there, named = ", ".join(record.kinds), TITLES.get(kind, kind)
        raise UsageError(f"this model has no {named}; it has: {there}")
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
    """Choose the attention weight that a page shows first.

    kind: default, the last that the model has. layer, head: counted from 1; without them the head
    with the most mutual information of query and key (`Map.information`) is chosen. Its largest
    weight is the cell. The first row of a causal map is left out unless it is the only one, because
    that query sees only one key.

    Raises `UsageError` for a kind, layer or head that the model lacks.
    """
    kind, layers, heads = select_maps(record, kind, layer, head)
    each = [(float(m.information[h]), m, h) for m in layers for h in heads]
    _, m, chosen = max(each, key=lambda one: one[0])
    weights = m.probabilities[chosen]
    first = 1 if kind == "decoder" and len(weights) > 1 else 0
    query, key = np.unravel_index(weights[first:].argmax(), weights[first:].shape)
    return Cell(kind, m.layer - 1, chosen, int(query) + first, int(key))

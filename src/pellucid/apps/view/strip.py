"""The forward pass as a strip of parts, in the order and by the names of `models.describe`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.apps.view.record import Part, Role, Side
from pellucid.models import describe as d
from pellucid.models.positions import POSITIONS
from pellucid.nn.recorder import Rows

Array = np.ndarray
SIDES: dict[str, Side] = {"encoder": "source", "decoder": "target"}
LETTERS: dict[Side, str] = {"source": "S", "target": "L"}
PROJECTIONS: tuple[Role, ...] = ("queries", "keys", "values")


def parts_of(
    model: nn.Module, rows: Mapping[str, Rows], texts: Mapping[Side, Sequence[int]]
) -> tuple[Part, ...]:
    """Return every part of the forward pass of one sentence, in order.

    `rows` is what a recorder kept of it; `texts` are the ids that each stack read.

    Raises `TypeError` for a record of the description that has no place in the strip.
    """
    found: list[Part] = []
    for stack in SIDES:
        records = [record for record in d.describe(model) if record.stack == stack]
        found += _Stack(model, rows, texts, stack).parts(records)
    return tuple(found)


class _Stack:
    """The parts of one stack and of what follows it."""

    def __init__(
        self,
        model: Any,
        rows: Mapping[str, Rows],
        texts: Mapping[Side, Sequence[int]],
        stack: str,
    ) -> None:
        self.model, self.rows, self.stack = model, rows, stack
        self.ids = {side: np.asarray(text, np.int64) for side, text in texts.items()}
        self.side = SIDES[stack]
        self.rotary = False
        self.summed: Array | None = None
        """The sum of the embeddings, until it is a part itself."""
        self.before: tuple[int, int] = (-1, -1)
        """Layer and number of the residual step before."""

    @property
    def own(self) -> tuple[str, int]:
        """Letter and number of the stack's own rows."""
        return LETTERS[self.side], len(self.ids[self.side])

    def parts(self, records: Sequence[d.Record]) -> Iterator[Part]:
        for record in records:
            match record:
                case d.Embedding():
                    yield self._added("embedding", self._embedded(record), record, record.table)
                case d.Positions():
                    self.rotary = POSITIONS[record.kind].rotate is not None
                    places = self._embed.places
                    rows = None if places is None else places[: self.own[1]] * record.factor
                    yield self._added("positions", rows, record, record.table)
                case d.Norm():
                    yield from self._sum(record)
                    yield self._norm(record)
                case d.Dropout():  # off; the embeddings end here
                    yield from self._sum(None)
                case d.Residual():
                    yield from self._residual(record)
                case d.Transform():
                    tensors = (*_linear(record.linear), *_norm_tensors(record.norm))
                    yield self._made(
                        "transform", self.rows.get("head"), kind=record.activation, tensors=tensors
                    )
                case d.Output():
                    size = record.linear.weight.shape[0]
                    yield Part(
                        role="output",
                        stack=self.stack,
                        side=self.side,
                        shape=(self.own, ("V", size)),
                        tensors=_linear(record.linear),
                    )
                case d.Pooler():
                    pass  # not on the way to the tokens
                case _:
                    raise TypeError(
                        f"{type(record).__name__} has no place in the strip; add it to "
                        "view/strip.py"
                    )

    def _made(self, role: Role, seen: Rows | None, **rest: Any) -> Part:
        """A part whose rows are E wide, from what the recorder has of it."""
        return Part(
            role=role,
            stack=self.stack,
            side=self.side,
            shape=(self.own, ("E", self.model.config.d_model)),
            rows=None if seen is None else seen.y,
            drows=None if seen is None else seen.dy,
            **rest,
        )

    # embeddings

    @property
    def _embed(self) -> Any:
        """The module that makes the stack's first rows."""
        shapes = d.STACKS[self.model.config.model_type]
        return getattr(self.model, next(s.embed for s in shapes if s.name == self.stack))

    def _embedded(self, record: d.Embedding) -> Array:
        ids = self.ids[self.side]
        if record.ids == "segments":
            table, ids = self._embed.segments.weight.data, np.zeros_like(ids)
        else:
            table = self._embed.tokens.weight.data
        rows: Array = table[ids] * record.factor
        return rows

    def _added(
        self,
        role: Role,
        rows: Array | None,
        record: d.Embedding | d.Positions,
        table: d.Tensor | None,
    ) -> Part:
        if rows is not None:
            self.summed = rows if self.summed is None else self.summed + rows
        kind = record.ids if isinstance(record, d.Embedding) else record.kind
        return self._made(
            role,
            None if rows is None else Rows(rows, rows),
            kind=kind,
            factor=record.factor,
            tensors=_tensors(table),
        )

    def _sum(self, norm: d.Norm | None) -> Iterator[Part]:
        """Yield the sum of the embeddings, once."""
        if self.summed is None:
            return
        first = self.rows.get(f"{self.stack}.layers.0.0")
        gradient = None if first is None or norm is not None else first.dx
        yield self._made("sum", Rows(self.summed, self.summed, None, gradient))
        self.summed = None

    def _norm(self, record: d.Norm) -> Part:
        """A norm over the embeddings, or the last of the stack."""
        name = record.weight.name.removesuffix(".weight")
        seen = self.rows.get(name)
        if seen is None and (first := self.rows.get(f"{self.stack}.layers.0.0")) is not None:
            seen = Rows(first.x, first.x, None, first.dx)
        return self._made("norm", seen, kind=record.kind, tensors=_norm_tensors(record))

    # layers

    def _residual(self, record: d.Residual) -> Iterator[Part]:
        layer, number = self.before
        block = number + 1 if layer == record.layer else 0
        self.before = record.layer, block
        at: dict[str, Any] = {"layer": record.layer, "block": block}
        name = f"{self.stack}.layers.{record.layer}.{block}"
        step, sublayer = self.rows[name], self.rows[f"{name}.sublayer"]
        norm = at | {"kind": record.norm.kind, "tensors": _norm_tensors(record.norm)}
        before = Rows(step.x, sublayer.x, step.dx, sublayer.dx)
        added = Rows(step.x, step.x + sublayer.y, step.dx, sublayer.dy)
        if record.placement == "pre":
            yield self._made("norm", before, **norm)
            yield from self._sublayer(record.sublayer, sublayer, at)
            yield self._made("residual", step, **at)
        else:
            yield from self._sublayer(record.sublayer, sublayer, at)
            yield self._made("residual", added, **at)
            yield self._made("norm", step, **norm)

    def _sublayer(
        self, record: d.Attention | d.FeedForward, seen: Rows, at: dict[str, Any]
    ) -> Iterator[Part]:
        if isinstance(record, d.FeedForward):
            tensors = (*_linear(record.linear1), *_linear(record.linear2))
            yield self._made("feed_forward", seen, kind=record.activation, tensors=tensors, **at)
            return
        yield from self._heads(record, at)
        yield self._made("projection", seen, tensors=_linear(record.out_proj), **at)

    def _heads(self, record: d.Attention, at: dict[str, Any]) -> Iterator[Part]:
        """The parts whose numbers are in the attention map."""
        at = at | {
            "stack": self.stack,
            "side": self.side,
            "map": record.in_proj.weight.name.removesuffix(".in_proj_weight"),
        }
        keys = self.own
        if record.over == "memory":
            keys = LETTERS["source"], len(self.ids["source"])
        heads, width = ("H", record.heads), ("D", record.head_width)
        rotated = "rotary" if self.rotary and record.over == "self" else ""
        groups, shared = heads, ""
        if record.key_value_heads is not None:
            groups, shared = ("G", record.key_value_heads), "shared"
        norms = record.q_norm, record.k_norm, None
        start = 0
        for role, norm in zip(PROJECTIONS, norms, strict=True):
            own = role == "queries"
            end = start + (heads if own else groups)[1] * record.head_width
            tensors = tuple(
                (f"{name}[{start}:{end}]", (end - start, *shape[1:]), same_as)
                for name, shape, same_as in _linear(record.in_proj)
            )
            kinds = (
                "qk_norm" if norm is not None else "",
                "" if role == "values" else rotated,
                "" if own else shared,
            )
            yield Part(
                role=role,
                kind=" ".join(filter(None, kinds)),
                shape=(heads if own else groups, self.own if own else keys, width),
                tensors=(*tensors, *(() if norm is None else _norm_tensors(norm))),
                **at,
            )
            start = end
        square = (heads, self.own, keys)
        yield Part(
            role="scores",
            shape=square,
            factor=record.scale,
            tensors=_tensors(record.head_scale),
            kind="causal" if record.causal else "",
            **at,
        )
        yield Part(role="softmax", shape=square, **at)
        yield Part(role="heads", shape=(heads, self.own, width), **at)


def _tensors(*tensors: d.Tensor | None) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    return tuple((t.name, t.shape, t.same_as or "") for t in tensors if t is not None)


def _linear(linear: d.Linear) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    return _tensors(linear.weight, linear.bias)


def _norm_tensors(norm: d.Norm) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    return _tensors(norm.weight, norm.bias)

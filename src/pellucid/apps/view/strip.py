"""The forward pass as a list of parts, in order, named by the modules of the model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.apps.view.record import Part, Role, Side
from pellucid.models.stack import ModelStack, Step
from pellucid.models.walk import score_factor, stacks_of
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import FeedForward
from pellucid.nn.layers import Norm
from pellucid.nn.module import Parameter
from pellucid.nn.recorder import Rows

LETTERS: dict[Side, str] = {"source": "S", "target": "L"}
Tensor = tuple[str, tuple[int, ...], str]
"""Name, shape, and, for a shared array, the name of its first parameter."""


def parts_of(
    model: nn.Module, rows: Mapping[str, Rows], texts: Mapping[Side, Sequence[int]]
) -> tuple[Part, ...]:
    """Return all parts of the forward pass of one sentence, in order.

    rows: outputs and gradients that a recorder kept, by the part's name. texts: the token ids that
    each stack read.
    """
    strips = [_Strip(model, rows, texts, stack) for stack in stacks_of(model).values()]
    found = [part for strip in strips for part in strip.parts()]
    return (*found, *strips[-1].head())


class _Strip:
    """The parts of one stack, and of the output layers after it."""

    def __init__(
        self,
        model: Any,
        rows: Mapping[str, Rows],
        texts: Mapping[Side, Sequence[int]],
        stack: ModelStack,
    ) -> None:
        self.model, self.rows, self.stack = model, rows, stack
        self.ids = {side: np.asarray(text, np.int64) for side, text in texts.items()}
        self.side: Side = "source" if stack.name == "encoder" else "target"
        self.own = LETTERS[self.side], len(self.ids[self.side])  # letter and number of its tokens
        self.names = {id(module): name for name, module in model.named_modules()}
        self.first = {id(parameter): name for name, parameter in model.named_parameters()}

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the stack: embeddings, layers, final norm."""
        yield from self._embeddings()
        for step in self.stack.steps:
            yield from self._residual(step)
        if self.stack.norm is not None:
            yield self._norm(self.stack.norm)

    def head(self) -> Iterator[Part]:
        """Yield the parts between the last stack and the predicted tokens."""
        c = self.model.config
        if (head := getattr(self.model, "head", None)) is not None:
            seen = self.rows.get("head")
            yield self._made("transform", seen, head.dense, head.norm, kind=head.activation)
        at: dict[str, Any] = {"stack": self.stack.name, "side": self.side}
        rows: tuple[tuple[str, int], ...] = (self.own,)
        if getattr(c, "labels", "") == "text":
            rows, pooler = (), self.model.pooler
            role: Role = "mean" if pooler is None else "pooler"
            yield Part(role=role, shape=(("E", c.d_model),), tensors=self._tensors(pooler), **at)
        if (output := self.model.output) is not None:
            shape = (*rows, ("V", output.out_features))
            yield Part(role="output", shape=shape, tensors=self._tensors(output), **at)

    def _made(self, role: Role, seen: Rows | None, *modules: nn.Module | None, **rest: Any) -> Part:
        """Make a part whose output is E wide, with the parameters of its modules.

        seen: its recorded rows, or None.
        """
        return Part(
            role=role,
            stack=self.stack.name,
            side=self.side,
            shape=(self.own, ("E", self.model.config.d_model)),
            rows=None if seen is None else seen.y,
            drows=None if seen is None else seen.dy,
            tensors=self._tensors(*modules),
            **rest,
        )

    def _embeddings(self) -> Iterator[Part]:
        """Yield the parts that make the first rows: token embeddings, positions, their sum."""
        embed, c, ids = self.stack.embed, self.stack.embed.config, self.ids[self.side]
        summed = embed.tokens.weight.data[ids] * c.token_factor
        seen: Rows | None = Rows(summed, summed)
        yield self._made("embedding", seen, embed.tokens, kind="tokens", factor=c.token_factor)
        seen = None  # nothing is added for positions that are rotations, or in the scores
        if embed.places is not None:
            rows = embed.places[: len(ids)] * c.position_factor
            seen, summed = Rows(rows, rows), summed + rows
        at = {"kind": c.positions, "factor": c.position_factor}
        yield self._made("positions", seen, embed.positions, **at)
        if embed.segments is not None:
            rows = embed.segments.weight.data[np.zeros_like(ids)]
            seen, summed = Rows(rows, rows), summed + rows
            yield self._made("embedding", seen, embed.segments, kind="segments", factor=1.0)
        first = self.rows.get(f"{self.stack.name}.layers.0.0")
        gradient = None if first is None or embed.norm is not None else first.dx
        yield self._made("sum", Rows(summed, summed, None, gradient))
        if embed.norm is not None:
            yield self._norm(embed.norm)

    def _norm(self, norm: Norm) -> Part:
        """Make the part of a norm after the embeddings, or after the last layer."""
        seen = self.rows.get(self.names[id(norm)])
        if seen is None and (first := self.rows.get(f"{self.stack.name}.layers.0.0")) is not None:
            seen = Rows(first.x, first.x, None, first.dx)
        return self._made("norm", seen, norm, kind=norm.kind)

    # layers

    def _residual(self, step: Step) -> Iterator[Part]:
        """Yield the parts of one residual step: norm, sublayer and sum, in their order."""
        at: dict[str, Any] = {"layer": step.layer, "block": step.number}
        name = f"{self.stack.name}.layers.{step.layer}.{step.number}"
        whole, sublayer = self.rows[name], self.rows[f"{name}.sublayer"]
        norm = step.block.norm
        before = Rows(whole.x, sublayer.x, whole.dx, sublayer.dx)
        added = Rows(whole.x, whole.x + sublayer.y, whole.dx, sublayer.dy)
        if step.norm_first:
            yield self._made("norm", before, norm, kind=norm.kind, **at)
            yield from self._sublayer(step, sublayer, at)
            yield self._made("residual", whole, **at)
        else:
            yield from self._sublayer(step, sublayer, at)
            yield self._made("residual", added, **at)
            yield self._made("norm", whole, norm, kind=norm.kind, **at)

    def _sublayer(self, step: Step, seen: Rows, at: dict[str, Any]) -> Iterator[Part]:
        """Yield the parts of a feed-forward network or of an attention layer."""
        body = step.block.body
        if isinstance(body, FeedForward):
            network = body.linear1, body.linear2
            yield self._made("feed_forward", seen, *network, kind=body.activation, **at)
            return
        yield from self._heads(body, step.block.memory, at)
        yield self._made("projection", seen, body.out_proj, **at)

    def _heads(self, attention: Attention, memory: bool, at: dict[str, Any]) -> Iterator[Part]:
        """Yield the parts of an attention layer whose numbers are in its map."""
        c, name = attention.config, self.names[id(attention)]
        at = at | {"stack": self.stack.name, "side": self.side, "map": name}
        keys = (LETTERS["source"], len(self.ids["source"])) if memory else self.own
        heads, groups, width = ("H", c.num_heads), ("H", c.num_heads), ("D", c.head_width)
        rotated, shared = "" if c.rotate is None else "rotary", ""
        if c.groups != c.num_heads:
            groups, shared = ("G", c.groups), "shared"
        projections: tuple[tuple[Role, Any, Any, Norm | None, list[str]], ...] = (
            ("queries", heads, self.own, attention.q_norm, [rotated]),
            ("keys", groups, keys, attention.k_norm, [rotated, shared]),
            ("values", groups, keys, None, [shared]),
        )
        start = 0
        for role, several, tokens, norm, kinds in projections:
            end = start + several[1] * c.head_width
            tensors = tuple(
                (f"{name}.{which}[{start}:{end}]", (end - start, *parameter.shape[1:]), "")
                for which in ("in_proj_weight", "in_proj_bias")
                if (parameter := getattr(attention, which)) is not None
            )
            kinds = ["qk_norm" if norm is not None else "", *kinds]
            yield Part(
                role=role,
                kind=" ".join(filter(None, kinds)),
                shape=(several, tokens, width),
                tensors=(*tensors, *self._tensors(norm)),
                **at,
            )
            start = end
        scale = attention.head_scale
        square = (heads, self.own, keys)
        yield Part(
            role="scores",
            shape=square,
            factor=score_factor(c),
            tensors=() if scale is None else (self._tensor(f"{name}.head_scale", scale),),
            kind="causal" if self.stack.causal and not memory else "",
            **at,
        )
        yield Part(role="softmax", shape=square, **at)
        yield Part(role="heads", shape=(heads, self.own, width), **at)

    def _tensors(self, *modules: nn.Module | None) -> tuple[Tensor, ...]:
        """Describe the weights and biases of modules."""
        return tuple(
            self._tensor(f"{self.names[id(module)]}.{name}", parameter)
            for module in modules
            for name in ("weight", "bias")
            if (parameter := getattr(module, name, None)) is not None
        )

    def _tensor(self, name: str, parameter: Parameter) -> Tensor:
        """Describe one parameter; see `Tensor`."""
        first = self.first[id(parameter)]
        return name, parameter.shape, "" if first == name else first

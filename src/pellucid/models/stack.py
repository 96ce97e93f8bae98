"""A stack of layers with the embeddings that enter it; every model consists of these."""

from dataclasses import dataclass
from typing import NamedTuple

from pellucid.core.array import Array, host
from pellucid.core.batch import Packed
from pellucid.core.rng import Rng
from pellucid.models.embed import Embed
from pellucid.nn.attention import Attention, rule_of
from pellucid.nn.blocks import Block, FeedForward
from pellucid.nn.context import Cache, Context, Memory
from pellucid.nn.layers import Norm
from pellucid.nn.module import Forward, single_use
from pellucid.nn.transformer import Stack
from pellucid.ops.rule import EVERYTHING, Rule
from pellucid.ops.rules.distances import Distances


class Step(NamedTuple):
    """One residual step of a stack: x + f(norm(x)) if `norm_first`, else norm(x + f(x))."""

    layer: int
    number: int
    """Number of the step within its layer, from 0."""
    block: Block
    norm_first: bool


@dataclass(frozen=True)
class ModelStack:
    """A stack of a model with the embeddings that enter it."""

    name: str
    """Its attribute of the model: "encoder", or "decoder", whose rows look back only."""
    embed: Embed
    body: Stack

    def run(
        self,
        text: Packed,
        rng: Rng | None = None,
        sites: tuple[int, int] = (0, 1),
        *,
        memory: Memory | None = None,
        cache: Cache | None = None,
        inference: bool = False,
        segments: Array | None = None,
        positions: Array | None = None,
    ) -> Forward:
        """Return (rows (T, E), backward); `backward(drows)` returns dmemory, None without one.

        `positions` (T,) are the tokens', unless given their places in the text. `sites` key the
        dropout of embeddings and of layers. `inference`: dropout is off, whatever mode the model is
        in.
        """
        named = None if rng is None else rng.at(text.rows)
        first, second = (None if named is None else named.fold(i) for i in sites)
        x, embed_backward = self.embed.forward(
            text.tokens,
            text.positions if positions is None else positions,
            rng=first,
            inference=inference,
            segments=segments,
        )
        context = Context(
            cu_seqlens=text.cu_seqlens,
            causal=self.causal,
            positions=positions,
            memory=memory,
            cache=cache,
            rng=second,
            inference=inference,
            path=self.name,
        )
        rows, body_backward = self.body.run(x, context)

        @single_use
        def backward(drows: Array) -> Array | None:
            dx, dmemory = body_backward(drows)
            embed_backward(dx)
            return dmemory

        return rows, backward

    @property
    def causal(self) -> bool:
        """Whether a row attends only to itself and to rows before it."""
        return self.name == "decoder"

    @property
    def norm(self) -> Norm | None:
        """The norm at the end."""
        norm = self.body.norm
        assert norm is None or isinstance(norm, Norm)  # torch's own stacks may have any module
        return norm

    @property
    def steps(self) -> list[Step]:
        """The residual steps, first to last."""
        return [
            Step(i, number, block, layer.norm_first)
            for i, layer in enumerate(self.body.layers)
            for number, block in enumerate(layer.blocks())
        ]

    def attentions(self, memory: bool = False) -> list[Attention]:
        """Return the attentions to the stack's own rows, or to the memory, layer by layer."""
        blocks = (step.block for step in self.steps if step.block.memory == memory)
        return [block.body for block in blocks if isinstance(block.body, Attention)]

    def networks(self) -> list[FeedForward]:
        """Return the feed-forward networks, first to last."""
        return [step.block.body for step in self.steps if isinstance(step.block.body, FeedForward)]

    def rule(self, attention: Attention, memory: bool = False) -> Rule:
        """Return the rule of one attention: which keys a query sees, and changes to the scores."""
        causal = self.causal and not memory
        return rule_of(attention, causal, EVERYTHING)

    def distances(self, attention: Attention) -> tuple[Array, int] | None:
        """Return the score bias at distances −reach … reach, (H, 2 · reach + 1), and reach.

        A distance is that of query from key; the outermost stand for all beyond. None where nothing
        is added.
        """
        longest, c = self.embed.config.max_position_embeddings, attention.config
        reach = longest - 1 if c.relative is None else c.relative.longest
        parts = [part for part in self.rule(attention).score if isinstance(part, Distances)]
        if not parts:
            return None
        each = [part.values(host.arange(-reach, reach + 1), c.num_heads)[0] for part in parts]
        return sum(each[1:], each[0]).astype(self.embed.tokens.weight.learnt.dtype), reach

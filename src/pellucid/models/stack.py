"""A stack of layers together with its embeddings; every model consists of one or two of them."""

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
    """The number of the step within its layer, from 0."""
    block: Block
    norm_first: bool


@dataclass(frozen=True)
class ModelStack:
    """A stack of a model together with its embeddings."""

    name: str
    """The model's attribute that holds it: "encoder", or "decoder", which is causal."""
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
        """Embed tokens and run the layers; return (rows (T, E), backward).

        `backward(drows)` returns dmemory, None if no layer uses a memory. `positions` (T,) are by
        default counted from 0 in each sequence. `sites` are folded into the rng for the dropout of
        the embeddings and of the layers. `inference` switches dropout off even in training mode.
        Raises as `Embed.forward` does.
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
        """Whether self-attention is causal."""
        return self.name == "decoder"

    @property
    def norm(self) -> Norm | None:
        """The norm at the end of the stack, or None."""
        norm = self.body.norm
        assert norm is None or isinstance(norm, Norm)  # `Stack` alone accepts any module
        return norm

    @property
    def steps(self) -> list[Step]:
        """The residual steps of all layers, in order."""
        return [
            Step(i, number, block, layer.norm_first)
            for i, layer in enumerate(self.body.layers)
            for number, block in enumerate(layer.blocks())
        ]

    def attentions(self, memory: bool = False) -> list[Attention]:
        """Return the self-attention of each layer or, with `memory`, its cross-attention."""
        blocks = (step.block for step in self.steps if step.block.memory == memory)
        return [block.body for block in blocks if isinstance(block.body, Attention)]

    def networks(self) -> list[FeedForward]:
        """Return the feed-forward networks of all layers, in order."""
        return [step.block.body for step in self.steps if isinstance(step.block.body, FeedForward)]

    def rule(self, attention: Attention, memory: bool = False) -> Rule:
        """Return the attention rule of one of the layers; `memory`: it is cross-attention."""
        causal = self.causal and not memory
        return rule_of(attention, causal, EVERYTHING)

    def distances(self, attention: Attention) -> tuple[Array, int] | None:
        """Return the bias of the scores by distance, (H, 2 · reach + 1), and reach; None if none.

        `attention` is self-attention. The columns are the distances query − key from −reach to
        reach; the first and last also hold for all larger distances that the model can have.
        """
        longest, c = self.embed.config.max_position_embeddings, attention.config
        reach = longest - 1 if c.relative is None else c.relative.longest
        parts = [part for part in self.rule(attention).score if isinstance(part, Distances)]
        if not parts:
            return None
        each = [part.values(host.arange(-reach, reach + 1), c.num_heads)[0] for part in parts]
        return sum(each[1:], each[0]).astype(self.embed.tokens.weight.learnt.dtype), reach

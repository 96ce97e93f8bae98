"""The decoder alone, which continues a text: the GPT half of the Transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pellucid import nn
from pellucid.core.array import Array, float32, host, like, namespace, spread
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng
from pellucid.models.config import CausalLMConfig
from pellucid.models.embed import Embed
from pellucid.models.layers import encoder_of
from pellucid.models.output import LossSum, output_layer, output_loss
from pellucid.models.stack import ModelStack
from pellucid.models.state import State, decode_step
from pellucid.nn.module import Forward, single_use


class CausalLM(nn.Module):
    """A Transformer whose rows look back only: p(token | the tokens before it).

    A decoder layer without a memory to look at is an encoder layer under a causal mask. A training
    pair is read as one text, source then target; the target's tokens after its first are predicted.
    With empty sources it is a plain language model, with others it answers as a `Seq2Seq` does.
    Source: Radford et al. 2018, 2019 (GPT, GPT-2); article 001.

    >>> config = CausalLMConfig(vocab_size=11, d_model=8, num_attention_heads=2, ffn_dim=17)
    >>> model = CausalLM(config, seed=0).eval()
    >>> model(Packed.of([[1, 5, 6], [1, 7]])).shape
    (5, 11)
    """

    def __init__(self, config: CausalLMConfig, seed: int = 0, dtype: Any = float32) -> None:
        self.config = config
        self.embed = Embed(config, config.vocab_size, dtype)
        self.decoder = encoder_of(config, config.num_hidden_layers, dtype)
        self.output = output_layer(config, self.embed.tokens, dtype)
        self.initialise(seed)

    def stacks(self) -> dict[str, ModelStack]:
        """Return the stack with the embeddings that enter it."""
        return {"decoder": ModelStack("decoder", self.embed, self.decoder)}

    @property
    def dtype(self) -> Any:
        """The dtype of the parameters."""
        return self.output.weight.data.dtype

    def rows(
        self,
        text: Packed,
        rng: Rng | None = None,
        cache: nn.Cache | None = None,
        inference: bool = False,
    ) -> Forward:
        """Return (rows (T, E), each of which predicts the token after it; backward).

        With a cache the keys and values of the text are kept in it. `inference`: dropout is off,
        whatever mode the model is in.
        """
        return self.stacks()["decoder"].run(text, rng, cache=cache, inference=inference)

    def forward(self, text: Packed, *, rng: Rng | None = None) -> Forward:
        """Return (logits (T, V) of the token after each, backward)."""
        rows, rows_backward = self.rows(text, rng)
        logits, output_backward = self.output.forward(rows)

        @single_use
        def backward(dlogits: Array) -> None:
            rows_backward(output_backward(dlogits))

        return logits, backward

    def loss(
        self,
        batch: Batch,
        rng: Rng | None = None,
        label_smoothing: float = 0.0,
    ) -> tuple[LossSum, Callable[[float], None]]:
        """Return the summed cross-entropy of the targets, and its backward.

        `backward(scale)` adds the gradients of scale · loss to every parameter. While training
        with dropout an `rng` is needed; it is keyed by the batch's example numbers and positions.
        """
        text = batch.source.followed_by(batch.target.without_last())
        rows, rows_backward = self.rows(text, rng)
        sources = host.repeat(batch.source.lengths, text.lengths)
        asked = host.flatnonzero(text.positions >= sources)
        wanted = batch.target.without_first().tokens
        asked_rows = namespace(rows).take(rows, like(asked, rows), axis=0)
        loss, loss_backward = output_loss(self.output, asked_rows, wanted, label_smoothing)

        @single_use
        def backward(scale: float = 1.0) -> None:
            rows_backward(spread(loss_backward(scale), asked, rows.shape[0]))

        return loss, backward

    # decoding

    def room(self, source: Packed) -> Array:
        """Return the most tokens that each of these texts can be continued by: (N,)."""
        room: Array = self.config.max_position_embeddings - 1 - source.lengths
        return room

    def start(self, source: Packed) -> State:
        """Return the state after reading each source, which may be empty.

        Raises `ValueError` past the last position.
        """
        cache = nn.Cache()
        if len(source.tokens):
            self.rows(source, cache=cache, inference=True)
        return State(cache, source.lengths)

    def step(self, state: State, tokens: Array) -> tuple[Array, State]:
        """Feed one token to every text; return (log-probabilities (B, V) of the next, state).

        tokens: (B,). Raises `ValueError` past the last position.
        """
        return decode_step(self.stacks()["decoder"], self.output, state, tokens)

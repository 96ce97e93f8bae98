"""A decoder-only language model, as GPT: it continues a text."""

from typing import Any, ClassVar

from pellucid import nn
from pellucid.core.array import Array, float32, host, repeat
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng
from pellucid.models.config import CausalLMConfig
from pellucid.models.embed import Embed
from pellucid.models.layers import stack_of
from pellucid.models.model import GenerativeModel, Predicting, State
from pellucid.models.output import output_layer, taken
from pellucid.nn.module import Forward


class CausalLM(GenerativeModel):
    """A decoder-only Transformer that predicts the next token: p(token | the tokens before it).

    Without cross-attention, a decoder layer is an encoder layer with a causal mask. A training pair
    is one text, the source followed by the target; the loss is that of the target's tokens after
    its first. With empty sources this is a language model; with sources it answers them, as a
    `Seq2Seq` does. Source: Radford et al. 2018, 2019 (GPT, GPT-2); article 001.

    >>> config = CausalLMConfig(vocab_size=11, d_model=8, num_attention_heads=2, ffn_dim=17)
    >>> model = CausalLM(config, seed=0).eval()
    >>> model(Packed.of([[1, 5, 6], [1, 7]])).shape
    (5, 11)
    """

    entrances: ClassVar = {"decoder": "embed"}

    def __init__(self, config: CausalLMConfig, seed: int = 0, dtype: Any = float32) -> None:
        self.config = config
        self.embed = Embed(config, config.vocab_size, dtype)
        self.decoder = stack_of(config, config.num_hidden_layers, dtype)
        self.output = output_layer(config, config.vocab_size, dtype, self.embed.tokens)
        self.initialise(seed)

    def rows(
        self,
        text: Packed,
        rng: Rng | None = None,
        cache: nn.Cache | None = None,
        inference: bool = False,
    ) -> Forward:
        """Compute the hidden states; return (rows (T, E), backward).

        The row of each text's token t predicts its token t + 1. `backward(drows)` returns None.
        With a cache, the keys and values of the text are appended to it; it must be empty, since
        positions are counted from 0. `inference` switches dropout off even in training mode.
        """
        return self.stacks()["decoder"].run(text, rng, cache=cache, inference=inference)

    def forward(self, text: Packed, *, rng: Rng | None = None) -> Forward:
        """Return (logits (T, V), backward); row t has the logits of the token after token t.

        `backward(dlogits)` returns None, since tokens have no gradient.
        """
        return self.logits(*self.rows(text, rng))

    def reads(self, batch: Batch) -> dict[str, Packed]:
        """Return the decoder's input: each source followed by its target without the last token."""
        return {"decoder": batch.source.followed_by(batch.target.without_last())}

    def predicting(self, batch: Batch, rng: Rng | None, inference: bool = False) -> Predicting:
        """Return the rows that predict the target's tokens, these tokens, and backward.

        See `Model.predicting`.
        """
        text = self.reads(batch)["decoder"]
        rows, rows_backward = self.rows(text, rng, inference=inference)
        sources = repeat(batch.source.lengths, text.lengths)
        asked, asked_backward = taken(rows, host.flatnonzero(text.positions >= sources))
        wanted = batch.target.without_first().tokens
        return asked, wanted, lambda dasked: rows_backward(asked_backward(dasked))

    def room(self, source: Packed) -> Array:
        """Return how many tokens at most can follow each text, (N,); below 0 if it is too long."""
        room: Array = self.config.max_position_embeddings - 1 - source.lengths
        return room

    def start(self, source: Packed) -> State:
        """Run the sources, which may be empty; return the state after them.

        Raises `ValueError` if a source is longer than the model's positions.
        """
        cache = nn.Cache()
        if len(source.tokens):
            self.rows(source, cache=cache, inference=True)
        return State(cache, source.lengths)

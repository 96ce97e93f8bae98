"""The encoder-decoder Transformer of the paper, with embeddings and output layer."""

from typing import Any, ClassVar

from pellucid import nn
from pellucid.core.array import Array, float32, host
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng
from pellucid.models.config import Seq2SeqConfig
from pellucid.models.embed import Embed
from pellucid.models.layers import stack_of
from pellucid.models.model import GenerativeModel, Predicting, State
from pellucid.nn.init import xavier_uniform
from pellucid.nn.module import Forward, single_use


class Seq2Seq(GenerativeModel):
    """An encoder-decoder Transformer over packed batches: p(target | source).

    Parameters are initialised from (seed, full name). Source: Vaswani et al. 2017; article 003.

    >>> config = Seq2SeqConfig(11, 13, d_model=8, num_attention_heads=2, ffn_dim=17)
    >>> model = Seq2Seq(config, seed=0).eval()
    >>> batch = Batch(Packed.of([[5, 6, 7]]), Packed.of([[1, 4, 2]]))
    >>> loss, backward = model.loss(batch)
    >>> loss.tokens
    2
    """

    entrances: ClassVar = {"encoder": "source", "decoder": "target"}

    def __init__(self, config: Seq2SeqConfig, seed: int = 0, dtype: Any = float32) -> None:
        self.config = config
        e = config.d_model
        self.source = Embed(config, config.source_vocab_size, dtype)
        self.target = Embed(config, config.target_vocab_size, dtype)
        self.encoder = stack_of(config, config.encoder_layers, dtype)
        self.decoder = stack_of(config, config.decoder_layers, dtype, memory=True)
        self.output = nn.Linear(
            e, config.target_vocab_size, config.output_bias, dtype=dtype, seed=None
        )
        self.output.weight.init = xavier_uniform
        if config.ties_output:
            self.output.weight = self.target.tokens.weight
        if config.ties_source:
            self.source.tokens.weight = self.target.tokens.weight
        self.initialise(seed)

    def decode_rows(
        self,
        batch: Batch,
        rng: Rng | None = None,
        inference: bool = False,
    ) -> Forward:
        """Compute the decoder's hidden states; return (rows (T, E), backward).

        The T rows are those of the targets without their last tokens: the row of a target's token t
        predicts its token t + 1. `backward(drows)` returns None. `inference` switches dropout off
        even in training mode.
        """
        (source, target), stacks = self.reads(batch).values(), self.stacks()
        memory, encoder_backward = stacks["encoder"].run(source, rng, (0, 2), inference=inference)
        rows, decoder_backward = stacks["decoder"].run(
            target,
            rng,
            (1, 3),
            memory=nn.Memory(memory, source.cu_seqlens),
            inference=inference,
        )

        @single_use
        def backward(drows: Array) -> None:
            dmemory = decoder_backward(drows)
            if dmemory is not None:
                encoder_backward(dmemory)

        return rows, backward

    def reads(self, batch: Batch) -> dict[str, Packed]:
        """Return the inputs: the sources, and the targets without their last tokens."""
        return {"encoder": batch.source, "decoder": batch.target.without_last()}

    def predicting(self, batch: Batch, rng: Rng | None, inference: bool = False) -> Predicting:
        """Return the rows that predict the target's tokens, these tokens, and backward.

        See `Model.predicting`.
        """
        rows, rows_backward = self.decode_rows(batch, rng, inference)
        return rows, batch.target.without_first().tokens, rows_backward

    def room(self, source: Packed) -> Array:
        """Return the maximum number of tokens of the answer to each source, (N,).

        It is one less than the model's positions, whatever the source is.
        """
        return host.full(len(source), self.config.max_position_embeddings - 1)

    def encode(self, source: Packed) -> Array:
        """Run the encoder without dropout; return its output, packed rows (U, E)."""
        return self.stacks()["encoder"].run(source, inference=True)[0]

    def start(self, source: Packed) -> State:
        """Encode the sources; return the state before the first token of each.

        Raises `ValueError` if a source is longer than the model's positions.
        """
        memory = nn.Memory(self.encode(source), source.cu_seqlens)
        return State(nn.Cache(), host.zeros(len(source), host.int64), memory)

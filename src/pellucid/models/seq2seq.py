"""The encoder-decoder: embeddings, positions, Transformer, output layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pellucid import kernels, nn, ops
from pellucid.models.cache import Cache, run_step, start_cache
from pellucid.models.config import Seq2SeqConfig
from pellucid.models.layers import DecoderLayer, EncoderLayer
from pellucid.nn.module import Array, Forward, Init, normal, uniform, way_back, xavier_uniform
from pellucid.nn.recorder import Recorder, inside
from pellucid.packed import Batch, Packed
from pellucid.rng import Rng


class LossSum(NamedTuple):
    """A loss before it is divided by anything."""

    nats: float
    tokens: int


@dataclass(frozen=True)
class State:
    """Where a decoder stands: what it has said to itself, and the memory it looks at."""

    cache: Cache
    position: int

    def select(self, rows: Array) -> State:
        """Return the state of these hypotheses, in this order; one may come several times."""
        return replace(self, cache=self.cache.select(rows))


def table_init(how: str | float, width: int) -> Init:
    """Return how a table of embeddings gets its first values."""
    if how == "xavier":
        return xavier_uniform
    return normal(width**-0.5 if isinstance(how, str) else how)


class Embed(nn.Module):
    """dropout(token · s + position · p): what enters a stack. Vaswani et al. 2017, 3.4, 3.5."""

    def __init__(self, config: Seq2SeqConfig, vocab_size: int, dtype: Any) -> None:
        e = config.d_model
        self.config = config
        padding = config.pad_token_id if config.padding_row_zero else None
        self.tokens = nn.Embedding(vocab_size, e, padding, dtype=dtype, seed=None)
        self.tokens.init_with(table_init(config.token_init, e))
        longest = config.max_position_embeddings
        self.positions: nn.Embedding | None = None
        self.table: Array | None = None
        if config.positions == "learned":
            self.positions = nn.Embedding(longest, e, dtype=dtype, seed=None)
            self.positions.init_with(table_init(config.position_init, e))
        else:
            self.table = ops.sinusoidal(longest, e).astype(dtype)
        p = config.embedding_dropout
        self.dropout = nn.Dropout(config.dropout if p is None else p)

    def forward(self, tokens: Array, positions: Array, *, rng: Rng | None = None) -> Forward:
        """Return (rows (T, E), backward). Raises `ValueError` for a position past the last."""
        longest = self.config.max_position_embeddings
        if len(positions) and int(positions.max()) >= longest:
            raise ValueError(
                f"a sequence of {int(positions.max()) + 1} tokens is longer than the model's "
                f"{longest} positions; split it, or train with more max_position_embeddings"
            )
        s, p = self.config.token_factor, self.config.position_factor
        token_rows, tokens_backward = self.tokens.forward(tokens)
        positions_backward = None
        if self.positions is not None:
            position_rows, positions_backward = self.positions.forward(positions)
        else:
            assert self.table is not None
            position_rows = self.table[positions]
        dtype = token_rows.dtype.type
        x = token_rows * dtype(s) + position_rows * dtype(p)
        y, dropout_backward = self.dropout.forward(x, rng=rng)

        @way_back
        def backward(dy: Array) -> None:
            dx = dropout_backward(dy)
            tokens_backward(dx * dtype(s))
            if positions_backward is not None:
                positions_backward(dx * dtype(p))

        return y, backward


class Seq2Seq(nn.Module):
    """An encoder-decoder Transformer over packed batches.

    Every parameter is drawn from (seed, its full name). Source: Vaswani et al. 2017; seed 003.

    >>> config = Seq2SeqConfig(11, 13, d_model=8, num_attention_heads=2, ffn_dim=17)
    >>> model = Seq2Seq(config, seed=0).eval()
    >>> batch = Batch(Packed.of([[5, 6, 7]]), Packed.of([[1, 4, 2]]))
    >>> loss, backward = model.loss(batch)
    >>> loss.tokens
    2
    """

    def __init__(self, config: Seq2SeqConfig, seed: int = 0, dtype: Any = np.float32) -> None:
        self.config = config
        e = config.d_model
        self.source = Embed(config, config.source_vocab_size, dtype)
        self.target = Embed(config, config.target_vocab_size, dtype)
        self.encoder = nn.TransformerEncoder(
            EncoderLayer(config, dtype), config.encoder_layers, self._final_norm(dtype)
        )
        self.decoder = nn.TransformerDecoder(
            DecoderLayer(config, dtype), config.decoder_layers, self._final_norm(dtype)
        )
        self.output = nn.Linear(
            e, config.target_vocab_size, config.output_bias, dtype=dtype, seed=None
        )
        self.output.weight.init = xavier_uniform
        if config.tie_embeddings != "none":
            self.output.weight = self.target.tokens.weight
        if config.tie_embeddings == "all":
            self.source.tokens.weight = self.target.tokens.weight
        self._choose_inits()
        self.initialise(seed)

    def _final_norm(self, dtype: Any) -> nn.LayerNorm | None:
        if not self.config.final_norm:
            return None
        return nn.LayerNorm(self.config.d_model, self.config.layer_norm_eps, dtype=dtype)

    def _choose_inits(self) -> None:
        """Xavier for every matrix of the stacks, as torch's Transformer and seed 003 do."""
        for stack in (self.encoder, self.decoder):
            for parameter in stack.parameters():
                if len(parameter.shape) > 1:
                    parameter.init = xavier_uniform
            if self.config.attention_init == "separate":
                for _, module in stack.modules():
                    if isinstance(module, nn.MultiheadAttention):
                        _separate(module)

    @property
    def dtype(self) -> Any:
        """The dtype of the parameters."""
        return self.output.weight.data.dtype

    # training

    def decode_rows(
        self, batch: Batch, rng: Rng | None = None, recorder: Recorder | None = None
    ) -> Forward:
        """Return (rows (T, E) that predict the target, backward)."""
        source, target = batch.source, batch.target.without_last()
        sites = [
            None if rng is None else rng.at(side.rows).fold(i)
            for i, side in enumerate((source, target, source, target))
        ]
        x, source_backward = self.source.forward(source.tokens, source.positions, rng=sites[0])
        memory, encoder_backward = self.encoder.forward_packed(
            x, source.cu_seqlens, rng=sites[2], recorder=inside(recorder, "encoder")
        )
        y, target_backward = self.target.forward(target.tokens, target.positions, rng=sites[1])
        rows, decoder_backward = self.decoder.forward_packed(
            y,
            memory,
            target.cu_seqlens,
            source.cu_seqlens,
            rng=sites[3],
            recorder=inside(recorder, "decoder"),
        )

        @way_back
        def backward(drows: Array) -> None:
            dy, dmemory = decoder_backward(drows)
            target_backward(dy)
            if dmemory is not None:
                source_backward(encoder_backward(dmemory))

        return rows, backward

    def loss(
        self,
        batch: Batch,
        rng: Rng | None = None,
        label_smoothing: float = 0.0,
        recorder: Recorder | None = None,
    ) -> tuple[LossSum, Callable[[float], None]]:
        """Return the summed cross-entropy of a batch, and its way back.

        `backward(scale)` adds the gradients of scale · loss to every parameter. While training
        with dropout an `rng` is needed; it is keyed by the batch's example numbers and positions.
        """
        rows, rows_backward = self.decode_rows(batch, rng, recorder)
        wanted = batch.target.without_first().tokens
        bias = None if self.output.bias is None else self.output.bias.data
        args = (rows, self.output.weight.data, bias, wanted)
        options = {"label_smoothing": label_smoothing}
        cross_entropy, cross_entropy_backward = kernels.best(
            ops.linear_cross_entropy, *args, **options
        )
        total, saved = cross_entropy(*args, **options)

        @way_back
        def backward(scale: float = 1.0) -> None:
            drows, dweight, dbias = cross_entropy_backward(np.asarray(scale, rows.dtype), saved)
            self.output.weight.accumulate(dweight)
            if self.output.bias is not None:
                self.output.bias.accumulate(dbias)
            rows_backward(drows)

        return LossSum(float(total), len(wanted)), backward

    # decoding

    def encode(self, source: Packed, recorder: Recorder | None = None) -> Array:
        """Return the encoder's memory, packed rows (U, E)."""
        x = self.source(source.tokens, source.positions)
        return np.asarray(
            self.encoder.forward_packed(x, source.cu_seqlens, recorder=inside(recorder, "encoder"))[
                0
            ]
        )

    def start(self, source: Packed) -> State:
        """Return the decoder's state before the first token, one hypothesis per source."""
        return State(start_cache(self.decoder, self.encode(source), source.cu_seqlens), 0)

    def step(self, state: State, tokens: Array) -> tuple[Array, State]:
        """Say one token to every hypothesis; return (log-probabilities of the next (B, V), state).

        tokens: (B,). The first are the begin tokens. Raises `ValueError` past the last position.
        """
        positions = np.full(len(tokens), state.position)
        x = self.target(np.asarray(tokens), positions)
        rows, cache = run_step(self.decoder, x, state.cache)
        log_p, _ = ops.log_softmax(self.output(rows))
        return log_p, State(cache, state.position + 1)


def _separate(attention: nn.MultiheadAttention) -> None:
    """Draw q, k and v apart: each Xavier by itself, biases like a Linear's (seed 003)."""
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    assert weight is not None
    e = attention.embed_dim
    weight.init = uniform((6.0 / (2 * e)) ** 0.5)
    if bias is not None:
        bias.init = uniform(e**-0.5)
        assert attention.out_proj.bias is not None
        attention.out_proj.bias.init = uniform(e**-0.5)

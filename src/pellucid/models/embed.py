"""What enters a stack: tokens and where they stand, as rows."""

from __future__ import annotations

from typing import Any

from pellucid import nn, ops
from pellucid.core.rng import Rng
from pellucid.models.config import StackConfig
from pellucid.models.inits import table_init
from pellucid.nn.module import Array, Forward, single_use


class Embed(nn.Module):
    """dropout(token · s + position · p). Vaswani et al. 2017, 3.4 and 3.5."""

    def __init__(self, config: StackConfig, vocab_size: int, dtype: Any) -> None:
        e = config.d_model
        self.config = config
        padding = config.pad_token_id if config.padding_row_zero else None
        self.tokens = nn.Embedding(vocab_size, e, padding, dtype=dtype, seed=None)
        self.tokens.init_with(table_init(config.token_init, e))
        self.tokens.weight.fixed_row = padding  # an output layer may share the table
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
        x, sum_backward = self.sum(tokens, positions)
        y, dropout_backward = self.dropout.forward(x, rng=rng)

        @single_use
        def backward(dy: Array) -> None:
            sum_backward(dropout_backward(dy))

        return y, backward

    def sum(self, tokens: Array, positions: Array) -> Forward:
        """Return (token · s + position · p, backward): what stands before dropout."""
        self.check(positions)
        s, p = self.config.token_factor, self.config.position_factor
        token_rows, tokens_backward = self.tokens.forward(tokens)
        positions_backward = None
        if self.positions is not None:
            position_rows, positions_backward = self.positions.forward(positions)
        else:
            position_rows = self.places[positions]
        dtype = token_rows.dtype.type
        x = token_rows * dtype(s) + position_rows * dtype(p)

        @single_use
        def backward(dx: Array) -> None:
            tokens_backward(dx * dtype(s))
            if positions_backward is not None:
                positions_backward(dx * dtype(p))

        return x, backward

    @property
    def places(self) -> Array:
        """The table of positions (longest, E), learned or not."""
        if self.positions is not None:
            return self.positions.weight.data
        assert self.table is not None
        return self.table

    def check(self, positions: Array) -> None:
        """Raise `ValueError` for a position past the last."""
        longest = self.config.max_position_embeddings
        if len(positions) and int(positions.max()) >= longest:
            raise ValueError(
                f"a sequence of {int(positions.max()) + 1} tokens is longer than the model's "
                f"{longest} positions; split it, or train with more max_position_embeddings"
            )

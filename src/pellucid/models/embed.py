"""The embeddings that enter a stack: tokens, positions and segments."""

from typing import Any

from pellucid import nn, ops
from pellucid.core.array import Array, host, like, namespace
from pellucid.core.dispatch import dispatch
from pellucid.core.rng import Rng
from pellucid.models.config import StackConfig
from pellucid.models.layers import norm_of, table_init
from pellucid.models.positions import POSITIONS
from pellucid.nn.function import active_dropout
from pellucid.nn.module import Forward, single_use


class Embed(nn.Module):
    """Embeds tokens: dropout(norm(token · s + position · p + segment)).

    s and p are the config's factors. Norm, positions and segments are left out of models that have
    none (positions that rotate, say, are not added).
    Source: Vaswani et al. 2017, 3.4 and 3.5; Devlin et al. 2019, 3.
    """

    def __init__(self, config: StackConfig, vocab_size: int, dtype: Any, segments: int = 0) -> None:
        e, longest = config.d_model, config.max_position_embeddings
        scheme = POSITIONS[config.positions]

        def table(entries: int, init: str | float, padding: int | None = None) -> nn.Embedding:
            made = nn.Embedding(entries, e, padding, dtype=dtype, seed=None)
            made.init_with(table_init(init, e))
            return made

        self.config = config
        padding = config.pad_token_id if config.padding_row_zero else None
        self.tokens = table(vocab_size, config.token_init, padding)
        self.tokens.weight.fixed_row = padding  # an output layer may share the table
        self.positions = table(longest, config.position_init) if scheme.learned else None
        self.table: Array | None = None
        if scheme.table is not None:
            self.table = scheme.table(longest, e).astype(dtype)
        self._moved: tuple[Any, Array] | None = None
        self.dropout = nn.Dropout(config.dropout_of("embedding"))
        self.norm = norm_of(config, dtype) if config.embedding_norm else None
        self.segments = table(segments, config.token_init) if segments else None

    def forward(
        self,
        tokens: Array,
        positions: Array,
        *,
        rng: Rng | None = None,
        inference: bool = False,
        segments: Array | None = None,
    ) -> Forward:
        """Embed tokens; return (rows (T, E), backward).

        tokens, positions, segments: (T,) integers; segments are 0 by default. `backward(drows)`
        returns None. Raises `ValueError` for a position that the model does not have, for segments
        if it has none, and in training with dropout and no rng unless `inference`; `IndexError` for
        a token outside the table.
        """
        x, sum_backward = self.sum(tokens, positions, segments)
        norm_backward = None
        if self.norm is not None:
            x, norm_backward = self.norm.run(x)
        p = active_dropout(self.dropout.p, self.dropout.training and not inference, rng)
        y, dropout_backward = dispatch(ops.dropout, x, p, rng)

        @single_use
        def backward(dy: Array) -> None:
            dx = dropout_backward(dy)
            sum_backward(dx if norm_backward is None else norm_backward(dx))

        return y, backward

    def sum(self, tokens: Array, positions: Array, segments: Array | None = None) -> Forward:
        """Return (rows, backward) before norm and dropout: token · s + position · p + segment.

        Positions and segments are left out of models that add none. `backward` returns None. Raises
        as `forward` does.
        """
        if segments is not None and self.segments is None:
            raise ValueError("segments were given, but the model has none (type_vocab_size = 0)")
        check_positions(positions, self.config)
        s, p = self.config.token_factor, self.config.position_factor
        weight = self.tokens.weight.data
        x, back = self.tokens.forward(like(tokens, weight))
        x, backwards = _times(x, s), [(back, s)]
        at = like(positions, weight)
        if self.positions is not None:
            rows, back = self.positions.forward(at)
            x, backwards = x + _times(rows, p), [*backwards, (back, p)]
        elif self.table is not None:
            x = x + _times(ops.embedding(at, self._table_like(weight))[0], p)
        if self.segments is not None:
            given = host.zeros_like(tokens) if segments is None else segments
            rows, back = self.segments.forward(like(given, weight))
            x, backwards = x + rows, [*backwards, (back, 1.0)]

        @single_use
        def backward(dx: Array) -> None:
            for back, factor in backwards:
                back(_times(dx, factor))

        return x, backward

    def _table_like(self, weight: Array) -> Array:
        """Return the fixed table on the device and in the dtype of the weights (cached)."""
        assert self.table is not None
        if isinstance(weight, host.ndarray):
            return self.table
        kind = type(weight), weight.device, weight.dtype
        if self._moved is None or self._moved[0] != kind:
            there = like(self.table, weight)
            self._moved = kind, namespace(there).astype(there, weight.dtype, copy=False)
        return self._moved[1]

    @property
    def places(self) -> Array:
        """The table of positions (longest, E), learned or fixed; None if no table is added."""
        return self.table if self.positions is None else self.positions.weight.data


def check_positions(positions: Array, config: StackConfig) -> None:
    """Raise `ValueError` for a position from `max_position_embeddings` on."""
    longest = config.max_position_embeddings
    if len(positions) and int(positions.max()) >= longest:
        raise ValueError(
            f"a sequence of {int(positions.max()) + 1} tokens is longer than the model's "
            f"{longest} positions; split it, or train with more max_position_embeddings"
        )


def _times(x: Array, factor: float) -> Array:
    """Return x times a factor, or x itself if the factor is 1, which saves time."""
    return x if factor == 1.0 else x * factor

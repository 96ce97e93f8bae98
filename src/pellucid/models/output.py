"""The output layer and the loss of a model, and poolings of rows before them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pellucid import nn, ops
from pellucid.core.array import Array, host, like, namespace, repeat, scatter_add, spread, take
from pellucid.core.batch import Packed
from pellucid.core.dispatch import dispatch
from pellucid.models.config import LanguageConfig
from pellucid.models.layers import table_init
from pellucid.nn.init import zeros
from pellucid.nn.module import Forward, learning, single_use


class LossSum(NamedTuple):
    """A summed loss in nats, with the number of tokens (or labels) it is summed over."""

    nats: float
    tokens: int


def output_layer(
    config: LanguageConfig, entries: int, dtype: Any, table: nn.Embedding | None = None
) -> nn.Linear:
    """Build the layer from rows (T, E) to logits (T, entries).

    With a `table`, which must have as many rows, and a config that ties embeddings, its weight is
    that of the table.
    """
    output = nn.Linear(config.d_model, entries, config.output_bias, dtype=dtype, seed=None)
    output.weight.init = table_init(config.token_init, config.d_model)
    if output.bias is not None:
        output.bias.init = zeros
    if table is not None and config.tie_word_embeddings:
        output.weight = table.weight
    return output


def output_loss(
    output: nn.Linear,
    rows: Array,
    wanted: Array,
    label_smoothing: float,
) -> tuple[LossSum, Callable[[float], Array]]:
    """Return the summed cross-entropy of output(rows) and the right tokens, and its backward.

    rows: (T, E), wanted: (T,) the right tokens. The loss includes the label smoothing.
    `backward(scale)` returns the gradient of scale · loss for the rows, and adds that of the output
    layer's parameters.
    """
    total, back = dispatch(
        ops.linear_cross_entropy,
        rows,
        *output.arrays(),
        like(wanted, rows),
        label_smoothing=label_smoothing,
    )

    def inner(scale: float) -> Any:
        return back(namespace(rows).asarray(scale, dtype=rows.dtype, device=rows.device))

    loss = LossSum(float(total), len(wanted))
    return learning((output.weight, output.bias), loss, inner)


def taken(rows: Array, index: Array) -> Forward:
    """Select the rows `index`, which must not repeat; return (the selected rows, backward)."""
    count = rows.shape[0]
    some = take(rows, like(index, rows), axis=0)
    return some, lambda dsome: spread(dsome, index, count)


def means(rows: Array, text: Packed) -> Forward:
    """Compute the mean row of each sequence; return (means (N, E), backward).

    Raises `ValueError` for a sequence without tokens.
    """
    _check_tokens(text)
    xp, sequence = namespace(rows), repeat(host.arange(len(text)), text.lengths)
    index, lengths = like(sequence, rows), like(text.lengths[:, None], rows)
    lengths = xp.astype(lengths, rows.dtype)
    mean = scatter_add(index, rows, len(text)) / lengths
    return mean, lambda dmean: take(dmean / lengths, index, axis=0)


def pooled(rows: Array, text: Packed, pooler: nn.Linear) -> Forward:
    """Return (y (N, E), backward): tanh(W x + b) of each sequence's first row x, as BERT pools.

    dx = Wᵀ (dy (1 − y²)). Raises `ValueError` for a sequence without tokens.
    Source: Devlin et al. 2019 (BERT), 3.1 and its code.
    """
    _check_tokens(text)
    first, first_backward = taken(rows, text.cu_seqlens[:-1])
    h, pooler_backward = pooler.forward(first)
    y = namespace(h).tanh(h)
    return y, single_use(lambda dy: first_backward(pooler_backward(dy * (1.0 - y * y))))


def _check_tokens(text: Packed) -> None:
    if not text.lengths.all():
        raise ValueError(f"text {int(text.lengths.argmin())} has no tokens")

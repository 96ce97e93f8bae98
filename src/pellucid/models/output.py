"""The output layer and its loss, which every model ends in."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pellucid import nn, ops
from pellucid.core.array import Array, host, like, namespace, repeat, scatter_add, spread, take
from pellucid.core.batch import Packed
from pellucid.core.dispatch import dispatch
from pellucid.models.config import LanguageConfig
from pellucid.models.layers import table_init
from pellucid.nn.init import zeros
from pellucid.nn.module import Forward, learning


class LossSum(NamedTuple):
    """A loss before it is divided by anything."""

    nats: float
    tokens: int


def output_layer(
    config: LanguageConfig, entries: int, dtype: Any, table: nn.Embedding | None = None
) -> nn.Linear:
    """Return the layer from rows (T, E) to logits (T, entries), tied to `table` if set so."""
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
    """Return the summed cross-entropy of output(rows) with the tokens wanted, and its backward.

    rows: (T, E), wanted: (T,). `backward(scale)` returns drows of scale · loss and adds the output
    layer's gradients.
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
    """Return (some of the rows, backward)."""
    count = rows.shape[0]
    some = take(rows, like(index, rows), axis=0)
    return some, lambda dsome: spread(dsome, index, count)


def means(rows: Array, text: Packed) -> Forward:
    """Return (the mean row of each sequence, (N, E); backward).

    Raises `ValueError` for a sequence without tokens, which has none.
    """
    if not text.lengths.all():
        raise ValueError(f"text {int(text.lengths.argmin())} has no tokens")
    xp, sequence = namespace(rows), repeat(host.arange(len(text)), text.lengths)
    index, lengths = like(sequence, rows), like(text.lengths[:, None], rows)
    lengths = xp.astype(lengths, rows.dtype)
    mean = scatter_add(index, rows, len(text)) / lengths
    return mean, lambda dmean: take(dmean / lengths, index, axis=0)

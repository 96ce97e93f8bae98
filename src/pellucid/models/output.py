"""The output layer and its loss, which every model ends in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pellucid import nn, ops
from pellucid.core.array import Array, like, namespace
from pellucid.kernels import dispatch
from pellucid.models.config import LanguageConfig
from pellucid.models.inits import table_init
from pellucid.nn.init import zeros
from pellucid.nn.module import single_use


class LossSum(NamedTuple):
    """A loss before it is divided by anything."""

    nats: float
    tokens: int


def output_layer(config: LanguageConfig, tokens: nn.Embedding, dtype: Any) -> nn.Linear:
    """Return the layer from rows (T, E) to logits (T, V); its table may be that of the tokens."""
    output = nn.Linear(
        config.d_model, config.vocab_size, config.output_bias, dtype=dtype, seed=None
    )
    output.weight.init = table_init(config.token_init, config.d_model)
    if output.bias is not None:
        output.bias.init = zeros
    if config.tie_word_embeddings:
        output.weight = tokens.weight
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
    bias = None if output.bias is None else output.bias.data
    total, inner = dispatch(
        ops.linear_cross_entropy,
        rows,
        output.weight.data,
        bias,
        like(wanted, rows),
        label_smoothing=label_smoothing,
    )

    @single_use
    def backward(scale: float) -> Array:
        xp = namespace(rows)
        drows, dweight, dbias = inner(xp.asarray(scale, dtype=rows.dtype, device=rows.device))
        output.weight.accumulate(dweight)
        if output.bias is not None:
            output.bias.accumulate(dbias)
        return drows

    return LossSum(float(total), len(wanted)), backward

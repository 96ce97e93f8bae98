"""dropout(activation(x + b)) in one pass over memory instead of six.

For ReLU, the usual one, the way back needs nothing but the output, which the next layer keeps
anyway: a number is 0 there exactly if it was dropped or negative, and the gradient is then 0. So
neither x nor the dropout bits are needed again. The others (`activations`) keep x and draw the bits
again.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NamedTuple

import numpy as np

from pellucid.core.rng import Rng
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.math import channel_bits
from pellucid.kernels.backend.rows import (
    as_rows,
    can_drop,
    dropout_bits,
    parts_of,
    plain_rows,
    plain_vector,
)
from pellucid.ops.bias_act_dropout import ACTIVATIONS

Array = np.ndarray
_f = np.float32


class Saved(NamedTuple):
    activation: str
    kept: Array  # y for ReLU, else x; (…, F)
    bias: Array
    starts: Array
    threshold: np.uint32
    scale: np.float32
    has_bias: bool


def accepts(
    x: Array,
    bias: Array | None,
    *,
    activation: str = "relu",
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> bool:
    """A known activation on float32 rows in one piece of memory."""
    return (
        activation in ACTIVATIONS
        and plain_rows(x)
        and plain_vector(bias, x.shape[-1])
        and can_drop(x, dropout, rng)
    )


def bias_act_dropout(
    x: Array,
    bias: Array | None,
    *,
    activation: str = "relu",
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Saved]:
    """See `ops.bias_act_dropout`."""
    rows = x.reshape(-1, x.shape[-1])
    bits = dropout_bits(dropout, rng, x.shape[:-1])
    b = np.zeros(x.shape[-1], np.float32) if bias is None else bias
    y = np.empty_like(rows)
    parts = parts_of(*rows.shape)
    if activation == "relu":
        _relu(parts, rows, b, *bits, y)
    else:
        smooth, kind = _smooth(activation)
        smooth.forward(parts, rows, b, kind, *bits, y)
    y = y.reshape(x.shape)
    kept = y if activation == "relu" else x
    return y, Saved(activation, kept, b, *bits, bias is not None)


def bias_act_dropout_backward(dy: Array, saved: Saved) -> tuple[Array, Array | None]:
    """Return dx and dbias."""
    activation, kept, bias, starts, threshold, scale, has_bias = saved
    shape = kept.shape
    dy_rows, kept = as_rows(dy, shape), kept.reshape(-1, shape[-1])
    dx = np.empty_like(kept)
    parts = parts_of(*kept.shape)
    sums = np.zeros((parts, kept.shape[1]), np.float32)
    if activation == "relu":
        _relu_backward(parts, dy_rows, kept, scale, dx, sums)
    else:
        smooth, kind = _smooth(activation)
        smooth.backward(parts, dy_rows, kept, bias, kind, starts, threshold, scale, dx, sums)
    return dx.reshape(shape), sums.sum(axis=0) if has_bias else None


def _smooth(activation: str) -> tuple[ModuleType, int]:
    """Return the file of the smooth activations, and which one it is."""
    module = importlib.import_module("pellucid.kernels.activations")
    return module, getattr(module, activation.upper())


@threads.shared("f4[:,::1],f4[::1],u4[::1],u4,f4,f4[:,::1]")
def _relu(part, parts, x, bias, starts, threshold, scale, y):
    begin, end = threads.span(part, parts, len(x))
    for i in range(begin, end):
        if threshold:
            start = starts[i]
            for j in range(x.shape[1]):
                a = x[i, j] + bias[j]
                kept = channel_bits(start, np.uint32(j)) >= threshold
                # `a <= 0` and not `a > 0` keeps NaN
                y[i, j] = _f(0.0) if (a <= _f(0.0)) or not kept else a * scale
        else:
            for j in range(x.shape[1]):
                a = x[i, j] + bias[j]
                y[i, j] = _f(0.0) if a <= _f(0.0) else a


@threads.shared("f4[:,::1],f4[:,::1],f4,f4[:,::1],f4[:,::1]")
def _relu_backward(part, parts, dy, y, scale, dx, sums):
    begin, end = threads.span(part, parts, len(dy))
    dbias = sums[part]
    for i in range(begin, end):
        for j in range(y.shape[1]):
            d = dy[i, j] * scale if y[i, j] > _f(0.0) else _f(0.0)
            dx[i, j] = d
            dbias[j] += d

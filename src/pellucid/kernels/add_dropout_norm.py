"""LayerNorm(residual + dropout(x)) in one pass over memory, and back in one.

A row of a few hundred numbers stays in the nearest cache while it is summed, normalised, scaled and
shifted. Kept for the way back: x̂ and 1 / √(σ² + ε), as on the plain page; the dropout bits are
hashed again. The variance is that of the centred row, in a second sweep: E[x²] − μ² would cancel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pellucid.core.array import LEAST_NORMAL
from pellucid.core.rng import Rng
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.math import channel_bits, inverse_root
from pellucid.kernels.backend.rows import (
    as_rows,
    can_drop,
    dropout_bits,
    parts_of,
    plain_rows,
    plain_vector,
)

Array = np.ndarray
_f = np.float32


class Saved(NamedTuple):
    x_hat: Array  # (…, E)
    inverse_std: Array
    weight: Array | None
    has_bias: bool
    starts: Array
    threshold: np.uint32
    scale: np.float32


def accepts(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    norm: str = "layer_norm",
    eps: float = 1e-5,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> bool:
    """float32 rows in one piece of memory, x and residual alike, and a normal number for ε.

    A row of one number is declined: its x̂ is exactly 0, and a fused multiply-add would leave a
    rounding there.
    """
    width = x.shape[-1]
    return (
        norm == "layer_norm"
        and width > 1
        and eps >= LEAST_NORMAL  # 1 / √x is approximated
        and plain_rows(x)
        and plain_rows(residual)
        and x.shape == residual.shape
        and plain_vector(weight, width)
        and plain_vector(bias, width)
        and can_drop(x, dropout, rng)
    )


def add_dropout_norm(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    norm: str = "layer_norm",
    eps: float = 1e-5,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Saved]:
    """See `ops.add_dropout_norm`."""
    return normalise(x.reshape(-1, x.shape[-1]), residual, weight, bias, eps, dropout, rng)


def normalise(
    x: Array,
    residual: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    dropout: float,
    rng: Rng | None,
) -> tuple[Array, Saved]:
    """Return LayerNorm(residual + dropout(x)); x: rows like the residual's, or none at all."""
    width = residual.shape[-1]
    rows = residual.reshape(-1, width)
    bits = dropout_bits(dropout, rng, residual.shape[:-1])
    gamma = np.ones(width, np.float32) if weight is None else weight
    beta = np.zeros(width, np.float32) if bias is None else bias
    y, x_hat = np.empty_like(rows), np.empty_like(rows)
    inverse_std = np.empty(len(rows), np.float32)
    parts = parts_of(*rows.shape)
    _forward(parts, x, rows, gamma, beta, np.float32(eps), *bits, y, x_hat, inverse_std)
    shape = residual.shape
    kept = Saved(x_hat.reshape(shape), inverse_std, weight, bias is not None, *bits)
    return y.reshape(shape), kept


def add_dropout_norm_backward(
    dy: Array, saved: Saved
) -> tuple[Array, Array, Array | None, Array | None]:
    """Return dx, dresidual (one array if nothing was dropped), dweight, dbias."""
    x_hat, inverse_std, weight, has_bias, starts, threshold, scale = saved
    shape, width = x_hat.shape, x_hat.shape[-1]
    dy_rows, x_hat = as_rows(dy, shape), x_hat.reshape(-1, width)
    gamma = np.ones(width, np.float32) if weight is None else weight
    dresidual = np.empty_like(x_hat)
    dx = np.empty_like(x_hat) if threshold else dresidual
    parts = parts_of(*x_hat.shape)
    sums = np.zeros((parts, 2, width), np.float32)
    _backward(
        parts, dy_rows, x_hat, inverse_std, gamma, starts, threshold, scale, dx, dresidual, sums
    )
    dweight, dbias = sums.sum(axis=0)
    return (
        dx.reshape(shape),
        dresidual.reshape(shape),
        None if weight is None else dweight,
        dbias if has_bias else None,
    )


@threads.shared("f4[:,::1],f4[:,::1],f4[::1],f4[::1],f4,u4[::1],u4,f4,f4[:,::1],f4[:,::1],f4[::1]")
def _forward(
    part, parts, x, residual, gamma, beta, eps, starts, threshold, scale, y, x_hat, inverse_std
):
    begin, end = threads.span(part, parts, len(residual))
    width = x.shape[1]
    share = _f(1.0) / _f(width)
    for i in range(begin, end):
        total = _f(0.0)
        if threshold:
            start = starts[i]
            for j in range(width):
                kept = channel_bits(start, np.uint32(j)) >= threshold
                s = residual[i, j] + (x[i, j] * scale if kept else _f(0.0))
                x_hat[i, j] = s
                total += s
        elif len(x):
            for j in range(width):
                s = residual[i, j] + x[i, j]
                x_hat[i, j] = s
                total += s
        else:
            for j in range(width):
                x_hat[i, j] = residual[i, j]
                total += residual[i, j]
        mu = total * share
        squares = _f(0.0)
        for j in range(width):
            c = x_hat[i, j] - mu
            squares += c * c
        r = inverse_root(squares * share + eps)
        inverse_std[i] = r
        for j in range(width):
            h = (x_hat[i, j] - mu) * r
            x_hat[i, j] = h
            y[i, j] = h * gamma[j] + beta[j]


@threads.shared("f4[:,::1],f4[:,::1],f4[::1],f4[::1],u4[::1],u4,f4,f4[:,::1],f4[:,::1],f4[:,:,::1]")
def _backward(
    part, parts, dy, x_hat, inverse_std, gamma, starts, threshold, scale, dx, dresidual, sums
):
    begin, end = threads.span(part, parts, len(dy))
    dgamma, dbeta = sums[part, 0], sums[part, 1]
    width = dy.shape[1]
    share = _f(1.0) / _f(width)
    for i in range(begin, end):
        mean_g, mean_gx = _f(0.0), _f(0.0)
        for j in range(width):
            d, h = dy[i, j], x_hat[i, j]
            dbeta[j] += d
            dgamma[j] += d * h
            g = d * gamma[j]
            mean_g += g
            mean_gx += g * h
        mean_g, mean_gx, r = mean_g * share, mean_gx * share, inverse_std[i]
        for j in range(width):
            dresidual[i, j] = (dy[i, j] * gamma[j] - mean_g - x_hat[i, j] * mean_gx) * r
        if threshold:
            start = starts[i]
            for j in range(width):
                kept = channel_bits(start, np.uint32(j)) >= threshold
                dx[i, j] = dresidual[i, j] * scale if kept else _f(0.0)

"""The smooth activations of `bias_act_dropout`, and their slopes, on polynomials that vectorise.

In a file of their own, so that a model with ReLU compiles none of it. Beyond ±40 (±1000 for SiLU)
the gate is 0 or 1, as on the plain page. GELU's tanh form is written with the logistic function,
½ (1 + tanh u) = σ(2u), which does not cancel for negative u.
"""

from __future__ import annotations

import math

import numpy as np

from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import inner
from pellucid.kernels.backend.math import channel_bits, exp, logistic, normal

LEAKY_RELU, GELU, GELU_TANH, SILU = range(4)

_f = np.float32
_HALF, _ONE, _ZERO = _f(0.5), _f(1.0), _f(0.0)
_TAIL, _SILU_TAIL = _f(40.0), _f(1000.0)
_INVERSE_SQRT_2_PI = _f(1.0 / math.sqrt(2.0 * math.pi))
_TWICE_SQRT_2_OVER_PI = _f(2.0 * math.sqrt(2.0 / math.pi))
_CUBIC = _f(0.044715)
_SLOPE = _f(0.01)


@inner()
def _clip(x, tail):
    x = -tail if x < -tail else x
    return tail if x > tail else x


@inner()
def _value(x, kind):
    if kind == LEAKY_RELU:
        return x if x > _ZERO else _SLOPE * x
    if kind == SILU:
        return (-_SILU_TAIL if x < -_SILU_TAIL else x) * logistic(x)[0]
    z = _clip(x, _TAIL)
    gate = normal(z) if kind == GELU else logistic(_twice_u(z))[0]
    return (-_TAIL if x < -_TAIL else x) * gate


@inner()
def _slope(x, kind):
    if kind == LEAKY_RELU:
        return _ONE if x > _ZERO else _SLOPE
    if kind == SILU:
        z = _clip(x, _SILU_TAIL)
        s, rest = logistic(z)
        return s * (_ONE + z * rest)
    z = _clip(x, _TAIL)
    if kind == GELU:
        return normal(z) + z * exp(-_HALF * z * z) * _INVERSE_SQRT_2_PI
    s, rest = logistic(_twice_u(z))
    return s + z * s * rest * _TWICE_SQRT_2_OVER_PI * (_ONE + _f(3.0) * _CUBIC * z * z)


@inner()
def _twice_u(z):
    return _TWICE_SQRT_2_OVER_PI * (z + _CUBIC * z * z * z)


@threads.shared("f4[:,::1],f4[::1],i8,u4[::1],u4,f4,f4[:,::1]")
def forward(part, parts, x, bias, kind, starts, threshold, scale, y):
    """dropout(activation(x + b))."""
    begin, end = threads.span(part, parts, len(x))
    for i in range(begin, end):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] + bias[j]
        # a loop for each, because a choice inside the loop would not vectorise
        if kind == LEAKY_RELU:
            for j in range(x.shape[1]):
                y[i, j] = _value(y[i, j], LEAKY_RELU)
        elif kind == GELU:
            for j in range(x.shape[1]):
                y[i, j] = _value(y[i, j], GELU)
        elif kind == GELU_TANH:
            for j in range(x.shape[1]):
                y[i, j] = _value(y[i, j], GELU_TANH)
        else:
            for j in range(x.shape[1]):
                y[i, j] = _value(y[i, j], SILU)
        if threshold:
            start = starts[i]
            for j in range(x.shape[1]):
                kept = channel_bits(start, np.uint32(j)) >= threshold
                y[i, j] = y[i, j] * scale if kept else _ZERO


@threads.shared("f4[:,::1],f4[:,::1],f4[::1],i8,u4[::1],u4,f4,f4[:,::1],f4[:,::1]")
def backward(part, parts, dy, x, bias, kind, starts, threshold, scale, dx, sums):
    """dx, and its sum over the part's rows added to sums[part]."""
    begin, end = threads.span(part, parts, len(x))
    dbias = sums[part]
    for i in range(begin, end):
        for j in range(x.shape[1]):
            dx[i, j] = x[i, j] + bias[j]
        if kind == LEAKY_RELU:
            for j in range(x.shape[1]):
                dx[i, j] = dy[i, j] * _slope(dx[i, j], LEAKY_RELU)
        elif kind == GELU:
            for j in range(x.shape[1]):
                dx[i, j] = dy[i, j] * _slope(dx[i, j], GELU)
        elif kind == GELU_TANH:
            for j in range(x.shape[1]):
                dx[i, j] = dy[i, j] * _slope(dx[i, j], GELU_TANH)
        else:
            for j in range(x.shape[1]):
                dx[i, j] = dy[i, j] * _slope(dx[i, j], SILU)
        if threshold:
            start = starts[i]
            for j in range(x.shape[1]):
                kept = channel_bits(start, np.uint32(j)) >= threshold
                dx[i, j] = dx[i, j] * scale if kept else _ZERO
        for j in range(x.shape[1]):
            dbias[j] += dx[i, j]

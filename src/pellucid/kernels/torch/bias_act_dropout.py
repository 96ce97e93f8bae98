"""dropout(activation(x + b)), by PyTorch's activations and their derivatives, also gated ones.

Backward of ReLU needs its output, which the next product keeps anyway; the others need x + b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.draws import draws_on, mask_of, masked
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers, sum_of_rows
from pellucid.ops.activations import ACTIVATIONS, GATED

_aten = torch.ops.aten


class Native(NamedTuple):
    """An activation of PyTorch: value(x) and its backward, slope(dy, x) -> dx."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]
    of_output: bool = False
    """Whether slope reads the output, after dropout too, rather than x."""


NATIVE = {
    "relu": Native(torch.relu, lambda dy, y: _aten.threshold_backward(dy, y, 0), of_output=True),
    "leaky_relu": Native(
        lambda x: functional.leaky_relu(x, 0.01),
        lambda dy, x: _aten.leaky_relu_backward(dy, x, 0.01, False),
    ),
    "gelu": Native(functional.gelu, lambda dy, x: _aten.gelu_backward(dy, x)),
    "gelu_tanh": Native(
        lambda x: functional.gelu(x, approximate="tanh"),
        lambda dy, x: _aten.gelu_backward(dy, x, approximate="tanh"),
    ),
    "silu": Native(functional.silu, lambda dy, x: _aten.silu_backward(dy, x)),
}
"""The activations of `ops.activations` that torch has."""


def gated(gate: Native) -> Native:
    """Return the gated activation gate(a) ⊙ b, where x = [a, b] along the last axis."""

    def value(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return gate.value(a) * b

    def slope(dy: Tensor, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([gate.slope(dy * b, a), dy * gate.value(a)], -1)

    return Native(value, slope)


NATIVE |= {name: gated(NATIVE[gate]) for name, gate, _ in GATED if gate in NATIVE}


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.bias_act_dropout` for an activation in `NATIVE`; on the CPU without dropout."""
    x, bias = call.x, call.bias
    native = NATIVE.get(call.activation)
    if native is None or not (
        are_numbers(x, bias)
        and (bias is None or bias.shape == x.shape[-1:])
        and x.shape[-1] % ACTIVATIONS[call.activation].gates == 0
        and draws_on(x.device, call.dropout, call.rng)
    ):
        return Declined(NOT_TENSORS)

    shifted = x if bias is None else x + bias
    activated = native.value(shifted)
    keep = mask_of(activated, call.dropout, call.rng)
    y = masked(activated, keep, call.dropout)
    kept = y if native.of_output else shifted

    def backward(dy: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return dx and dbias."""
        check_gradient(dy, tuple(y.shape))
        dx = native.slope(masked(dy, keep, call.dropout), kept)
        return dx, None if bias is None else sum_of_rows(dx.reshape(-1, dx.shape[-1]))

    return y, backward

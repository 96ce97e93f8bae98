"""What a Transformer layer is made of: sublayers, each inside a residual step with its norm.

A layer is a list of blocks run in order, so another list is another layer (`models.layers` puts
more feed-forward networks before or after attention, seed 004's exercise).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pellucid import kernels, ops
from pellucid.core.rng import Rng
from pellucid.core.vjp import Pair, check_gradient
from pellucid.nn import functional
from pellucid.nn.differences import rule
from pellucid.nn.function import Function
from pellucid.nn.layers import Dropout, LayerNorm, Linear
from pellucid.nn.module import Array, Forward, Module, single_use
from pellucid.ops.activations import ACTIVATIONS

Sublayer = Callable[[Array, Rng | None], tuple[Array, Callable[[Array], Any]]]
"""x, rng -> y and a way back that returns dx, or (dx, dmemory)."""


class Block(NamedTuple):
    """One residual step: the function in the middle, and what stands around it."""

    sublayer: Sublayer
    norm: LayerNorm
    dropout: Dropout


def run_blocks(x: Array, blocks: Sequence[Block], norm_first: bool, rng: Rng | None) -> Forward:
    """Pass x through the blocks; `backward(dy)` returns (dx, dmemory), dmemory None if unused.

    norm_first:  x ← x + dropout(sublayer(norm(x)))      Xiong et al. 2020
    otherwise:   x ← norm(x + dropout(sublayer(x)))      Vaswani et al. 2017, 3.1; seed 001
    """
    step = _pre_norm if norm_first else _post_norm
    backwards, shape = [], x.shape
    for i, block in enumerate(blocks):
        x, back = step(x, block, None if rng is None else rng.fold(i))
        backwards.append(back)

    @single_use
    def backward(dy: Array) -> tuple[Array, Array | None]:
        check_gradient(dy, shape)
        return unwind(backwards, dy)

    return x, backward


def unwind(backwards: list[Callable[..., Any]], dy: Array) -> tuple[Array, Array | None]:
    """Go the ways back, last first; return (dx, dmemory), what each has for memory added up.

    dmemory is None where none looked at a memory.
    """
    dmemory: Array | None = None
    while backwards:  # popped, so that what a part kept dies with it
        dy, more = _split(backwards.pop()(dy))
        if more is not None:
            dmemory = more if dmemory is None else dmemory + more
    return dy, dmemory


def _sites(block: Block, rng: Rng | None) -> tuple[Rng | None, float, Rng | None]:
    inner, outer = (None, None) if rng is None else (rng.fold(0), rng.fold(1))
    return inner, block.dropout.active(outer), outer


def _post_norm(x: Array, block: Block, rng: Rng | None) -> Forward:
    inner, p, outer = _sites(block, rng)
    y, sublayer_backward = block.sublayer(x, inner)  # 1
    norm = block.norm
    args = (y, x, *norm.arrays())
    options = {"eps": norm.eps, "dropout": p, "rng": outer}
    add_norm, add_norm_backward = kernels.best(ops.add_dropout_norm, *args, **options)
    z, saved = add_norm(*args, **options)  # 2

    @single_use
    def backward(dz: Array) -> tuple[Array, Array | None]:
        dy, dx, dweight, dbias = add_norm_backward(dz, saved)  # 2
        norm.accumulate(dweight, dbias)
        through, dmemory = _split(sublayer_backward(dy))  # 1
        return dx + through, dmemory

    return z, backward


def _pre_norm(x: Array, block: Block, rng: Rng | None) -> Forward:
    inner, p, outer = _sites(block, rng)
    n, norm_backward = block.norm.forward(x)  # 1
    y, sublayer_backward = block.sublayer(n, inner)  # 2
    args = (y, p, outer)
    drop, drop_backward = kernels.best(ops.dropout, *args)
    dropped, saved = drop(*args)  # 3
    z = x + dropped

    @single_use
    def backward(dz: Array) -> tuple[Array, Array | None]:
        dn, dmemory = _split(sublayer_backward(drop_backward(dz, saved)))  # 3, 2
        return dz + norm_backward(dn), dmemory  # 1

    return z, backward


def _split(gradients: Any) -> tuple[Array, Array | None]:
    return gradients if isinstance(gradients, tuple) else (gradients, None)


def feed_forward(
    linear1: Linear, activation: str | Module, dropout: Dropout, linear2: Linear
) -> Sublayer:
    """Return the position-wise network: linear2(dropout(activation(linear1(x)))).

    A named activation goes through the fused middle, `ops.bias_act_dropout`; a module by itself.
    Source: Vaswani et al. 2017, 3.3; seed 004.
    """

    def named(x: Array, rng: Rng | None) -> Forward:
        args = (x, linear1.weight.data)
        linear, linear_backward = kernels.best(ops.linear, *args)
        h, saved_linear = linear(*args)  # 1
        middle = (h, linear1.bias and linear1.bias.data)
        options = {"activation": activation, "dropout": dropout.active(rng), "rng": rng}
        act, act_backward = kernels.best(ops.bias_act_dropout, *middle, **options)
        a, saved_act = act(*middle, **options)  # 2
        y, out_backward = linear2.forward(a)  # 3

        def backward(dy: Array) -> Array:
            dh, dbias = act_backward(out_backward(dy), saved_act)  # 3, 2
            dx, dweight, _ = linear_backward(dh, saved_linear)  # 1
            linear1.weight.accumulate(dweight)
            if linear1.bias is not None:
                linear1.bias.accumulate(dbias)
            return np.asarray(dx)

        return y, backward

    def by_module(x: Array, rng: Rng | None) -> Forward:
        assert isinstance(activation, Module)
        h, in_backward = linear1.forward(x)  # 1
        a, act_backward = activation.forward(h)  # 2
        d, drop_backward = dropout.forward(a, rng=rng)  # 3
        y, out_backward = linear2.forward(d)  # 4

        def backward(dy: Array) -> Array:
            return np.asarray(in_backward(act_backward(drop_backward(out_backward(dy)))))

        return y, backward

    return named if isinstance(activation, str) else by_module


def as_activation(activation: Any) -> str | Module:
    """Return the name of an ops activation, or a module, for what a layer was given.

    Raises `ValueError` on an unknown name, `TypeError` on a bare callable: its derivative is
    needed too.
    """
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {', '.join(sorted(ACTIVATIONS))}, a function of "
                "pellucid.nn.functional, a Module, or pellucid.pair(f, f_backward); got "
                f"{activation!r}"
            )
        return activation
    if isinstance(activation, Module):
        return activation
    if isinstance(activation, Function):
        named = getattr(functional, activation.__name__) is activation
        known = named and activation.__name__ in ACTIVATIONS
        return activation.__name__ if known else Elementwise(activation.forward)
    if isinstance(activation, Pair):
        return Elementwise(partial(_run_pair, activation))
    raise TypeError(f"activation {activation!r} has no derivative. {rule('activation')}")


def _run_pair(pair: Pair, input: Array) -> Forward:
    y, saved = pair.forward(input)

    @single_use
    def backward(dy: Array) -> Any:
        return pair.backward(dy, saved)

    return y, backward


class Elementwise(Module):
    """A function with its way back as a layer."""

    def __init__(self, f: Callable[[Array], Forward]) -> None:
        self.f = f

    def forward(self, input: Array) -> Forward:
        """Return (y, backward)."""
        return self.f(input)

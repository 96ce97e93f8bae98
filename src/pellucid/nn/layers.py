"""The small layers: torch's names and arguments, the mathematics from `ops`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid import kernels, ops
from pellucid.nn.module import (
    Array,
    Forward,
    Init,
    Module,
    Parameter,
    normal,
    ones,
    uniform,
    way_back,
    zeros,
)
from pellucid.rng import Rng


class Linear(Module):
    """y = x Wᵀ + b; x (…, in_features), y (…, out_features). `ops.linear`, torch.nn.Linear.

    >>> Linear(3, 2)(np.ones((5, 3), np.float32)).shape
    (5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
        seed: int | None = 0,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        init = uniform(in_features**-0.5 if in_features else 0.0)
        self.weight = Parameter((out_features, in_features), init, dtype)
        self.bias = Parameter((out_features,), init, dtype) if bias else None
        self.initialise(seed)

    def forward(self, input: Array) -> Forward:
        """Return (y, backward)."""
        linear, linear_backward = kernels.best(
            ops.linear, input, self.weight.data, self.bias and self.bias.data
        )
        y, saved = linear(input, self.weight.data, self.bias and self.bias.data)

        @way_back
        def backward(dy: Array) -> Array:
            dx, dweight, dbias = linear_backward(dy, saved)
            self.weight.accumulate(dweight)
            if self.bias is not None:
                self.bias.accumulate(dbias)
            return dx

        return y, backward


class LayerNorm(Module):
    """Normalise over the last axes, `normalized_shape`. `ops.layer_norm`, torch.nn.LayerNorm.

    >>> y = LayerNorm(4)(np.arange(8, dtype=np.float32).reshape(2, 4))
    >>> bool(np.allclose(y.mean(-1), 0, atol=1e-6))
    True
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
    ) -> None:
        one = isinstance(normalized_shape, int)
        self.normalized_shape = (normalized_shape,) if one else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight, self.bias = None, None
        if elementwise_affine:
            self.weight = Parameter(self.normalized_shape, ones, dtype)
            self.bias = Parameter(self.normalized_shape, zeros, dtype) if bias else None
        self.initialise(0)

    def flat_parameters(self) -> tuple[Array | None, Array | None]:
        """Return weight and bias as one axis, or None."""
        weight = None if self.weight is None else self.weight.data.reshape(-1)
        return weight, None if self.bias is None else self.bias.data.reshape(-1)

    def accumulate(self, dweight: Array | None, dbias: Array | None) -> None:
        """Add the gradients of the one-axis weight and bias to the parameters'."""
        if self.weight is not None and dweight is not None:
            self.weight.accumulate(dweight.reshape(self.normalized_shape))
        if self.bias is not None and dbias is not None:
            self.bias.accumulate(dbias.reshape(self.normalized_shape))

    def forward(self, input: Array) -> Forward:
        """Return (y, backward). Raises `ValueError` when the last axes are not normalized_shape."""
        axes = len(self.normalized_shape)
        if input.shape[input.ndim - axes :] != self.normalized_shape:
            raise ValueError(
                f"LayerNorm expects the last axes to be {self.normalized_shape}, got input of "
                f"shape {input.shape}"
            )
        x = input if axes == 1 else input.reshape(*input.shape[: input.ndim - axes], -1)
        args = (x, *self.flat_parameters(), self.eps)
        layer_norm, layer_norm_backward = kernels.best(ops.layer_norm, *args)
        y, saved = layer_norm(*args)

        @way_back
        def backward(dy: Array) -> Array:
            dx, dweight, dbias = layer_norm_backward(dy.reshape(x.shape), saved)
            self.accumulate(dweight, dbias)
            return dx.reshape(input.shape)

        return y.reshape(input.shape), backward


class Dropout(Module):
    """Zero each element with probability `p` while training. `ops.dropout`, torch.nn.Dropout.

    While training with p > 0 an `rng` must be given: nothing reads global state.

    >>> Dropout(0.5).eval()(np.ones(3))
    array([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability must lie between 0 and 1, got {p}")
        refuse_inplace(inplace)
        self.p = p

    def active(self, rng: Rng | None) -> float:
        """Return the probability in force now; raise `ValueError` if it needs an rng and has none."""
        if not self.training or self.p == 0.0:
            return 0.0
        if rng is None:
            raise ValueError(
                f"dropout of {self.p} while training needs randomness: pass "
                "rng=pellucid.Rng(seed) to forward, or call .eval()"
            )
        return self.p

    def forward(self, input: Array, *, rng: Rng | None = None) -> Forward:
        """Return (y, backward)."""
        args = (input, self.active(rng), rng)
        drop, drop_backward = kernels.best(ops.dropout, *args)
        y, saved = drop(*args)

        @way_back
        def backward(dy: Array) -> Array:
            dx: Array = drop_backward(dy, saved)
            return dx

        return y, backward


def refuse_inplace(inplace: bool) -> None:
    """Raise `ValueError` for torch's `inplace=True`: here no argument is ever written to."""
    if inplace:
        raise ValueError("inplace=True is refused: no array that is passed in is ever changed")


class Activation(Module):
    """An elementwise function from `ops` as a layer."""

    def __init__(self, f: Any, *options: Any) -> None:
        self.f, self.options = f, options

    def forward(self, input: Array) -> Forward:
        """Return (y, backward)."""
        f, f_backward = kernels.best(self.f, input, *self.options)
        y, saved = f(input, *self.options)

        @way_back
        def backward(dy: Array) -> Array:
            dx: Array = f_backward(dy, saved)
            return dx

        return y, backward


class ReLU(Activation):
    """max(0, x). `ops.relu`, torch.nn.ReLU."""

    def __init__(self, inplace: bool = False) -> None:
        refuse_inplace(inplace)
        super().__init__(ops.relu)


class LeakyReLU(Activation):
    """x, or `negative_slope` · x below 0. `ops.leaky_relu`, torch.nn.LeakyReLU."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        refuse_inplace(inplace)
        super().__init__(ops.leaky_relu, negative_slope)


class SiLU(Activation):
    """x σ(x). `ops.silu`, torch.nn.SiLU."""

    def __init__(self, inplace: bool = False) -> None:
        refuse_inplace(inplace)
        super().__init__(ops.silu)


class GELU(Activation):
    """x Φ(x), exact or with approximate="tanh". `ops.gelu`, torch.nn.GELU."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f'GELU expects approximate "none" or "tanh", got {approximate!r}')
        super().__init__(ops.gelu, approximate)


class Embedding(Module):
    """Row i of a table. `ops.embedding`, torch.nn.Embedding.

    Row `padding_idx` starts at zero and gets no gradient. `max_norm` and `scale_grad_by_freq` and
    `sparse` are refused: the first writes to the table while reading it, the others change what a
    gradient means.

    >>> Embedding(7, 3)(np.array([[1, 2]])).shape
    (1, 2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Array | None = None,
        _freeze: bool = False,
        *,
        dtype: Any = np.float32,
        seed: int | None = 0,
    ) -> None:
        refused = {
            "max_norm": max_norm is not None,
            "scale_grad_by_freq": scale_grad_by_freq,
            "sparse": sparse,
            "_freeze": _freeze,
        }
        for name, given in refused.items():
            if given:
                raise ValueError(f"Embedding does not take {name}; leave it at torch's default")
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"padding_idx must lie within the {num_embeddings} rows, got {padding_idx}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.weight = Parameter((num_embeddings, embedding_dim), zeros, dtype)
        self.init_with(normal(1.0))
        self.initialise(seed)
        if _weight is not None:
            self.load_state_dict({"weight": _weight})

    def init_with(self, init: Init) -> None:
        """Draw the table by `init` from now on, the padding row zero."""

        def draw(g: np.random.Generator, shape: tuple[int, ...]) -> Array:
            table = init(g, shape)
            if self.padding_idx is not None:
                table[self.padding_idx] = 0.0
            return table

        self.weight.init = draw

    def forward(self, input: Array) -> Forward:
        """Return (rows, backward); backward returns None, since tokens have no gradient."""
        args = (input, self.weight.data, self.padding_idx)
        embedding, embedding_backward = kernels.best(ops.embedding, *args)
        y, saved = embedding(*args)

        @way_back
        def backward(dy: Array) -> None:
            self.weight.accumulate(embedding_backward(dy, saved))

        return y, backward


class CrossEntropyLoss(Module):
    """−log softmax(input)[target]. `ops.cross_entropy`, torch.nn.CrossEntropyLoss.

    input: (N, C), (C,) or torch's (N, C, d1, …), target: class numbers of the shape without C, or
    class probabilities of the shape of input. The gradient of `target` is not taken.

    >>> round(float(CrossEntropyLoss()(np.zeros((2, 4)), np.array([1, 3]))), 4)
    1.3863
    """

    def __init__(
        self,
        weight: Array | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        if size_average is not None or reduce is not None:
            raise ValueError("size_average and reduce are torch's old names; give reduction")
        self.weight = weight
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, input: Array, target: Array) -> Forward:
        """Return (loss, backward); backward(dloss=1) gives the gradient of `input`."""
        classes_last = input if input.ndim < 3 else np.moveaxis(input, 1, -1)
        loss, saved = ops.cross_entropy(
            classes_last,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )

        @way_back
        def backward(dloss: Any = 1.0) -> Array:
            dx = ops.cross_entropy_backward(np.asarray(dloss, input.dtype), saved)
            return dx if input.ndim < 3 else np.moveaxis(dx, -1, 1)

        return loss, backward

"""The small layers (linear, norms, activations, embedding, loss) with torch's names and arguments.

Each holds its parameters and calls the function of `functional`, or the op, that computes it.
"""

import operator
from collections.abc import Sequence
from typing import Annotated, Any

from pellucid import ops
from pellucid.core.array import Array, float32, host, to_host
from pellucid.core.dispatch import dispatch
from pellucid.core.rng import Rng
from pellucid.core.vjp import Backward
from pellucid.nn import functional
from pellucid.nn.differences import rule
from pellucid.nn.function import check_eps, check_finite, check_probability, refuse_inplace
from pellucid.nn.init import Init, normal, ones, uniform, zero_row, zeros
from pellucid.nn.module import Buffer, Forward, Module, Parameter, learning, single_use
from pellucid.ops.norms import NORMS


class Linear(Module):
    """Linear layer y = x Wᵀ + b, as torch.nn.Linear; x (…, in_features), y (…, out_features).

    Without `bias` b is 0. `seed` is that of the initialisation; None leaves zeros.

    >>> import numpy as np
    >>> Linear(3, 2)(np.ones((5, 3), np.float32)).shape
    (5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = float32,
        seed: int | None = 0,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        init = uniform(in_features**-0.5 if in_features else 0.0)
        self.weight = Parameter((out_features, in_features), init, dtype)
        self.bias = Parameter((out_features,), init, dtype) if bias else None
        self.initialise(seed)

    def arrays(self) -> tuple[Array, Array | None]:
        """Return the arrays of the weight and of the bias; None if there is no bias."""
        return self.weight.data, None if self.bias is None else self.bias.data

    def forward(self, input: Annotated[Array, "… E"]) -> tuple[Annotated[Array, "… F"], Backward]:
        """Compute the layer; return (y, backward)."""
        result = functional.linear.forward(input, *self.arrays())
        return learning((self.weight, self.bias), *result)

    def run(
        self, x: Annotated[Array, "T E"], path: str = ""
    ) -> tuple[Annotated[Array, "T F"], Backward]:
        """Compute the layer on rows (T, E) without checks; return (y, backward).

        `path` is the name of the calling layer, for observers.
        """
        result = dispatch(ops.linear, x, *self.arrays(), path=path)
        return learning((self.weight, self.bias), *result)


class Norm(Module):
    """The norm called `kind` in `ops.norms.NORMS`, over the last axis, of size `width`.

    It has a weight, initialised to 1, and a bias, initialised to 0, if `bias` and the kind has one.
    Raises `ValueError` for an eps that is negative or NaN.

    >>> import numpy as np
    >>> Norm("layer_norm", 4)(np.arange(8, dtype=np.float32).reshape(2, 4)).shape
    (2, 4)
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, kind: str, width: int, eps: float = 1e-5, bias: bool = True, *, dtype: Any = float32
    ) -> None:
        check_eps(eps)
        self.kind, self.eps = kind, eps
        self.weight = Parameter((width,), ones, dtype)
        self.bias = Parameter((width,), zeros, dtype) if bias and NORMS[kind].has_bias else None
        self.initialise(0)

    def forward(self, input: Annotated[Array, "… E"]) -> tuple[Annotated[Array, "… E"], Backward]:
        """Compute the layer; return (y, backward)."""
        return self.run(input)

    def arrays(self) -> tuple[Array | None, Array | None]:
        """Return the arrays of the weight and of the bias; None for one that is missing."""
        weight = None if self.weight is None else self.weight.data
        return weight, None if self.bias is None else self.bias.data

    def run(
        self, x: Annotated[Array, "… E"], path: str = ""
    ) -> tuple[Annotated[Array, "… E"], Backward]:
        """Compute the norm over the last axis, without checks; return (y, backward).

        A `LayerNorm` over several axes needs `forward`. `path` is the name of the calling layer,
        for observers.
        """
        op = NORMS[self.kind].op.forward
        result = dispatch(op, x, *self.arrays(), self.eps, path=path)
        return learning((self.weight, self.bias), *result)


class LayerNorm(Norm):
    """Layer normalisation over the last axes, of `normalized_shape`, as torch.nn.LayerNorm.

    Raises `ValueError` for an eps that is negative or NaN.

    >>> import numpy as np
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
        dtype: Any = float32,
    ) -> None:
        if not isinstance(normalized_shape, Sequence):  # one axis
            normalized_shape = (operator.index(normalized_shape),)
        self.normalized_shape = tuple(normalized_shape)
        check_eps(eps)
        self.kind, self.eps = "layer_norm", eps
        self.elementwise_affine = elementwise_affine
        self.weight, self.bias = None, None
        if elementwise_affine:
            self.weight = Parameter(self.normalized_shape, ones, dtype)
            self.bias = Parameter(self.normalized_shape, zeros, dtype) if bias else None
        self.initialise(0)

    def forward(self, input: Annotated[Array, "…"]) -> tuple[Annotated[Array, "…"], Backward]:
        """Compute the layer; return (y, backward).

        Raises `ValueError` when the last axes do not have the shape `normalized_shape`.
        """
        shape = self.normalized_shape
        result = functional.layer_norm.forward(input, shape, *self.arrays(), self.eps)
        return learning((self.weight, self.bias), *result)


class Dropout(Module):
    """Zero each element with probability `p` in training, as torch.nn.Dropout.

    The other elements are divided by 1 − p. In evaluation, x itself is returned. Unlike torch's,
    `forward` needs an `rng` in training if p > 0 (else `ValueError`): there is no global random
    state. Raises `ValueError` for a p outside 0 to 1 and for `inplace`.

    >>> import numpy as np
    >>> Dropout(0.5).eval()(np.ones(3))
    array([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability(p)
        refuse_inplace(inplace)
        self.p = p

    def forward(
        self, input: Annotated[Array, "…"], *, rng: Rng | None = None
    ) -> tuple[Annotated[Array, "…"], Backward]:
        """Apply dropout; return (y, backward).

        Raises `ValueError` in training with p > 0 and no `rng`.
        """
        return functional.dropout.forward(input, self.p, self.training, rng=rng)


class ReLU(Module):
    """ReLU, max(0, x), as torch.nn.ReLU, but `inplace` is a `ValueError`."""

    def __init__(self, inplace: bool = False) -> None:
        refuse_inplace(inplace)

    def forward(self, input: Annotated[Array, "…"]) -> tuple[Annotated[Array, "…"], Backward]:
        """Compute the layer; return (y, backward)."""
        return functional.relu.forward(input)


class LeakyReLU(Module):
    """Leaky ReLU: x where x > 0, else `negative_slope` · x, as torch.nn.LeakyReLU.

    Raises `ValueError` for `inplace`, and unless |negative_slope| ≤ 2⁶³.
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        refuse_inplace(inplace)
        check_finite(negative_slope, "negative_slope")
        self.negative_slope = negative_slope

    def forward(self, input: Annotated[Array, "…"]) -> tuple[Annotated[Array, "…"], Backward]:
        """Compute the layer; return (y, backward)."""
        return functional.leaky_relu.forward(input, self.negative_slope)


class SiLU(Module):
    """SiLU, x σ(x), σ the logistic function, as torch.nn.SiLU; `inplace` is a `ValueError`."""

    def __init__(self, inplace: bool = False) -> None:
        refuse_inplace(inplace)

    def forward(self, input: Annotated[Array, "…"]) -> tuple[Annotated[Array, "…"], Backward]:
        """Compute the layer; return (y, backward)."""
        return functional.silu.forward(input)


class GELU(Module):
    """GELU, x Φ(x), exact or with approximate="tanh", as torch.nn.GELU.

    Φ is the distribution function of the standard normal distribution. Raises `ValueError` for
    another `approximate`.
    """

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f'GELU expects approximate "none" or "tanh", got {approximate!r}')
        self.approximate = approximate

    def forward(self, input: Annotated[Array, "…"]) -> tuple[Annotated[Array, "…"], Backward]:
        """Compute the layer; return (y, backward)."""
        return functional.gelu.forward(input, self.approximate)


class Embedding(Module):
    """Look up rows of a learned table, as torch.nn.Embedding.

    Row `padding_idx` is initialised to zero and gets no gradient. `scale_grad_by_freq` divides the
    gradient of each row by the number of its look-ups. `max_norm` is not supported (`ValueError`),
    which makes `norm_type` unused; `sparse` has no effect. `_weight` is copied as the table, its
    padding row too, in its dtype; `_freeze` excludes the table from learning. Raises `ValueError`
    for a padding_idx outside the table.

    >>> import numpy as np
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
        dtype: Any = float32,
        seed: int | None = 0,
    ) -> None:
        if max_norm is not None:
            raise ValueError(f"max_norm: leave it out, {rule('max_norm')}")
        padding_idx = functional.padding_row(padding_idx, num_embeddings)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx, self.scale_grad_by_freq = padding_idx, scale_grad_by_freq
        dtype = dtype if _weight is None else to_host(_weight).dtype
        self.weight = Parameter((num_embeddings, embedding_dim), zeros, dtype)
        self.weight.requires_grad = not _freeze
        self.init_with(normal(1.0))
        if _weight is None:
            self.initialise(seed)
        else:
            self.load_state_dict({"weight": _weight})

    def init_with(self, init: Init) -> None:
        """Set the initialiser of the table; the padding row stays zero. Does not draw yet."""
        row = self.padding_idx
        self.weight.init = init if row is None else zero_row(init, row)

    def forward(self, input: Annotated[Array, "…"]) -> tuple[Annotated[Array, "… E"], Backward]:
        """Return (the table's rows for the indices `input`, backward).

        backward returns None, since indices have no gradient. Raises `IndexError` for an index
        outside the table, `TypeError` unless input is integers.
        """
        y, back = functional.embedding.forward(
            input,
            self.weight.data,
            self.padding_idx,
            scale_grad_by_freq=self.scale_grad_by_freq,
        )

        @single_use
        def backward(dy: Array) -> None:
            self.weight.accumulate(back(dy))

        return y, backward


class CrossEntropyLoss(Module):
    """Cross-entropy −log softmax(input)[target], as torch.nn.CrossEntropyLoss.

    By default the mean over all targets. The arguments are torch's; `nn.functional.cross_entropy`
    explains them. input: (N, C), (C,) or torch's (N, C, d₁, …). target: class numbers, in the shape
    of input without C, or class probabilities, in the shape of input. There is no gradient for
    `target`.

    >>> import numpy as np
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
        self.weight = None if weight is None else Buffer(host.asarray(weight))
        self.size_average, self.reduce = size_average, reduce
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, input: Array, target: Array) -> Forward:
        """Compute the loss; return (loss, backward), backward(dloss) -> gradient of input.

        `dloss` has the shape of the loss; it is 1 by default if the loss is a single number. Raises
        the errors of `nn.functional.cross_entropy`.
        """
        return functional.cross_entropy.forward(
            input,
            target,
            None if self.weight is None else self.weight.data,
            self.size_average,
            self.ignore_index,
            self.reduce,
            self.reduction,
            self.label_smoothing,
        )

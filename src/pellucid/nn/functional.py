"""The functions of torch.nn.functional: layers without parameters, which are arguments instead.

As with a layer, `f(x)` returns the output alone and `f.forward(x)` returns `(output, backward)`;
`backward(dy)` returns the gradients of the array arguments, in their order: one array, or a tuple
of several, with None for an argument that was left out. Indices, targets, class weights and masks
get none.

**Which way is True?** `scaled_dot_product_attention` follows torch's function of that name, where
True in `attn_mask` means *may attend*. Everywhere else in `pellucid.nn`, as in torch.nn, True means
*not allowed*.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from pellucid import ops
from pellucid.core.array import Array, host, host_dtype, like, namespace, real, to_host
from pellucid.core.rng import Rng
from pellucid.core.vjp import check_gradient
from pellucid.nn.differences import rule
from pellucid.nn.function import (
    Function,
    active_dropout,
    apply,
    check_eps,
    check_finite,
    check_numbers,
    check_probability,
    refuse_inplace,
)
from pellucid.nn.masks import converted
from pellucid.nn.module import Forward, single_use

__all__ = [
    "cross_entropy", "dropout", "embedding", "gelu", "layer_norm", "leaky_relu", "linear",
    "log_softmax", "relu", "scaled_dot_product_attention", "silu", "softmax",
]  # fmt: skip


@Function
def linear(input: Array, weight: Array, bias: Array | None = None) -> Forward:
    """Return x Wᵀ + b; backward returns (dx, dweight, dbias). See `ops.linear`.

    dbias is None without a bias. Raises `ValueError` for shapes that do not fit.

    >>> import numpy as np
    >>> linear(np.ones((5, 3)), np.ones((2, 3))).shape
    (5, 2)
    """
    return apply(ops.linear, input, weight, bias)


@Function
def relu(input: Array, inplace: bool = False) -> Forward:
    """Return max(0, x). See `ops.relu`. Raises `ValueError` for `inplace`.

    >>> import numpy as np
    >>> y, backward = relu.forward(np.array([-1.0, 2.0]))
    >>> y, backward(np.ones(2))
    (array([0., 2.]), array([0., 1.]))
    """
    refuse_inplace(inplace)
    return apply(ops.relu, input)


@Function
def leaky_relu(input: Array, negative_slope: float = 0.01, inplace: bool = False) -> Forward:
    """Return x where x > 0, else `negative_slope` · x. See `ops.leaky_relu`.

    Raises `ValueError` for `inplace`, and unless |negative_slope| ≤ 2⁶³.
    """
    refuse_inplace(inplace)
    check_finite(negative_slope, "negative_slope")
    return apply(ops.leaky_relu, input, negative_slope)


@Function
def gelu(input: Array, approximate: str = "none") -> Forward:
    """Return x Φ(x), exactly, or approximately with approximate="tanh". See `ops.gelu`.

    Φ is the distribution function of the standard normal distribution. Raises `ValueError` for
    another `approximate`.
    """
    return apply(ops.gelu, input, approximate)


@Function
def silu(input: Array, inplace: bool = False) -> Forward:
    """Return x σ(x), σ the logistic function. See `ops.silu`. Raises `ValueError` for `inplace`."""
    refuse_inplace(inplace)
    return apply(ops.silu, real(input))


@Function
def softmax(input: Array, dim: int) -> Forward:
    """Return exp(x) / Σ exp(x) along axis `dim`. See `ops.softmax`.

    Where all x along the axis are −inf, the result is 0. Raises `ValueError` for an axis that input
    does not have.

    >>> import numpy as np
    >>> softmax(np.zeros((2, 4)), dim=0)[0]
    array([0.5, 0.5, 0.5, 0.5])
    """
    return _along(ops.softmax, input, dim)


@Function
def log_softmax(input: Array, dim: int) -> Forward:
    """Return x − log Σ exp(x) along axis `dim`. See `ops.log_softmax`.

    Where all x along the axis are −inf, so is the result. Raises `ValueError` for an axis that
    input does not have.
    """
    return _along(ops.log_softmax, input, dim)


def _along(f: Callable[..., tuple[Any, Any]], input: Array, dim: int) -> Forward:
    """Apply an op that works on the last axis along the axis `dim`."""
    xp, shape = namespace(input), input.shape
    wide = shape or (1,)  # a single number is a row of one, as in torch
    if not -len(wide) <= dim < len(wide):
        raise ValueError(f"dim must be an axis of input, which has shape {shape}; got {dim}")
    y, back = apply(f, xp.moveaxis(xp.reshape(real(input), wide), dim, -1))

    @single_use
    def backward(dy: Array) -> Array:
        check_gradient(dy, shape)
        dx = back(xp.moveaxis(xp.reshape(dy, wide), dim, -1))
        return xp.reshape(xp.moveaxis(dx, -1, dim), shape)

    return xp.reshape(xp.moveaxis(y, -1, dim), shape), backward


@Function
def dropout(
    input: Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rng: Rng | None = None,
) -> Forward:
    """Zero each element with probability p, scale the rest by 1/(1 − p). See `ops.dropout`.

    Returns x itself unless `training`. Raises `ValueError` in training with p > 0 and no rng,
    because there is no global random state; also for a p outside 0 to 1 and for `inplace`.
    """
    refuse_inplace(inplace)
    check_probability(p)
    return apply(ops.dropout, input, active_dropout(p, training, rng), rng)


@Function
def layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Forward:
    """Normalise over the last axes, of `normalized_shape`; backward returns (dx, dweight, dbias).

    dweight or dbias is None if weight or bias is. Raises `ValueError` when the last axes, weight or
    bias do not have that shape, and when eps is negative or NaN. See `ops.layer_norm`.
    """
    if not isinstance(normalized_shape, Sequence):
        raise ValueError(
            "normalized_shape must be the sizes of the last axes, such as "
            f"({normalized_shape},); got {normalized_shape}"
        )
    xp = namespace(input, weight, bias)
    shape, axes = tuple(normalized_shape), len(normalized_shape)
    if not axes or input.ndim < axes or input.shape[input.ndim - axes :] != shape:
        raise ValueError(
            f"LayerNorm expects at least one axis and input whose last axes are {shape}; got "
            f"input of shape {input.shape}"
        )
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and p.shape != shape:
            raise ValueError(f"LayerNorm expects a {name} of shape {shape}, got {p.shape}")
    check_eps(eps)
    wide = (*input.shape[: input.ndim - axes], math.prod(shape))
    flat = (None if p is None else xp.reshape(p, (-1,)) for p in (weight, bias))
    y, back = apply(ops.layer_norm, xp.reshape(input, wide), *flat, eps)

    @single_use
    def backward(dy: Array) -> tuple[Array, Array | None, Array | None]:
        check_gradient(dy, input.shape)
        dx, dweight, dbias = back(xp.reshape(dy, wide))
        dweight, dbias = (None if d is None else xp.reshape(d, shape) for d in (dweight, dbias))
        return xp.reshape(dx, input.shape), dweight, dbias

    return xp.reshape(y, input.shape), backward


@Function
def embedding(
    input: Array,
    weight: Array,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Forward:
    """Return weight[input]; backward returns dweight, without a gradient for `padding_idx`.

    input: (…) integers, weight (V, E). `scale_grad_by_freq` divides the gradient of each row by the
    number of its look-ups. A negative `padding_idx` counts from the end. `max_norm` is not
    supported (`ValueError`), which makes `norm_type` unused; `sparse` has no effect.
    Raises `IndexError` for an index outside the table, `TypeError` unless input is integers,
    `ValueError` when weight is not 2-D or padding_idx is outside the table.
    """
    input = input if hasattr(input, "dtype") else host.asarray(input)
    if max_norm is not None:
        raise ValueError(f"max_norm: leave it out, {rule('max_norm')}")
    xp = namespace(input)
    if not xp.isdtype(input.dtype, "integral"):
        raise TypeError(f"embedding expects integers to look up, got {input.dtype}")
    padding_idx = padding_row(padding_idx, weight.shape[0])
    y, back = apply(ops.embedding, input, weight, padding_idx)

    @single_use
    def backward(dy: Array) -> Array:
        dweight: Array = back(dy)
        if scale_grad_by_freq:
            flat = to_host(input).reshape(-1).astype(host.intp)  # an index may have 32 bits
            times = host.maximum(host.bincount(flat, minlength=weight.shape[0]), 1)
            dweight = dweight / xp.astype(like(times, dweight), dweight.dtype)[:, None]
        return dweight

    return y, backward


def padding_row(padding_idx: int | None, rows: int) -> int | None:
    """Convert a `padding_idx`, which may count from the end, to a row number or None.

    Raises `ValueError` if it is outside the table.
    """
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(f"padding_idx must lie within the {rows} rows, got {padding_idx}")
    return padding_idx % rows


@Function
def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Forward:
    """Return −log softmax(input)[target]; backward(dloss) returns the gradient of input.

    input: (C,), (N, C) or torch's (N, C, d₁, …). target: class numbers, in the shape of input
    without C, or class probabilities, in the shape of input. `weight`: a factor for each class,
    (C,). Class numbers equal to `ignore_index` do not count. `reduction`: "sum" of the losses,
    "mean" (divided by the total weight of the targets' classes; for probabilities by their number),
    or "none" for each. `label_smoothing` ε mixes the target with the uniform distribution, in the
    ratio 1 − ε to ε. `size_average` and `reduce` are torch's deprecated arguments for `reduction`.
    `dloss` has the shape of the loss; it is 1 by default if the loss is a single number. Raises
    `ValueError` for shapes and settings that do not fit, `IndexError` for a class outside [0, C),
    `TypeError` for an input of integers. See `ops.cross_entropy`.
    """
    if size_average is not None or reduce is not None:  # as in torch, None counts as True here
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    xp = namespace(input)
    target = target if hasattr(target, "dtype") else host.asarray(target)
    probabilities = target.shape == input.shape
    if not probabilities and target.shape != input.shape[:1] * (input.ndim > 1) + input.shape[2:]:
        raise ValueError(
            f"target must have the shape of input without its classes, or that of input; got "
            f"input {input.shape} and target {target.shape}"
        )
    if weight is not None and host.shape(weight) != (input.shape[min(1, input.ndim - 1)],):
        raise ValueError(
            f"weight must hold one number for each of the {input.shape[min(1, input.ndim - 1)]} "
            f"classes, got shape {host.shape(weight)}"
        )
    loss, back = apply(
        ops.cross_entropy,
        _classes_last(input),
        _classes_last(target) if probabilities else target,
        weight=None if weight is None else xp.astype(xp.asarray(weight), input.dtype),
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )

    @single_use
    def backward(dloss: Any = None) -> Array:
        if dloss is None and math.prod(loss.shape) == 1:
            dloss = xp.ones_like(loss)
        dx: Array = back(xp.astype(xp.asarray(dloss), input.dtype))
        return dx if input.ndim < 3 else xp.moveaxis(dx, -1, 1)

    return loss, backward


def _classes_last(x: Array) -> Array:
    """Move the class axis of (N, C, d₁, …) to the end; (C,) and (N, C) stay as they are."""
    return x if x.ndim < 3 else namespace(x).moveaxis(x, 1, -1)


@Function
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rng: Rng | None = None,
) -> Forward:
    """Return softmax(scale · Q Kᵀ + mask) V; backward returns (dquery, dkey, dvalue).

    **True in attn_mask means MAY attend**, as in torch's function of this name, which is the
    opposite of every other mask in `pellucid.nn`; a float mask is added to the scores. The mask
    broadcasts to (…, L, S) and has at least two axes. `is_causal` forbids key s > query l, in
    addition to attn_mask.

    query: (…, L, D), key: (…, S, D), value: (…, S, Dv); the leading axes broadcast. With enable_gqa
    the last of these are heads, of which key and value may have fewer, each shared by neighbouring
    query heads. `scale` is 1/√D by default. A `dropout_p` other than 0 always applies to the
    softmax, and needs an `rng`. A query that may attend to no key gets zeros. Raises `ValueError`
    and `TypeError` for arguments that do not fit.

    >>> import numpy as np
    >>> q = k = v = np.eye(2)[None]
    >>> scaled_dot_product_attention(q, k, v, np.array([[True, False], [True, True]]))[0, 0]
    array([1., 0.])
    """
    check_probability(dropout_p, "dropout_p")
    if scale is not None:
        check_finite(scale, "scale")
    xp = namespace(query, key, value)
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim < 2:
            raise ValueError(f"{name} must have at least 2 axes, (…, length, width); got {x.shape}")
        check_numbers(x, name)
    shapes = [query.shape, key.shape, value.shape]
    if enable_gqa:
        key, value = (_share_heads(query, x) for x in (key, value))
    lead = _broadcast(query, key, value)
    q, k, v = (xp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (query, key, value))
    mask = attn_mask
    if mask is not None:
        mask = _check_mask(to_host(mask), (*lead, query.shape[-2], key.shape[-2]))
        mask = ~mask if mask.dtype == host.bool_ else converted(mask, host_dtype(query))
    options = {
        "mask": mask,
        "causal": is_causal,
        "scale": scale,
        "dropout": active_dropout(dropout_p, True, rng, "dropout_p"),
        "rng": rng,
    }
    out, back = apply(ops.attention, q, k, v, **options)

    @single_use
    def backward(dout: Array) -> tuple[Array, ...]:
        return tuple(_sum_to(d, shape) for d, shape in zip(back(dout), shapes, strict=True))

    return out, backward


def _share_heads(query: Array, x: Array) -> Array:
    """Repeat each head of x, axis −3, so that it has as many heads as the query."""
    if query.ndim < 3 or x.ndim < 3 or query.shape[-3] % max(x.shape[-3], 1):
        raise ValueError(
            f"enable_gqa expects (…, heads, length, width) with key and value heads that divide "
            f"the query's; got query {query.shape} and {x.shape}"
        )
    return namespace(x).repeat(x, query.shape[-3] // max(x.shape[-3], 1), axis=-3)


def _broadcast(*arrays: Array) -> tuple[int, ...]:
    """Return the broadcast shape of all axes but the last two."""
    try:
        return host.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    except ValueError:
        raise ValueError(
            "the axes in front of (length, width) must be equal or broadcast; got "
            f"{', '.join(str(x.shape) for x in arrays)}"
        ) from None


def _check_mask(mask: Array, scores: tuple[int, ...]) -> Array:
    """Return the mask; raise `TypeError` for its dtype, `ValueError` for its shape."""
    if mask.dtype != host.bool_ and not host.issubdtype(mask.dtype, host.floating):
        raise TypeError(
            f"attn_mask must be bool (here True = MAY attend) or float (added to the scores), got "
            f"{mask.dtype}; convert it with .astype(bool)"
        )
    fits = 2 <= mask.ndim <= len(scores) and all(
        m in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1], strict=False)
    )
    if not fits:
        raise ValueError(f"attn_mask must broadcast to the scores, {scores}; got {mask.shape}")
    return mask


def _sum_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum the gradient of a broadcast array, or of shared heads, back to the array's own shape."""
    front = gradient.ndim - len(shape)
    xp = namespace(gradient)
    gradient = xp.sum(gradient, axis=tuple(range(front))) if front else gradient
    for axis, (wide, own) in enumerate(zip(gradient.shape, shape, strict=True)):
        if wide != own:
            groups = (*gradient.shape[:axis], own, wide // own, *gradient.shape[axis + 1 :])
            gradient = xp.sum(xp.reshape(gradient, groups), axis=axis + 1)
    return gradient

"""torch.nn.functional.scaled_dot_product_attention, **whose True means MAY attend**."""

from __future__ import annotations

from pellucid import ops
from pellucid.core.array import Array, host, host_dtype, namespace, to_host
from pellucid.core.rng import Rng
from pellucid.nn.function import (
    Function,
    active_dropout,
    apply,
    check_finite,
    check_numbers,
    check_probability,
)
from pellucid.nn.masks import converted
from pellucid.nn.module import Forward, single_use


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

    **True in attn_mask means MAY attend**, torch's rule for this function and the opposite of
    every mask in `pellucid.nn`; a float mask is added. It broadcasts to (…, L, S) and has at least
    two axes. `is_causal` forbids s > l and applies together with attn_mask.

    query: (…, H, L, D), key: (…, H, S, D), value: (…, H, S, Dv); the axes in front broadcast. With
    enable_gqa key and value may have fewer heads, each shared by neighbouring query heads. `scale`
    is 1/√D unless given. `dropout_p` applies whenever it is not 0, and then needs an `rng`. A query
    with nothing to attend to gets zeros. Raises `ValueError` and `TypeError` on what does not fit.

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
    """Repeat each head of x, axis −3, as often as it takes to have query's number of heads."""
    if query.ndim < 3 or x.ndim < 3 or query.shape[-3] % max(x.shape[-3], 1):
        raise ValueError(
            f"enable_gqa expects (…, heads, length, width) with key and value heads that divide "
            f"the query's; got query {query.shape} and {x.shape}"
        )
    return namespace(x).repeat(x, query.shape[-3] // max(x.shape[-3], 1), axis=-3)


def _broadcast(*arrays: Array) -> tuple[int, ...]:
    try:
        return host.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    except ValueError:
        raise ValueError(
            "the axes in front of (length, width) must be equal or broadcast; got "
            f"{', '.join(str(x.shape) for x in arrays)}"
        ) from None


def _check_mask(mask: Array, scores: tuple[int, ...]) -> Array:
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

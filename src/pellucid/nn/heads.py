"""What happens to the heads between the projections and attention; each step with its backward.

A step that a layer does not have returns what it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pellucid import ops
from pellucid.core.array import Array, like, namespace
from pellucid.kernels import dispatch
from pellucid.nn.config import AttentionConfig
from pellucid.nn.context import Context
from pellucid.nn.layers import Norm
from pellucid.nn.module import Parameter, learning

Backward = Callable[..., Any]
Heads = tuple[Array, Array, Array]
"""q (T, H, D), k and v (U, G, D), G heads of keys and values."""


def norm_rotate(
    x: Annotated[Array, "T N D"],
    heads: tuple[int, int],
    norms: tuple[Norm | None, Norm | None],
    config: AttentionConfig,
    context: Context,
) -> tuple[Annotated[Array, "T N D"], Backward]:
    """Normalise the heads of queries and of keys, so many of each, and rotate them."""
    weights = [
        n.weight if n is not None and count else None for n, count in zip(norms, heads, strict=True)
    ]
    if not any(heads) or (weights == [None, None] and config.rotate is None):
        return x, lambda dy: dy
    options: dict[str, Any] = {"angles": config.angles, "path": context.path}
    if config.qk_norm is not None:
        options["eps"] = config.qk_norm
    positions = None
    if config.rotate is not None:
        options["rotate"], positions = config.rotate, like(context.row_positions(), x)
    arrays = (None if weight is None else weight.data for weight in weights)
    return learning(weights, *dispatch(ops.norm_rotate, x, heads, *arrays, positions, **options))


def share(
    k: Annotated[Array, "U G D"], v: Annotated[Array, "U G Dv"], times: int, path: str
) -> tuple[Annotated[Array, "U H D"], Annotated[Array, "U H Dv"], Backward]:
    """Give every query head its keys and values, where `times` of them share one head."""
    if times == 1:
        return k, v, lambda dk, dv: (dk, dv)
    (k, k_backward), (v, v_backward) = (
        dispatch(ops.share_heads, x, times, path=path) for x in (k, v)
    )
    return k, v, lambda dk, dv: (k_backward(dk), v_backward(dv))


def scale(
    q: Annotated[Array, "T H D"], factors: Parameter | None, path: str
) -> tuple[Annotated[Array, "T H D"], Backward]:
    """Put a learned scale (H,) into the queries (T, H, D)."""
    if factors is None:
        return q, lambda dq: dq
    return learning((factors,), *dispatch(ops.head_scale, q, factors.data, path=path))


def side_by_side(*parts: Array) -> Array:
    """Return (T, H, D) arrays as one (T, Σ H, D); no copy when a kernel laid them out so."""
    if len(parts) == 1:
        return parts[0]
    t, heads, width = parts[0].shape
    n, xp = len(parts), namespace(*parts)
    base = getattr(parts[0], "base", None)  # NumPy's name for the array that a view is of
    if (
        base is not None
        and getattr(base, "shape", None) == (t, n, heads, width)
        and all(part.base is base for part in parts)
    ):
        return xp.reshape(base, (t, n * heads, width))
    return xp.concat(parts, axis=1)

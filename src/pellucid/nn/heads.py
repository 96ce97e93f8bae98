"""What happens to the heads between the projections and attention; each step with its backward.

A step that a layer does not have returns what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pellucid import ops
from pellucid.core.array import Array, like, namespace
from pellucid.kernels import dispatch
from pellucid.nn.config import AttentionConfig
from pellucid.nn.context import Context
from pellucid.nn.layers import Norm
from pellucid.nn.module import Forward, Parameter, learning

Backward = Callable[..., Any]
Heads = tuple[Array, Array, Array]
"""q (T, H, D), k and v (U, G, D), G heads of keys and values."""


def normalise(
    q: Annotated[Array, "T H D"],
    k: Annotated[Array, "U G D"],
    q_norm: Norm | None,
    k_norm: Norm | None,
    path: str,
) -> tuple[Annotated[Array, "T H D"], Annotated[Array, "U G D"], Backward]:
    """Normalise every query and key, head by head."""
    if q_norm is None or k_norm is None:
        return q, k, _unchanged
    (q, q_backward), (k, k_backward) = q_norm.run(q, path), k_norm.run(k, path)
    return q, k, lambda dq, dk: (q_backward(dq), k_backward(dk))


def rotate(
    q: Annotated[Array, "T H D"],
    k: Annotated[Array, "U G D"],
    config: AttentionConfig,
    context: Context,
) -> tuple[Annotated[Array, "T H D"], Annotated[Array, "U G D"], Backward]:
    """Rotate queries and keys by their positions."""
    op = config.rotate
    if op is None:
        return q, k, _unchanged
    positions, path = like(context.row_positions(), q), context.path
    return _each(lambda x: dispatch(op, x, positions, config.angles, path=path), q, k)


def share(
    k: Annotated[Array, "U G D"], v: Annotated[Array, "U G Dv"], times: int, path: str
) -> tuple[Annotated[Array, "U H D"], Annotated[Array, "U H Dv"], Backward]:
    """Give every query head its keys and values, where `times` of them share one head."""
    if times == 1:
        return k, v, _unchanged
    return _each(lambda x: dispatch(ops.share_heads, x, times, path=path), k, v)


def _each(run: Callable[[Array], Forward], a: Array, b: Array) -> tuple[Array, Array, Backward]:
    (a, a_backward), (b, b_backward) = run(a), run(b)
    return a, b, lambda da, db: (a_backward(da), b_backward(db))


def scale(
    q: Annotated[Array, "T H D"], factors: Parameter | None, path: str
) -> tuple[Annotated[Array, "T H D"], Backward]:
    """Put a learned scale (H,) into the queries (T, H, D)."""
    if factors is None:
        return q, lambda dq: dq
    return learning((factors,), *dispatch(ops.head_scale, q, factors.data, path=path))


def _unchanged(dq: Array, dk: Array) -> tuple[Array, Array]:
    return dq, dk


def split(y: Array, widths: Sequence[int], d: int) -> list[Array]:
    """Split the columns of y (T, Σ widths) into one array of heads (T, width / d, d) per width."""
    xp, heads, begin = namespace(y), [], 0
    for width in widths:
        heads.append(xp.reshape(y[:, begin : begin + width], (y.shape[0], width // d, d)))
        begin += width
    return heads


def side_by_side(*parts: Array) -> Array:
    """Return (T, H, D) arrays as one (T, Σ H·D); no copy when a kernel laid them out so."""
    t, heads, width = parts[0].shape
    n, xp = len(parts), namespace(*parts)
    if n == 1:
        return xp.reshape(parts[0], (t, heads * width))
    base = getattr(parts[0], "base", None)  # NumPy's name for the array that a view is of
    if (
        base is not None
        and getattr(base, "shape", None) == (t, n, heads, width)
        and all(part.base is base for part in parts)
    ):
        return xp.reshape(base, (t, n * heads * width))
    return xp.concat([xp.reshape(part, (t, part.shape[1] * width)) for part in parts], axis=1)

"""How attention's arrays lie: batch first or second, heads apart or side by side."""

from __future__ import annotations

import numpy as np

from pellucid.nn.function import check_numbers
from pellucid.nn.module import Array


def split_heads(x: Array, heads: int) -> Array:
    """(N, L, E) -> (N, H, L, D)."""
    n, length, width = x.shape
    return x.reshape(n, length, heads, width // heads).transpose(0, 2, 1, 3)


def merge_heads(x: Array) -> Array:
    """(N, H, L, D) -> (N, L, E)."""
    n, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(n, length, heads * width)


def rows_to_heads(rows: Array, heads: int) -> Array:
    """(T, E) -> (T, H, D)."""
    return rows.reshape(rows.shape[0], heads, rows.shape[1] // heads)


def to_every_head(dweights: Array, heads: int, averaged: bool, unbatched: bool) -> Array:
    """Return the gradient of the weights of every head from that of what was handed out."""
    dweights = dweights[None] if unbatched else dweights
    return np.repeat(dweights[:, None] / heads, heads, axis=1) if averaged else dweights


def joined(parts: list[Array]) -> Array:
    """Return the parts one upon another."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def side_by_side(*parts: Array) -> Array:
    """Return (T, H, D) arrays as one (T, n·H·D); no copy when a kernel laid them out so."""
    base: Array | None = parts[0].base
    t, heads, width = parts[0].shape
    n = len(parts)
    if (
        base is not None
        and base.shape == (t, n, heads, width)
        and all(p.base is base for p in parts)
    ):
        return base.reshape(t, n * heads * width)
    return np.concatenate([p.reshape(t, heads * width) for p in parts], axis=1)


def batch_first(x: Array, first: bool, unbatched: bool) -> Array:
    """Return x as (N, L, …), whether N stands first, second or not at all."""
    if unbatched:
        return x[None]
    return x if first else x.swapaxes(0, 1)


def undo_batch_first(x: Array, first: bool, unbatched: bool) -> Array:
    """Return (N, L, …) laid out as the caller has it."""
    if unbatched:
        return np.asarray(x[0])
    return x if first else x.swapaxes(0, 1)


def check_inputs(
    query: Array, key: Array, value: Array, widths: tuple[int, int, int], first: bool
) -> None:
    """Raise `ValueError` unless query, key and value fit each other and the layer.

    Raises `TypeError` unless they hold float32 or float64.
    """
    if not query.ndim == key.ndim == value.ndim or query.ndim not in (2, 3):
        raise ValueError(
            "query, key and value must all have 3 axes, or all 2 without a batch; got shapes "
            f"{query.shape}, {key.shape} and {value.shape}"
        )
    for name, x, width in zip(("query", "key", "value"), (query, key, value), widths, strict=True):
        if x.shape[-1] != width:
            raise ValueError(f"{name} must be {width} wide, got shape {x.shape}")
        check_numbers(x, name)
    batch = 0 if first else 1
    if key.shape[:-1] != value.shape[:-1] or (
        query.ndim == 3 and key.shape[batch] != query.shape[batch]
    ):
        raise ValueError(
            f"query, key and value must have the same batch (batch_first={first}), "
            f"key and value the same length; got shapes {query.shape}, {key.shape} and "
            f"{value.shape}"
        )

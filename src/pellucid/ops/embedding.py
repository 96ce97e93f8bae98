"""Embedding look-up in a table, and the table of sinusoidal positions."""

from math import prod
from typing import Annotated, NamedTuple

import numpy as np

from pellucid.core.array import Array, namespace, scatter_add, take


class Saved(NamedTuple):
    index: Array
    rows: int
    padding_idx: int | None


def embedding(
    index: Annotated[Array, "…"], weight: Annotated[Array, "V E"], padding_idx: int | None = None
) -> tuple[Annotated[Array, "… E"], Saved]:
    """Return weight[index], the row of the table for each index.

    index: (…) integers in [0, V). Row `padding_idx`, counted from 0, gets no gradient.
    Raises `IndexError` when an index is outside the table, `ValueError` when weight is not 2-D.

    >>> embedding(np.array([1, 0]), np.array([[1.0], [2.0]]))[0]
    array([[2.],
           [1.]])
    """
    xp = namespace(index, weight)
    if weight.ndim != 2:
        raise ValueError(f"embedding expects a table (V, E), got shape {weight.shape}")
    flat = xp.reshape(index, (-1,))
    if flat.shape[0] and (int(xp.min(flat)) < 0 or int(xp.max(flat)) >= weight.shape[0]):
        raise IndexError(
            f"embedding has {weight.shape[0]} rows, got indices from {int(xp.min(flat))} to "
            f"{int(xp.max(flat))}"
        )
    y = take(weight, flat, axis=0)
    saved = Saved(index, weight.shape[0], padding_idx)
    return xp.reshape(y, (*index.shape, weight.shape[1])), saved


def embedding_backward(dy: Annotated[Array, "… E"], saved: Saved) -> Annotated[Array, "V E"]:
    """Return dweight: its row i is the sum of dy over all places where the index is i.

    Row `padding_idx` is 0.
    """
    index, rows, padding_idx = saved
    xp = namespace(dy, index)
    flat = xp.reshape(index, (-1,))
    updates = xp.reshape(dy, (prod(index.shape), dy.shape[-1]))
    if padding_idx is not None:
        is_padding = (flat == padding_idx)[:, None]
        updates = xp.where(is_padding, xp.zeros_like(updates), updates)
    return scatter_add(flat, updates, rows)


def sinusoidal(length: int, width: int) -> Annotated[np.ndarray, "L E"]:
    """Return the fixed table of sinusoidal positions, (length, width) float64.

    P[t, 2i] = sin(t / 10000^(2i/width)), P[t, 2i+1] = cos(the same).
    Source: Vaswani et al. 2017, 3.5.

    >>> sinusoidal(2, 4)[0]
    array([0., 1., 0., 1.])
    """
    even = np.arange(0, width, 2)
    angle = np.arange(length)[:, None] / 10000.0 ** (even / width)
    table = np.empty((length, width))
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle[:, : width // 2])
    return table

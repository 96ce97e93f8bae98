"""Who may look at whom: torch's masks, read by one rule.

In a bool mask True means **not allowed**; a float mask is added to the scores. (Only
`nn.functional.scaled_dot_product_attention` has it the other way round, as in torch.)
"""

from __future__ import annotations

import numpy as np

from pellucid.nn.module import Array


def generate_square_subsequent_mask(size: int, dtype: np.typing.DTypeLike = np.float32) -> Array:
    """Return the float mask (size, size) that adds −inf where key s lies after query l.

    >>> generate_square_subsequent_mask(2)
    array([[  0., -inf],
           [  0.,   0.]], dtype=float32)
    """
    return np.triu(np.full((size, size), -np.inf, dtype), 1)


def valid_lens_mask(valid_lens: Array, length: int) -> Array:
    """Return the key-padding mask (N, length): True from valid_lens[n] on. Seed 004's `valid_lens`.

    A length of 0 forbids every key; such a row attends to nothing and gets zeros, not NaN.

    >>> valid_lens_mask(np.array([1, 0]), 2)
    array([[False,  True],
           [ True,  True]])
    """
    return np.arange(length) >= np.asarray(valid_lens)[:, None]


def check_mask(mask: Array, name: str, *shapes: tuple[int, ...]) -> Array:
    """Return `mask` as an array; raise `TypeError` on its dtype, `ValueError` on its shape."""
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ and not np.issubdtype(mask.dtype, np.floating):
        raise TypeError(
            f"{name} must be bool (True = not allowed) or float (added to the scores), got "
            f"{mask.dtype}; convert it with .astype(bool)"
        )
    if mask.shape not in shapes:
        expected = " or ".join(str(s) for s in shapes)
        raise ValueError(f"{name} must have shape {expected}, got {mask.shape}")
    return mask


def combine(
    attn_mask: Array | None,
    key_padding_mask: Array | None,
    n: int,
    heads: int,
    length: int,
    source_length: int,
) -> Array | None:
    """Return one mask that broadcasts to (N, H, L, S), or None.

    attn_mask: (L, S) or (N·H, L, S); key_padding_mask: (N, S). Both apply. Two bool masks give a
    bool one; otherwise True becomes −inf and the numbers are added.
    """
    masks = []
    if attn_mask is not None:
        per_head = (n * heads, length, source_length)
        mask = check_mask(attn_mask, "attn_mask", (length, source_length), per_head)
        masks.append(mask.reshape(n, heads, *mask.shape[1:]) if mask.ndim == 3 else mask)
    if key_padding_mask is not None:
        mask = check_mask(key_padding_mask, "key_padding_mask", (n, source_length))
        masks.append(mask[:, None, None, :])
    if len(masks) < 2:
        return masks[0] if masks else None
    if all(mask.dtype == np.bool_ for mask in masks):
        return np.logical_or(*masks)
    first, second = (as_added(mask) for mask in masks)
    return np.add(first, second)


def as_added(mask: Array) -> Array:
    """Return a mask as numbers to add to the scores: True becomes −inf."""
    if mask.dtype != np.bool_:
        return mask
    return np.where(mask, np.float32(-np.inf), np.float32(0.0))
